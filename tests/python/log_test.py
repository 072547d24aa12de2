# SPDX-License-Identifier: Apache-2.0
"""Tests the lines that ZERO_LOG prints to standard error in programs without a log callback."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# An INFO message, and a warning, which loading from a folder without a checkpoint prints.
NOTE = "libzero: rank 0: info: zero_comm_create_env: no launcher, rank 0 of 1"
MADE = "libzero: rank 0: info: zero_comm_create_env: rank 0 of 1 of a solo comm"
SKIPPED = "libzero: rank 0: warning: skipped: '{}/lost+found'"
PROGRAM = """
import ctypes, sys, libzero
exec(sys.argv[2])
optimizer = libzero.Optimizer(libzero.Comm.from_env(), "sgd")
optimizer.register({"w": (ctypes.c_float * 1)()})
try:
    optimizer.load(sys.argv[1])
except libzero.ZeroError:
    pass
"""
JOB = f"late-{os.getpid()}"
ALONE = {key: value for key, value in os.environ.items() if not key.startswith("ZERO_")}


def started(program, *arguments, log=None, **options):
    variables = {} if log is None else {"ZERO_LOG": log}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], env=ALONE | variables | options.pop("env", {}),
                            **options)


def rank(number):
    variables = {"ZERO_RANK": str(number), "ZERO_WORLD_SIZE": "2", "ZERO_JOB": JOB}
    return started("import libzero; libzero.Comm.from_env().barrier()", log="warning", env=variables,
                   stderr=subprocess.PIPE, text=True)


class ZeroLog(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.early = rank(0)  # this process waits while the other tests run
        cls.addClassCleanup(cls.early.communicate)
        cls.addClassCleanup(cls.early.kill)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        (pathlib.Path(self.folder) / "lost+found").mkdir()

    def printed(self, log, first="", folder=None):
        """Return the lines of a program that executes `first`, then creates a comm and loads from `folder`."""
        process = started(PROGRAM, folder or self.folder, first, log=log, stderr=subprocess.PIPE, text=True)
        printed = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, printed)
        return printed.splitlines()

    def test_prints_up_to_the_level_that_is_asked_for(self):
        skipped = SKIPPED.format(self.folder)
        for log, lines in {None: [], "": [], "error": [], "warning": [skipped], "info": [NOTE, MADE, skipped]}.items():
            with self.subTest(log):
                self.assertEqual(self.printed(log), lines)

    def test_of_a_wrong_word_one_line_names_those_there_are(self):
        told = "libzero: rank 0: warning: ZERO_LOG is 'loud'; it must be error, warning or info"
        self.assertEqual(self.printed("loud", "libzero.Comm.from_env()"), [told])

    def test_a_callback_takes_over_until_it_is_taken_away(self):
        quiet = "libzero.set_log_level({}); libzero._log._logger.disabled = True"
        self.assertEqual(self.printed("info", quiet.format("'info'")), [])
        self.assertEqual(self.printed("info", quiet.format("50")), [])
        again = quiet.format("'info'") + "; libzero.Comm.solo(); libzero.set_log_level(None)"
        self.assertEqual(self.printed("info", again), [NOTE, MADE, SKIPPED.format(self.folder)])

    def test_threads_speak_as_the_ranks_of_the_comms_that_they_used_last(self):
        ranks = """
import ctypes, sys, threading, libzero
def rank(number):
    comm = libzero.Comm.local("log", number, 2)
    comm.split(0, -number)  # where this is the other rank
    optimizer = libzero.Optimizer(comm, "sgd")
    optimizer.register({"w": (ctypes.c_float * 4096)()})
    try:
        optimizer.load(sys.argv[1])
    except libzero.ZeroError:
        pass
threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
"""
        process = started(ranks, self.folder, log="info", env={"ZERO_JOB": f"log-{os.getpid()}"},
                          stderr=subprocess.PIPE, text=True)
        made = "libzero: rank {0}: info: zero_comm_create_local: rank {0} of 2 of a local comm"
        self.assertEqual(sorted(process.communicate(timeout=60)[1].splitlines()),
                         [made.format(0), SKIPPED.format(self.folder), made.format(1)])

    def test_what_others_named_ends_no_line_and_steers_no_terminal(self):
        folder = self.folder + "/new\nlibzero: rank 1: error:\x1b[2J\x9b2J"
        (pathlib.Path(folder) / "lost+found").mkdir(parents=True)
        shown = folder.replace("\n", "?").replace("\x1b", "?").replace("\x9b", "?")
        self.assertEqual(self.printed("warning", folder=folder), [SKIPPED.format(shown)])

    def test_each_line_is_one_write(self):
        reader, writer = os.pipe2(os.O_DIRECT)  # each read returns the data of one write
        with open(reader, "rb", buffering=0) as packets:
            process = started(PROGRAM, self.folder, "", log="info", stderr=writer)
            os.close(writer)
            lines = [NOTE, MADE, SKIPPED.format(self.folder)]
            self.assertEqual([packets.read(65536).decode() for _ in range(4)], [*(line + "\n" for line in lines), ""])
        self.assertEqual(process.wait(60), 0)

    def test_lines_that_nobody_takes_are_lost(self):
        for gone in (True, False):
            with self.subTest("the reader has gone" if gone else "the reader is busy"):
                reader, writer = os.pipe2(os.O_NONBLOCK)
                if gone:
                    os.close(reader)
                else:
                    self.addCleanup(os.close, reader)
                    with self.assertRaises(BlockingIOError):
                        while True:
                            os.write(writer, bytes(4096))
                os.set_blocking(writer, True)
                process = started("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)" + PROGRAM,
                                  self.folder, "", log="warning", stderr=writer)
                os.close(writer)
                self.assertEqual(process.wait(60), 0)

    def test_who_comes_late_is_named_after_10_seconds(self):
        self.assertEqual(self.early.stderr.readline(),
                         f"libzero: rank 0: warning: rendezvous '{JOB}': arrival: "
                         "rank 0 has been waiting for 10 s for rank 1\n")
        late = rank(1)
        for process in (late, self.early):
            self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("", 0))


if __name__ == "__main__":
    unittest.main()
