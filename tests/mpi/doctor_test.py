# SPDX-License-Identifier: Apache-2.0
"""What `zero doctor` says of each MPI that is here: it opens the one that ranks of a launcher would."""

from __future__ import annotations

import json
import os
import subprocess
import unittest

import mpis

ZERO = os.environ.get("ZERO_TOOL", "zero")


class Doctor:
    name = ""

    def test_the_mpi_that_ranks_would_use_is_named_and_how(self):
        mpi = mpis.find(self.name)
        if mpi is None:
            self.skipTest(mpis.why_not(self.name))
        shim = mpi.variables.get("ZERO_MPI_SHIM")
        done = subprocess.run([ZERO, "doctor", "--json"], env=mpi.environment(ZERO_MPI_PATH=str(mpi.library)),
                              capture_output=True, text=True, check=False, timeout=100)
        (found,) = [one for one in json.loads(done.stdout)["findings"] if one["subject"] == "MPI"]
        how = f"by the shim {shim}" if shim else "of the standard ABI"
        self.assertEqual((found["ok"], found["words"], done.stderr), (True, f"{mpi.library}, {how}", ""))


globals().update(mpis.of_each(Doctor))


if __name__ == "__main__":
    unittest.main()
