# SPDX-License-Identifier: Apache-2.0
"""Tests ZERO_TRACE, `zero trace` and `zero top`: what the ranks of a job do, and which rank the others wait for."""

import collections
import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ZERO = os.environ.get("ZERO_TOOL", "zero")
ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
RUNS = 100 if os.environ.get("ZERO_TEST_NIGHTLY") == "1" else 3
LATE_MS = 20
# Trains some steps, which rank `slow` begins late. With "split", there is a second comm after half of the steps. With
# "limit", no file grows beyond 16 KiB after the first step.
TRAIN = """
import resource, sys, time, libzero
steps, slow, late_ms, *words = sys.argv[1:]
comm = libzero.Comm.from_env()
memory = libzero.allocate(comm, [libzero.Param("w", shape=(5000,))])
optimizer = libzero.Optimizer(comm, "adamw", max_grad_norm=1.0)
optimizer.register(memory.params)
optimizer.broadcast_params()
for step in range(int(steps)):
    if "split" in words and step == int(steps) // 2:
        group = comm.split(0)
    if comm.rank == int(slow):
        time.sleep(int(late_ms) / 1000)
    optimizer.step()
    if "limit" in words and step == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
"""
ALONE = {key: value for key, value in os.environ.items() if not key.startswith("ZERO_")}


def job(folder, *arguments, ranks=2, env=None):
    command = [ZERO_RUN, "-n", str(ranks), sys.executable, "-c", TRAIN, *map(str, arguments)]
    variables = ALONE | ({} if folder is None else {"ZERO_TRACE": str(folder)}) | (env or {})
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)


