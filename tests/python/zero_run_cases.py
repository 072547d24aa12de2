# SPDX-License-Identifier: Apache-2.0
"""Provides the program that ZERO_RUN names to the tests of zero-run. Ranks are shell scripts."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
PATIENCE = 30  # seconds until a test stops waiting; no wait should take that long


def zero_run(*arguments, script=None, **options):
    command = [ZERO_RUN, *arguments]
    if script is not None:
        command += ["sh", "-c", script]
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          **options)


def state(pid):
    """Return the state that ps shows: T for a stopped process, X for one that has ended."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # ProcessLookupError if it ends during the read
        return "X"


def alive(pid):
    return state(pid) not in "ZX"


def has_terminals():
    try:
        ends = pty.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def set_size(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class ZeroRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = dict(os.environ, FOLDER=self.folder)

    def start(self, ranks, script, **options):
        """Start zero-run in the background, and wait until every rank has created the file
        ready.<rank>."""
        for rank in range(ranks):
            if os.path.exists(f"{self.folder}/ready.{rank}"):
                os.remove(f"{self.folder}/ready.{rank}")
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([ZERO_RUN, "-n", str(ranks), "sh", "-c", script], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment, **options)
        self.addCleanup(self.end, process)
        self.until(lambda: all(os.path.exists(f"{self.folder}/ready.{r}") for r in range(ranks)))
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.01)

    def read(self, name):
        with open(f"{self.folder}/{name}") as file:
            return file.read()

    def pids(self, name):
        return [int(word) for word in self.read(name).split()]


READY = "touch $FOLDER/ready.$ZERO_RANK; "


@unittest.skipUnless(has_terminals(), "this machine gives no pty")
class TerminalTest(ZeroRunTest):
    """Tests zero-run as a shell starts it: as leader of the foreground process group of a
    terminal."""

    def start_there(self, ranks, script, redirection="", size=None):
        """Start zero-run on a terminal. `size` is (rows, columns)."""
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                if size:
                    set_size(0, *size)
                shell = f'exec "$0" "$@" {redirection}'
                command = ["sh", "-c", shell, ZERO_RUN, "-n", str(ranks), "sh", "-c", script]
                os.execvpe("sh", command, self.environment)
            finally:
                os._exit(99)
        self.addCleanup(os.close, terminal)
        self.waited = False
        self.addCleanup(self.end_there, pid)
        self.until(lambda: all(os.path.exists(f"{self.folder}/ready.{r}") for r in range(ranks)))
        return pid, terminal

    def end_there(self, pid):
        """Kill a zero-run that is left over from a failed test. Its ranks die with it."""
        if not self.waited:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def wait(self, pid, terminal):
        text = b""
        end = time.monotonic() + PATIENCE
        while True:
            self.assertLess(time.monotonic(), end)
            done, status = os.waitpid(pid, os.WNOHANG)
            while select.select([terminal], [], [], 0 if done else 0.1)[0]:
                try:
                    text += os.read(terminal, 65536)
                except OSError:  # no process has the terminal open
                    break
            if done:
                self.waited = True
                return os.waitstatus_to_exitcode(status), text.decode().replace("\r\n", "\n")
