# SPDX-License-Identifier: Apache-2.0
"""Tests that `zero doctor` opens and reports each installed MPI, as ranks of a launcher would."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
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

    def test_no_code_below_the_current_directory_runs(self):
        mpi = mpis.find(self.name)
        if mpi is None:
            self.skipTest(mpis.why_not(self.name))
        if not mpi.variables.get("ZERO_MPI_SHIM"):
            self.skipTest("it needs no shim")
        with tempfile.TemporaryDirectory() as folder:
            shims = pathlib.Path(folder, "zero")
            shims.mkdir()
            source = pathlib.Path(folder, "shim.c")
            source.write_text('#include <fcntl.h>\n__attribute__((constructor)) static void run(void) '
                              '{ creat("ran", 0600); }\n', encoding="ascii")
            shim = shims / f"libzero_mpi-{pathlib.Path(mpi.library).name}"
            subprocess.run(["cc", "-shared", "-o", shim, source], check=True)
            found = subprocess.run(["zero", "doctor"], executable=ZERO, cwd=folder, stdout=subprocess.PIPE, text=True,
                                   env=mpi.environment(ZERO_MPI_PATH=str(mpi.library), ZERO_MPI_SHIM="", HOME="",
                                                       XDG_DATA_HOME=""), check=False, timeout=100)
            self.assertIn("libzero has no shim for it", found.stdout)
            self.assertEqual(sorted(os.listdir(folder)), ["shim.c", "zero"])


globals().update(mpis.of_each(Doctor))


if __name__ == "__main__":
    unittest.main()
