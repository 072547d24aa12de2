# SPDX-License-Identifier: Apache-2.0
"""Tests the output of ranks under zero-run, and when it appears: complete lines, incomplete lines,
and terminals."""

import os
import re
import select
import signal
import subprocess
import sys
import time
import unittest

from zero_run_cases import (PATIENCE, READY, ZERO_RUN, TerminalTest, ZeroRunTest, alive, set_size,
                            zero_run)

class Screen:
    """Emulates the functions of a terminal that zero-run and progress bars use."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column, self.wraps = columns, [""], 0, 0, True

    def show(self, text):
        for match in re.finditer(r"\x1b\[(\??)(\d*)([A-Za-z])|[\s\S]", text):
            private, number, kind = match.groups()
            if kind == "A":
                self.row -= int(number or 1)
            elif kind == "J":
                self.rows[self.row:] = [self.rows[self.row][:self.column]]
            elif kind in ("h", "l") and private and number == "7":
                self.wraps = kind == "h"
            elif kind is None:
                self.put(match[0])
        return self.rows

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            self.rows += [""] * (self.row == len(self.rows))
        elif self.column < self.columns or not self.wraps:
            column = min(self.column, self.columns - 1)
            row = self.rows[self.row].ljust(column)
            self.rows[self.row] = row[:column] + character + row[column + 1:]
            self.column = column + 1
        else:
            for one in "\r\n" + character:
                self.put(one)


class Output(ZeroRunTest):
    def test_each_line_of_both_streams_has_its_rank_and_its_stream(self):
        done = zero_run("-n", "2", script="echo out; echo err >&2; echo; echo more")
        for rank in "01":
            lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}]")]
            self.assertEqual(lines, [f"[{rank}] out", f"[{rank}] ", f"[{rank}] more"])
        self.assertEqual(sorted(done.stderr.splitlines()), ["[0] err", "[1] err"])

    def test_a_last_line_without_end_is_shown_on_a_line_of_its_own(self):
        done = zero_run("-n", "2", script="echo whole; printf part")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[0] part", "[0] whole", "[1] part", "[1] whole"])

    def test_many_lines_are_whole_and_in_order_even_with_both_streams_in_one(self):
        lines, ranks = 5000, 4

        def length(number):
            return number % 300 if number % 97 else 9000  # more than a pipe accepts at once

        write = (f"import sys\nfor i in range({lines}):\n"
                 "  stream = (sys.stdout, sys.stderr)[i // 7 % 2]\n"
                 "  stream.write(f'{i} ' + 'x' * (i % 300 if i % 97 else 9000) + '\\n')\n"
                 "  i % 50 or stream.flush()\n")
        done = subprocess.run([ZERO_RUN, "-n", str(ranks), sys.executable, "-c", write], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=True)
        seen = {(rank, stream): [] for rank in range(ranks) for stream in range(2)}
        for line in done.stdout.splitlines():
            match = re.fullmatch(r"\[(\d)\] (\d+) (x*)", line)
            self.assertIsNotNone(match, line)
            rank, number = int(match[1]), int(match[2])
            self.assertEqual(len(match[3]), length(number))
            seen[rank, number // 7 % 2].append(number)
        for (_, stream), numbers in seen.items():
            self.assertEqual(numbers, [i for i in range(lines) if i // 7 % 2 == stream])

    def test_lines_longer_than_a_pipe_stay_whole(self):
        done = zero_run("-n", "2", sys.executable, "-c", "print('y' * 1000000)")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"[{rank}] " + "y" * 1000000 for rank in range(2)])

    def test_no_prefix_leaves_output_alone(self):
        done = zero_run("--no-prefix", "-n", "1", script="printf 'a\\nb'; printf c >&2")
        self.assertEqual((done.stdout, done.stderr), ("a\nb", "c"))

    def test_a_reader_that_goes_ends_the_job(self):
        done = subprocess.run(["bash", "-c", f"set -o pipefail; '{ZERO_RUN}' -n 2 yes | head -n 1"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 128 + signal.SIGPIPE)
        self.assertEqual(len(done.stdout.splitlines()), 1)

    def test_a_reader_that_is_slow_does_not_stop_signals(self):
        process = self.start(1, "echo $$ > $FOLDER/pid; " + READY + "exec yes")
        time.sleep(0.3)  # the pipes fill because no process reads them
        process.send_signal(signal.SIGTERM)
        self.until(lambda: not alive(self.pids("pid")[0]))
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_closed_standard_streams_are_no_trouble(self):
        done = subprocess.run(["sh", "-c", f"'{ZERO_RUN}' -n 2 sh -c 'echo a; echo b >&2' <&- >&-"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(sorted(done.stderr.splitlines()), ["[0] b", "[1] b"])
        self.assertEqual(done.returncode, 0)


# The ranks of these tests wait until the test has created a file.
WAIT = "wait_for() { until [ -e $FOLDER/$1 ]; do sleep 0.02; done; }; "


class Waiting:
    """For tests that read while ranks wait."""

    def go(self, name):
        open(f"{self.folder}/{name}", "w").close()

    def read_some(self, fd, reason):
        self.assertTrue(select.select([fd], [], [], PATIENCE)[0], reason)
        return os.read(fd, 65536).decode()

    def read_until(self, fd, text, words):
        """Return `text` and the following output of fd, until that ends with `words`."""
        while not text.endswith(words):
            text += self.read_some(fd, text)
        return text


class Unfinished(Waiting, ZeroRunTest):
    def begin(self, ranks, script, **options):
        process = subprocess.Popen([ZERO_RUN, "-n", str(ranks), *script], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **options)
        self.addCleanup(self.end, process)
        return process

    def test_lines_appear_while_their_rank_goes_on_and_other_ranks_do_not_tear_them(self):
        process = self.begin(2, ["sh", "-c", WAIT + """
            if [ $ZERO_RANK = 1 ]; then wait_for 2; echo other; wait_for 4; exit; fi
            printf '\\r10%%'; wait_for 1; printf '\\r20%%\\r30%%'; wait_for 3; printf ...
            wait_for 4; printf ' end\\r\\nlast'"""])
        fd, text = process.stdout.fileno(), ""
        for number, more in enumerate(["\r[0] 10%", "\r[0] 20%\r[0] 30%", "\n[1] other\n",
                                       "[0] ...", " end\r\n[0] last\n"]):
            expected = text + more
            text = self.read_until(fd, text, more)
            self.assertEqual(text, expected)
            self.go(number + 1)

    def test_prints_of_python_appear_at_once(self):
        del self.environment["PYTHONUNBUFFERED"]
        process = self.begin(1, [sys.executable, "-c", "import os, time\nprint('step', 1)\n"
                             f"while not os.path.exists('{self.folder}/go'): time.sleep(0.02)"])
        self.assertEqual(self.read_until(process.stdout.fileno(), "", "\n"), "[0] step 1\n")
        self.go("go")

    def test_python_is_left_alone_where_the_user_has_decided(self):
        for value in ("", "2"):
            done = zero_run("-n", "1", script="echo ${PYTHONUNBUFFERED-none}.",
                            env=dict(os.environ, PYTHONUNBUFFERED=value))
            self.assertEqual(done.stdout, f"[0] {value}.\n")


class Terminals(Waiting, TerminalTest):
    def test_ranks_have_a_terminal_less_the_prefix_that_follows_the_size_of_zero_runs(self):
        look = "test -t 1 && stty size <&1; test -t 2 || echo apart >&2; "
        pid, terminal = self.start_there(2, "trap 'stty size <&1; stop=1' WINCH; " + look + READY
                                         + "until [ -n \"$stop\" ]; do sleep 0.02; done",
                                         redirection="2>$FOLDER/errors", size=(30, 90))
        text = self.read_until(terminal, "", "\r\n")
        set_size(terminal, 20, 50)
        code, more = self.wait(pid, terminal)
        lines = sorted((text.replace("\r\n", "\n") + more).splitlines())
        self.assertEqual(lines, ["[0] 20 46", "[0] 30 86", "[1] 20 46", "[1] 30 86"])
        self.assertEqual(sorted(self.read("errors").splitlines()), ["[0] apart", "[1] apart"])
        self.assertEqual(code, 0)

    def test_each_rank_keeps_a_row_for_its_bar_below_what_is_finished(self):
        self.environment["TERM"] = "xterm"
        pid, terminal = self.start_there(3, WAIT + READY + """
            case $ZERO_RANK in
            2) wait_for 2; echo line; printf '\\033[1mbold\\033[0m and more\\n'; wait_for 4;;
            *) wait_for $ZERO_RANK; printf "\\r$ZERO_RANK.10%%"; wait_for 3
               printf "\\r$ZERO_RANK.20%%"; wait_for 4; printf "\\r$ZERO_RANK.end\\n";;
            esac""", size=(10, 24))
        text, lines = "", ["[2] line", "[2] bold and more"]
        for number, rows in enumerate([["[0] 0.10%"], ["[0] 0.10%", "[1] 1.10%"],
                                       [*lines, "[0] 0.10%", "[1] 1.10%"],
                                       [*lines, "[0] 0.20%", "[1] 1.20%"]]):
            self.go(number)
            while self.shown(text, 24) != rows:
                text += self.read_some(terminal, (self.shown(text, 24), rows, text))
        self.go(4)
        text += self.wait(pid, terminal)[1]
        self.assertEqual(self.shown(text, 24)[:2], lines)
        self.assertEqual(sorted(self.shown(text, 24)[2:]), ["", "[0] 0.end", "[1] 1.end"])

    @staticmethod
    def shown(text, columns):
        text = re.sub(r"\x1b\[\d*m", "", text)
        return [row.rstrip() for row in Screen(columns).show(text.replace("\n", "\r\n"))]

    def test_an_answer_that_is_typed_ends_the_line_of_its_question(self):
        pid, terminal = self.start_there(1, READY + "printf 'Name? '; read name; echo hello $name")
        text = self.read_until(terminal, "", "[0] Name? ")
        os.write(terminal, b"you\n")
        self.assertEqual(text + self.wait(pid, terminal)[1], "[0] Name? you\n[0] hello you\n")

    def test_bytes_are_not_changed_and_none_is_lost_at_the_end(self):
        write = "import os; os.write(1, (bytes(set(range(256)) - set(b'\\r\\n')) + b'\\n') * 400)"
        pid, terminal = self.start_there(2, READY + f"exec '{sys.executable}' -S -c \"{write}\"")
        data = b""
        while True:
            try:
                data += os.read(terminal, 65536)
            except OSError:
                break
        line = bytes(set(range(256)) - set(b"\r\n")) + b"\r\n"
        self.assertEqual(sorted(data.split(b"\n")),
                         sorted(([b"[0] " + line[:-1], b"[1] " + line[:-1]] * 400) + [b""]))


if __name__ == "__main__":
    unittest.main()