def zero(*arguments, status=0):
    done = subprocess.run([ZERO, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (arguments, done)
    return done.stdout if status == 0 else done.stderr


def events_of(path):
    return json.loads(path.read_text())


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.traces = self.folder / "traces"

    def run_job(self, *arguments, **options):
        process = job(self.traces, *arguments, **options)
        printed = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 0, printed)
        return printed

    def start_job(self, *arguments):
        """Start a job that has taken a step, and that ends with the test."""
        process = job(self.traces, *arguments)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        first = self.traces / "rank-0.json"
        while process.poll() is None and not (first.exists() and "zero_step" in first.read_text()):
            time.sleep(0.05)
        self.assertIsNone(process.poll())
        return process

    def test_a_late_rank_is_named_by_top_and_by_the_summary(self):
        for number in range(RUNS):
            slow = number % 3
            with self.subTest(number):
                process = job(self.traces, 60, slow, LATE_MS, ranks=3)
                try:
                    first = self.traces / "rank-0.json"
                    while process.poll() is None and not (first.exists() and "zero_step" in first.read_text()):
                        time.sleep(0.05)
                    looks = zero("top", self.traces, "--interval", 0.6, "--count", 1, "--json").splitlines()
                finally:
                    printed = process.communicate(timeout=120)[1]
                self.assertEqual(process.returncode, 0, printed)
                self.assertEqual([json.loads(look)[0]["slowest"] for look in looks], [slow])
                (comm,) = json.loads(zero("trace", "merge", self.traces, "--json"))["comms"]
                self.assertEqual(comm["slowest"], slow)
                for rank in comm["ranks"]:
                    if rank["rank"] != slow:
                        self.assertEqual(max(rank["waits_for"], key=rank["waits_for"].get), str(slow))
                        events = events_of(self.traces / f"rank-{rank['rank']}.json")
                        self.assertIn(f"wait for rank {slow}: enter", [event["name"] for event in events])
                for file in self.traces.iterdir():
                    file.unlink()

    def test_top_says_that_nothing_has_ended_while_all_wait(self):
        self.start_job(60, 0, 3000)
        shown = zero("top", self.traces, "--interval", "0.5", "--count", "4")
        self.assertIn("nothing has ended since the last update", shown)

    def test_events_have_the_fields_of_the_format_and_lie_in_each_other(self):
        self.run_job(4, 1, 0)
        for rank in (0, 1):
            events = events_of(self.traces / f"rank-{rank}.json")
            threads = collections.defaultdict(list)
            for event in events:
                self.assertIsInstance(event["name"], str)
                self.assertEqual(event["pid"], rank)
                if event["ph"] == "M":
                    self.assertIn("args", event)
                    continue
                self.assertEqual(event["ph"], "X")
                self.assertIn(event["cat"], ("call", "phase", "transfer", "wait"))
                threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
            for spans in threads.values():
                spans.sort(key=lambda span: (span[0], -span[1]))
                around = []
                for begin, end, event in spans:
                    while around and around[-1] <= begin:
                        around.pop()
                    self.assertTrue(not around or end <= around[-1] + 0.001, event)
                    around.append(end)
            found = collections.Counter((event.get("cat"), event["name"]) for event in events)
            self.assertEqual(found["call", "zero_step"], 4)
            for phase in ("enter", "gather", "vote", "apply", "publish"):
                self.assertEqual(found["phase", phase], 4, phase)
            self.assertIn(found["phase", "ready"], (1, 2))  # only in steps that differ from the previous step
            waits = [event for event in events if event["name"].endswith("publish") and event["cat"] == "wait"]
            self.assertEqual(len(waits), 4)
            for event in waits:
                other = event["args"]["rank"]
                self.assertEqual(event["name"], "publish" if other == rank else f"wait for rank {other}: publish")

    def test_what_is_no_trace_is_refused_at_once_and_steers_no_terminal(self):
        file = self.folder / "rank-0.json"
        os.mkfifo(file)  # no process writes to it
        self.assertIn("it is not a file", zero("trace", "merge", self.folder, status=1))
        file.unlink()
        with open(file, "wb") as sparse:
            sparse.truncate(1 << 31)
        self.assertIn("a line is too long", zero("trace", "merge", self.folder, status=1))
        about = {"name": "libzero", "args": {"group": "\33[2J", "rank": 0, "world": 1}}
        event = {"name": "\33[3J", "cat": "phase", "ph": "X", "ts": 1, "dur": 2, "pid": 0, "tid": 0}
        file.write_text(f"[\n{json.dumps(about)},\n{json.dumps(event)}\n]\n", encoding="utf-8")
        said = zero("trace", "merge", self.folder)
        self.assertIn("[3J", said)
        self.assertNotIn("\33", said)

    def test_a_program_that_only_exits_loses_no_event(self):
        self.run_job(2, 0, 0)
        self.assertEqual(events_of(self.traces / "rank-0.json")[-1]["args"], {"dropped": 0})

    def test_no_file_is_written_unasked(self):
        process = job(None, 2, 0, 0, env={"TMPDIR": str(self.folder)})
        process.communicate(timeout=120)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_directory_that_cannot_be_made_is_a_warning_and_training_goes_on(self):
        self.folder.joinpath("file").write_text("mine")
        self.traces = self.folder / "file"
        printed = self.run_job(2, 0, 0, env={"ZERO_LOG": "warning"})
        self.assertIn("warning: ZERO_TRACE: ", printed)
        self.assertIn("ENOTDIR", printed)

    def test_of_a_file_that_cannot_grow_the_rank_is_told_and_what_it_has_is_json(self):
        printed = self.run_job(200, 1, 1, "limit", env={"ZERO_LOG": "warning"})
        for rank in (0, 1):
            self.assertRegex(printed, rf"libzero: rank {rank}: warning: tracing stopped: .*EFBIG")
            self.assertGreaterEqual(len(events_of(self.traces / f"rank-{rank}.json")), 2)
        self.assertIn("steps", zero("trace", "merge", self.traces))

    def test_what_a_killed_job_leaves_is_json_and_can_be_merged(self):
        process = self.start_job(100000, 1, 1)
        time.sleep(0.5)
        process.kill()
        process.wait()
        self.assertGreater(len(events_of(self.traces / "rank-0.json")), 10)
        self.assertIn("steps", zero("trace", "merge", self.traces))
        self.assertIn("have ended", zero("top", self.traces, status=1))

    def test_a_new_job_takes_the_place_of_the_last_one(self):
        self.run_job(2, 0, 0, ranks=3)
        self.run_job(2, 0, 0)
        (comm,) = json.loads(zero("trace", "merge", self.traces, "--json"))["comms"]
        self.assertEqual([rank["rank"] for rank in comm["ranks"]], [0, 1])

    def test_merge_makes_one_file_of_all_events(self):
        self.run_job(3, 1, 5)
        one = self.folder / "one.json"
        self.assertIn("is the slowest", zero("trace", "merge", self.traces, "-o", one))
        events = [event for rank in (0, 1) for event in events_of(self.traces / f"rank-{rank}.json")]
        self.assertEqual(events_of(one), events)
        self.assertIn("--replace", zero("trace", "merge", self.traces, "-o", one, status=1))
        zero("trace", "merge", self.traces, "-o", one, "--replace")
        own = self.traces / "rank-0.json"
        before = own.read_bytes()
        self.assertIn("has the name of a rank's own", zero("trace", "merge", self.traces, "-o", own, "--replace", status=1))
        self.assertEqual(own.read_bytes(), before)

    def test_the_summary_names_the_longest_waits(self):
        self.traces.mkdir()
        events = [{"name": "libzero", "ph": "M", "args": {"group": "", "rank": 0, "world": 6}}]
        events += [{"cat": "wait", "ph": "X", "ts": 1, "dur": 1000 * dur, "args": {"rank": rank}}
                   for rank, dur in enumerate((99, 1, 5, 3, 4, 2))]
        lines = ",\n".join(json.dumps(event) for event in events)
        (self.traces / "rank-0.json").write_text(f"[\n{lines}\n]\n")
        self.assertIn("  rank 2 5.00 ms, rank 4 4.00 ms, rank 3 3.00 ms, others 3.00 ms  ",
                      zero("trace", "merge", self.traces))

    def test_what_is_no_trace_is_named(self):
        self.traces.mkdir()
        self.assertIn("has no traces", zero("trace", "merge", self.traces, status=1))
        for number, bytes_ in enumerate([b"", b"{}\n", b"[\n[]\n", b"[\n{\"name\":\"libzero\"}\n]\n", b"\xff" * 100000]):
            with self.subTest(number):
                (self.traces / "rank-0.json").write_bytes(bytes_)
                self.assertIn("rank-0.json' is not a libzero trace", zero("trace", "merge", self.traces, status=1))
        self.assertIn("has no traces", zero("top", self.folder / "nowhere", status=1))
        self.assertIn("there is no process 4194305", zero("top", 1 << 22 | 1, status=1))
        self.assertIn("is not writing a trace", zero("top", os.getpid(), status=1))

    def test_top_finds_the_traces_of_a_process_and_ends_by_ctrl_c(self):
        self.start_job(100000, 1, LATE_MS)
        arguments = [event["args"] for event in events_of(self.traces / "rank-1.json") if event["name"] == "libzero"]
        (pid,) = [one["process"] for one in arguments]
        top = subprocess.Popen([ZERO, "top", str(pid), "--interval", "0.3"], stdout=subprocess.PIPE, text=True)
        self.assertIn("rank 1 holds up the others most", top.stdout.readline())
        self.assertIn("steps/s", top.stdout.readline())
        top.send_signal(signal.SIGINT)
        top.communicate(timeout=60)
        self.assertEqual(top.returncode, 0)

    def test_top_counts_no_step_twice_when_a_comm_is_added(self):
        steps = 300
        self.start_job(steps, 1, 5, "split")
        looks = [json.loads(line) for line in zero("top", self.traces, "--interval", 0.2, "--json").splitlines()]
        self.assertTrue(any(len(comms) == 2 for comms in looks), looks)
        counted = sum(rank["steps"] for (first, *_) in looks for rank in first["ranks"] if rank["rank"] == 0)
        self.assertGreater(counted, steps // 2)
        self.assertLess(counted, steps)

    def test_top_keeps_to_a_narrow_terminal(self):
        self.start_job(100000, 1, LATE_MS)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 4, 20, 0, 0))
        top = subprocess.Popen([ZERO, "top", self.traces, "--interval", "0.2", "--count", "2"], stdout=theirs)
        self.assertEqual(top.wait(timeout=60), 0)
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        os.close(ours)
        first, second = shown.split("\033[3A\033[J")
        for screen in (first, second):
            lines = screen.split("\r\n")[:-1]
            self.assertEqual(len(lines), 3)
            self.assertLess(max(map(len, lines)), 20)


if __name__ == "__main__":
    unittest.main()
