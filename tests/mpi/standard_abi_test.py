# SPDX-License-Identifier: Apache-2.0
"""Compares src/comm/mpi/abi.h with the mpi_abi.h of a standard ABI, as in MPICH 5. Constants must have the same
values, and functions the same types."""

from __future__ import annotations

import os
import re
import subprocess
import unittest

import mpis

OURS = (mpis.ROOT / "src" / "comm" / "mpi" / "abi.h").read_text(encoding="utf-8")


def comparison(ours: str) -> str:
    """Return a C program that compiles only if all declarations are the same."""
    head, functions = ours.split("#define MPI_FUNCTIONS")
    constants = re.findall(r"#define (MPI_\w+) (.*)|(MPI_\w+) = (.*),", head)
    types = re.findall(r"^typedef (?!struct MPI_ABI_Status).*;$", head, re.MULTILINE)
    asserts = [f'_Static_assert((intptr_t)({name}) == (intptr_t)({value}), "{name}");'
               for name, value in ((one[0] or one[2], one[1] or one[3]) for one in constants)]
    return "\n".join(["#include <mpi_abi.h>", *types, *asserts, f"#define MPI_FUNCTIONS{functions}",
                      "#define USE(result, name, arguments) result MPI_##name arguments;", "MPI_FUNCTIONS(USE)"])


class StandardAbi(unittest.TestCase):
    def test_what_libzero_declares_is_what_a_header_of_the_abi_declares(self):
        mpi = mpis.find("mpich")
        if mpi is None:
            self.skipTest(mpis.why_not("mpich"))
        compiler = [*os.environ.get("CC", "cc").split(), "-std=c11", "-fsyntax-only", "-xc", "-I",
                    str(mpi.library.parents[1] / "include"), "-"]

        def compiles(ours):
            return subprocess.run(compiler, input=comparison(ours), text=True, capture_output=True, check=False)

        done = compiles(OURS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("_Static_assert((intptr_t)(MPI_ANY_TAG)", comparison(OURS))
        for same, other in (("MPI_ANY_TAG = -2", "MPI_ANY_TAG = -3"), ("0x247", "0x248"),
                            ("Comm_rank, (MPI_Comm, int *)", "Comm_rank, (MPI_Comm, long *)")):
            self.assertIn(same, OURS)
            self.assertNotEqual(compiles(OURS.replace(same, other)).returncode, 0, other)


if __name__ == "__main__":
    unittest.main()
