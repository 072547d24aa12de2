# SPDX-License-Identifier: Apache-2.0
"""Tests finding the library, its version, its log, and `python -m libzero`."""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import libzero
from libzero import __main__, _abi, _load, _program


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


# Each copy of the library is a rank of one comm. One copy gets handles of the other copy, before it
# has any handles and later.
TWO_COPIES = """
import ctypes, os, sys, threading
import libzero as first
path = first.library_path()
for name in [name for name in sys.modules if name.partition(".")[0] == "libzero"]:
    del sys.modules[name]
os.environ["LIBZERO_PATH"] = sys.argv[1]
import libzero as second
assert second.library_path() != path
comms = {}

def give(comm):
    try:
        second.Comm(second._handles.CommHandle(comm._handle.value)).barrier()
    except second.ArgumentError as error:
        print(error.name, error)

def train(package, rank):
    comm = comms[rank] = package.Comm.local(f"copies-{os.getpid()}", rank, 2, late_ms=20000)
    weight = (ctypes.c_float * 1)(2)
    with package.Optimizer(comm, "sgd", lr=1) as optimizer:
        optimizer.register({"w": weight})
        optimizer.step([(ctypes.c_float * 1)(2 * rank)])
    comm.barrier()
    values[rank] = weight[0]

give(first.Comm.solo())
values = {}
threads = [threading.Thread(target=train, args=each) for each in ((first, 0), (second, 1))]
for thread in threads: thread.start()
for thread in threads: thread.join()
give(comms[0])
print(values[0], values[1])
"""


