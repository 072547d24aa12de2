# SPDX-License-Identifier: Apache-2.0
"""Tests the errors of zero_comm_create_mpi in a process without a usable MPI. Each case is a separate process,
because an MPI cannot be unloaded."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import mpis

STANDARD = [found.library for name in ("mpich", "impi") if (found := mpis.find(name)) is not None]
OWN = mpis.find("mpicc")
SCRIPT = """
import ctypes as c, os, sys
zero = c.CDLL(os.environ["LIBZERO_PATH"])
zero.zero_last_error.restype = zero.zero_status_name.restype = c.c_char_p
def create():
    comm = c.c_void_p()
    status = zero.zero_comm_create_mpi(c.byref(comm), None, c.c_size_t(0), None)
    print(zero.zero_status_name(status).decode(), zero.zero_last_error().decode() if status < 0 else "")
mpis = [c.CDLL(path, mode=int(os.environ["MODE"])) for path in sys.argv[1:]]
"""
INIT = "mpis[0].MPI_Init_thread(None, None, {level}, c.byref(c.c_int()))\n"


def said(script: str, *mpis: object, shim: str = "/nowhere/shim.so", mode: int = os.RTLD_LOCAL) -> str:
    environment = {**os.environ, "ZERO_MPI_SHIM": shim, "MODE": str(mode)}
    done = subprocess.run([sys.executable, "-c", SCRIPT + script, *map(str, mpis)], env=environment,
                          capture_output=True, text=True, check=False, timeout=100)
    return done.stdout + done.stderr


class StandardAbi(unittest.TestCase):
    def setUp(self) -> None:
        if not STANDARD:
            self.skipTest("no MPI of the standard ABI is here: scripts/test --with-mpi brings some")

    def test_an_mpi_that_nobody_initialized_or_that_has_ended_is_a_sentence(self) -> None:
        for mpi in STANDARD:
            with self.subTest(mpi.parts[-3]):
                words = said("create()\n" + INIT.format(level=4096) + "create()\nmpis[0].MPI_Finalize()\ncreate()",
                             mpi).splitlines()
                self.assertEqual(words, [
                    "ZERO_ERR_STATE zero_comm_create_mpi: MPI is not initialized: call MPI_Init_thread first",
                    "ZERO_OK ",
                    "ZERO_ERR_STATE zero_comm_create_mpi: MPI_Finalize was already called: "
                    "free everything that uses MPI before calling it"])

    def test_two_mpis_in_one_process_are_refused_by_name(self) -> None:
        others = STANDARD[1:] or ([] if OWN is None else [OWN.library])
        if not others:
            self.skipTest("there is only one MPI here")
        words = said("create()", STANDARD[0], others[0])
        self.assertIn("ZERO_ERR_UNSUPPORTED zero_comm_create_mpi: two MPIs are loaded in this process", words)
        for mpi in (STANDARD[0], others[0]):
            self.assertIn(str(mpi), words)


@unittest.skipIf(OWN is None, mpis.why_not("mpicc"))
class OwnAbi(unittest.TestCase):
    def test_an_mpi_without_its_shim_is_told_what_builds_one(self) -> None:
        words = said("create()", OWN.library)
        self.assertIn("does not have MPI's standard ABI, and libzero has no shim for it: run zero-mpi-shim", words)
        self.assertIn("/nowhere/shim.so", words)

    def test_a_shim_serves_its_own_mpi_only(self) -> None:
        shim, mpi = OWN.variables["ZERO_MPI_SHIM"], OWN.library
        self.assertIn("MPI is not initialized", said("create()", mpi, shim=shim))
        others = [one.with_name("libmpi.so.12") for one in STANDARD]
        if not others:
            self.skipTest("no other MPI is here: scripts/test --with-mpi brings some")
        for mode in (os.RTLD_LOCAL, os.RTLD_GLOBAL):  # as if the program were linked to it
            with self.subTest(mode=mode):
                words = said("create()", others[0], shim=shim, mode=mode)
                self.assertIn("ZERO_ERR_UNSUPPORTED", words)
                self.assertIn(f"{shim} was built for {mpi}, but this process has loaded {others[0]}", words)


class Shim(unittest.TestCase):
    def test_it_says_how_it_is_used_and_takes_no_option_for_a_compiler(self) -> None:
        for argument, status, words in (("--help", 0, "zero-mpi-shim [MPICC [FOLDER]]"), ("-h", 0, "MPICC: the compiler"),
                                        ("--hlep", 2, "zero-mpi-shim: --hlep is no option; there is --help")):
            done = subprocess.run([str(mpis.TESTS.parent / "tools" / "zero-mpi-shim"), argument], capture_output=True,
                                  text=True, check=False, env={**os.environ, "XDG_DATA_HOME": "/nowhere"})
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(words, done.stdout if status == 0 else done.stderr)


if __name__ == "__main__":
    unittest.main()