class LoadTest(unittest.TestCase):
    def test_version_and_path_are_of_the_library_that_was_loaded(self) -> None:
        self.assertEqual(libzero.library_version(), libzero.__version__)
        self.assertIn("libzero", libzero.library_path())
        self.assertIn("local", libzero.build_info()["comms"])

    def test_error_lists_each_place_tried(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder) / "libzero.so"
            broken.write_text("not a library")
            with (
                mock.patch.dict(os.environ, {"LIBZERO_PATH": folder}),
                self.assertRaises(libzero.LibraryNotFoundError) as caught,
            ):
                _load.load()
            self.assertIn(f"{broken}: ", str(caught.exception))
        with (
            mock.patch.object(
                _load, "_candidates", lambda: iter(["/nowhere/libzero.so", "libnosuchthing.so"])
            ),
            self.assertRaises(libzero.LibraryNotFoundError) as caught,
        ):
            _load.load()
        self.assertIn("/nowhere/libzero.so: no such file", str(caught.exception))
        self.assertIn("libnosuchthing.so: ", str(caught.exception))

    def test_places_come_in_order(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop("LIBZERO_PATH", None)
            places = list(_load._candidates())
        package = Path(libzero.__file__).resolve().parent
        self.assertEqual(places[0], str(package / "libzero.so"))
        self.assertEqual(places[-2:], ["libzero.so.0.2", "libzero.so"])
        with mock.patch.dict(os.environ, {"LIBZERO_PATH": "/some/libzero.so.9"}):
            self.assertEqual(list(_load._candidates()), ["/some/libzero.so.9"])

    def test_other_library_and_other_versions_are_refused(self) -> None:
        with (
            mock.patch.object(_load, "_candidates", lambda: iter(["libc.so.6"])),
            self.assertRaisesRegex(libzero.LibraryNotFoundError, "has no zero_version"),
        ):
            _load.load()
        for name, other, wanted in (("MAJOR", 7, r"7\.2\.x"), ("MINOR", 9, r"0\.9\.x")):
            with (
                mock.patch.object(_load, name, other),
                mock.patch.object(_load, "_candidates", lambda: iter([libzero.library_path()])),
                self.assertRaisesRegex(
                    libzero.LibraryNotFoundError, rf"is version 0\.2\.0, .* {wanted}"
                ),
            ):
                _load.load()

    def test_library_of_a_newer_system_says_what_it_needs_and_what_to_do(self) -> None:
        content = Path(libzero.library_path()).read_bytes()
        newest = max(re.findall(rb"GLIBC_(2\.\d\d)\0", content))
        with tempfile.TemporaryDirectory() as folder:
            newer = Path(folder) / "libzero.so"
            newer.write_bytes(content.replace(b"GLIBC_" + newest, b"GLIBC_2.99"))
            told = run_python("-m", "libzero", LIBZERO_PATH=folder)
        self.assertEqual(told.returncode, 1)
        self.assertRegex(told.stderr, f"{newer}: needs glibc 2.99, but this machine has glibc 2")
        self.assertIn("`pip install .` in a checkout", told.stderr)
        self.assertIn("LIBZERO_PATH is set, so no other place is searched", told.stderr)

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_library_that_is_another_or_older_is_named_with_its_version(self) -> None:
        for source, words in (
            ("int zero;", "has no zero_version, so it is another library with that name"),
            (
                "int zero_version(void) { return 100; }",
                "is version 0.1.0, but this package needs 0.2",
            ),
        ):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "libzero.so"
                command = ["cc", "-x", "c", "-shared", "-o", str(path), "-"]
                subprocess.run(command, input=source, text=True, check=True)
                told = run_python("-m", "libzero", LIBZERO_PATH=folder)
                self.assertEqual(told.returncode, 1)
                self.assertIn(f"{path}: {words}", told.stderr)

    def test_two_copies_of_the_library_live_in_one_process_and_their_ranks_meet(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(libzero.library_path(), Path(folder) / "libzero.so")
            done = run_python("-c", TWO_COPIES, folder, LIBZERO_PATH=libzero.library_path())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        *refusals, values = done.stdout.splitlines()
        self.assertEqual(values, "1.0 1.0")
        self.assertEqual(len(refusals), 2)
        for refusal in refusals:
            self.assertRegex(refusal, "^ZERO_ERR_ARGUMENT .* belongs to another copy of libzero")

    def test_handles_are_not_copied(self) -> None:
        with libzero.Comm.solo() as comm, libzero.Optimizer(comm, "sgd") as optimizer:
            for handle in (comm, optimizer):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "cannot be copied"):
                        copied(handle)
            self.assertEqual(comm.rank, 0)

    def test_function_of_a_newer_library_says_that_this_one_is_older(self) -> None:
        refuse = _abi._missing("zero_new", "/usr/lib/libzero.so")
        with self.assertRaisesRegex(libzero.ZeroError, "libzero.so has no zero_new"):
            refuse(1, 2)

    def test_module_prints_what_it_found(self) -> None:
        done = run_python("-m", "libzero", LIBZERO_PATH=libzero.library_path())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(libzero.library_path(), done.stdout)
        self.assertIn("comms: solo", done.stdout)
        failed = run_python("-m", "libzero", LIBZERO_PATH="/nowhere/libzero.so")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("/nowhere/libzero.so: no such file", failed.stderr)
        self.assertNotIn("Traceback", failed.stderr)

    def test_module_with_arguments_is_the_program_zero(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "zero"
            program.write_text('#!/bin/sh\necho "$#: $*"\nexit 7\n')
            program.chmod(0o755)
            with mock.patch.object(_program.sysconfig, "get_path", return_value=folder):
                self.assertEqual(_program.find(), str(program))
            nowhere = "import sysconfig; sysconfig.get_path = lambda *_: '/nowhere'; "
            run = nowhere + "from libzero.__main__ import main; sys.exit(main(sys.argv[1:]))"
            done = run_python("-c", "import sys; " + run, "inspect", "a b", "--json", PATH=folder)
            self.assertEqual((done.returncode, done.stdout), (7, "3: inspect a b --json\n"))
            program.unlink()
            lost = run_python("-c", "import sys; " + run, "inspect", "a", PATH=folder)
        self.assertEqual(lost.returncode, 1)
        self.assertRegex(lost.stderr, "^python -m libzero: the program zero is neither in .*CLI11.*\n$")

    def test_module_looks_for_the_program_before_it_imports_torch(self) -> None:
        missing = _program.NotFoundError("the program zero is not here")
        for arguments in (["export", "--to", "torch", "a", "b"], ["import", "--from=dcp", "a", "b"]):
            with (
                mock.patch.object(_program, "find", side_effect=missing),
                mock.patch.dict(sys.modules, {"torch": None}),
                mock.patch("sys.stderr", io.StringIO()) as said,
            ):
                self.assertEqual(__main__.main(arguments), 1)
            self.assertEqual(
                said.getvalue(), "python -m libzero: the program zero is not here\n"
            )


class ErrorTest(unittest.TestCase):
    def test_each_code_has_its_class(self) -> None:
        from libzero._errors import error_of

        for code, kind in (
            (-1, libzero.ArgumentError),
            (-2, libzero.ZeroError),
            (-7, libzero.MismatchError),
            (-8, libzero.PeerError),
            (-9, libzero.CheckpointError),
            (-12, libzero.CheckpointError),
            (-13, libzero.CommError),
            (-18, libzero.CommError),
            (-19, libzero.ZeroError),
            (-20, libzero.NonfiniteError),
            (-12345, libzero.ZeroError),
        ):
            self.assertIs(type(error_of(code, "NAME", "text")), kind)
        self.assertEqual(
            str(error_of(-8, "ZERO_ERR_PEER", "rank 1 failed")), "rank 1 failed (ZERO_ERR_PEER)"
        )
        self.assertTrue(issubclass(libzero.ArgumentError, ValueError))


class LogTest(unittest.TestCase):
    def tearDown(self) -> None:
        libzero.set_log_level(None)

    def test_messages_go_to_logging_with_their_level(self) -> None:
        from libzero import _log

        with self.assertLogs("libzero", logging.INFO) as caught:
            for level in (1, 2, 3):
                _log._callback(None, level, b"rank 1 \xff died")
        self.assertEqual(
            [record.levelname for record in caught.records], ["ERROR", "WARNING", "INFO"]
        )
        self.assertEqual(caught.records[0].getMessage(), "rank 1 \ufffd died")

    def test_level_is_what_c_is_told(self) -> None:
        from libzero import _log

        calls: list[tuple[bool, int]] = []

        class Library:
            def zero_set_log_callback(self, callback: object, _ctx: None, level: int) -> None:
                calls.append((callback is _log._callback, level))

        with mock.patch.object(_log, "lib", Library):
            for level in (logging.DEBUG, logging.WARNING, "Error", logging.CRITICAL, None):
                libzero.set_log_level(level)
        self.assertEqual(calls, [(True, 3), (True, 2), (True, 1), (True, 0), (False, 0)])
        with self.assertRaisesRegex(ValueError, "level 'loud' is unknown; expected one of error"):
            libzero.set_log_level("loud")

    def test_the_logger_shows_that_level_unless_the_program_set_one(self) -> None:
        logger = logging.getLogger("libzero")
        for level in ("warning", "info", None):
            libzero.set_log_level(level)
            shown = logging.NOTSET if level is None else getattr(logging, level.upper())
            self.assertEqual(logger.level, shown)
        self.addCleanup(logger.setLevel, logging.NOTSET)
        logger.setLevel(logging.ERROR)
        libzero.set_log_level("info")
        self.assertEqual(logger.level, logging.ERROR)

    def test_set_and_unset_really_reach_c(self) -> None:
        libzero.set_log_level()
        libzero.set_log_level(None)

    def test_process_that_logs_ends_well(self) -> None:
        done = run_python(
            "-c",
            "import libzero; libzero.set_log_level(); comm = libzero.Comm.solo(); comm.barrier()",
            LIBZERO_PATH=libzero.library_path(),
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
