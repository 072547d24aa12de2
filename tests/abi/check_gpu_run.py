# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/check-gpu with stand-ins for the programs of a build, and tests the archive of
scripts/pack-gpu.

usage: check_gpu_run.py SOURCE_ROOT PROGRAM       (PROGRAM: any program that needs only libc)
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
PASSES = "echo '[       OK ]'"
PATIENCE_S = 60


def listed(script: pathlib.Path = SOURCE / "scripts/check-gpu") -> list[list[str]]:
    """Return the group, name and limit of each part."""
    said = subprocess.run([script, "--list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[:3] for line in said.splitlines()]


def needed() -> list[str]:
    command = [SOURCE / "scripts/check-gpu", "--needs"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


class InAFolder(unittest.TestCase):
    def setUp(self) -> None:
        kept = tempfile.TemporaryDirectory(prefix="zero-gpu-run-")
        self.addCleanup(kept.cleanup)
        self.root = pathlib.Path(kept.name).resolve() / "root"
        self.build = self.root / "build"


class CheckGpu(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        (self.root / "scripts").mkdir(parents=True)
        self.script = self.root / "scripts/check-gpu"
        shutil.copy(SOURCE / "scripts/check-gpu", self.script)
        self.tar = self.build / "check-gpu.tar.gz"
        self.environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        for file in needed():
            if file.startswith("build/"):
                self.program(file, PASSES)
            elif file.endswith(".py"):
                (self.root / file).parent.mkdir(parents=True, exist_ok=True)
                (self.root / file).write_text("print('python ran')")
        self.program("bin/compute-sanitizer", PASSES)

    def program(self, name: str, body: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def limit(self, part: str, seconds: int) -> None:
        text, count = re.subn(rf'("\$1" \w+ {part}) \d+', rf"\1 {seconds}", self.script.read_text())
        self.assertEqual(count, 1, part)
        self.script.write_text(text.replace("timeout -k 5", "timeout -k 1"))

    def check(self, *parts: str, status: int = 0) -> str:
        done = subprocess.run([self.script, self.build, *parts], capture_output=True, text=True,
                              env=self.environment, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def brought(self, name: str) -> str:
        with tarfile.open(self.tar) as tar:
            return tar.extractfile(f"check-gpu/{name}").read().decode()

    def table(self) -> list[tuple[str, str]]:
        """Return the name and result of each part that ran, in order."""
        rows = self.brought("table.txt").splitlines()
        return [re.fullmatch(r"(\S+) +(.*?) +\d+ of +\d+ s", row).groups() for row in rows]

    def test_a_machine_without_a_gpu_ends_it_with_77_and_the_reason(self) -> None:
        self.program("build/bench/device_bench", "echo 'skipped: no driver'; exit 77")
        self.assertEqual(self.check(status=77), "skipped: no driver\n")

    def test_all_parts_run_and_benches_before_sanitizers(self) -> None:
        self.check()
        parts = listed()
        self.assertEqual(self.table(), [(name, "passed") for _, name, _ in parts])
        groups = list(dict.fromkeys(group for group, _, _ in parts))
        self.assertEqual(groups, ["tests", "benches", "sanitizers"])

    def test_only_parts_and_groups_that_are_named_run(self) -> None:
        self.check("step", "benches", "memcheck")
        self.assertEqual([name for name, _ in self.table()], ["step", "bench", "peers", "torch", "memcheck"])

    def test_a_part_that_does_not_exist_is_refused_before_any_runs(self) -> None:
        self.assertIn("there is no part stepp;", self.check("step", "stepp", status=2))
        self.assertFalse(self.tar.exists())

    def test_a_part_is_ended_at_its_limit_and_the_next_one_runs(self) -> None:
        for body in ("echo so far; sleep 600", "trap '' TERM; echo so far; while :; do sleep 1; done"):
            with self.subTest(body):
                self.program("build/tests/conformance/device_test", body)
                self.limit("device", 1)
                self.check("device", "step", status=1)
                self.assertEqual(self.table(), [("device", "timed out"), ("step", "passed")])
                self.assertEqual(self.brought("device.log"), "so far\n")

    def test_what_a_program_says_decides_its_result(self) -> None:
        skips = "echo '[  SKIPPED ] 1 test'"
        for body, result, status in (
            ("exit 3", "failed (3)", 1),
            ("exit 124", "failed (124)", 1),  # long before the limit
            ("exit 77", "skipped", 0),
            (skips, "skipped", 0),
            (f"{skips}; {PASSES}", "passed", 0),
            ("echo '[==========] 0 tests from 0 test suites ran.'", "failed (no test)", 1),
        ):
            with self.subTest(body):
                self.program("build/tests/conformance/device_test", body)
                self.check("device", status=status)
                self.assertEqual(self.table(), [("device", result)])

    def test_a_program_that_is_missing_fails_and_a_sanitizer_that_is_missing_is_skipped(self) -> None:
        (self.build / "tests/conformance/device_test").unlink()
        self.program("bin/compute-sanitizer", "exit 127")  # as env does without the program
        self.check("device", "memcheck", status=1)
        self.assertEqual(self.table(), [("device", "failed (no program)"), ("memcheck", "skipped")])

    def test_the_tar_has_the_machine_and_all_logs_and_goes_where_it_is_wanted(self) -> None:
        self.tar = self.root / "all.tar.gz"
        (self.root / "commit").write_text("v0-1-gabcdef\n")
        subprocess.run([self.script, "--tar", self.tar, self.build, "tests", "benches"], env=self.environment,
                       timeout=PATIENCE_S, check=True, capture_output=True)
        with tarfile.open(self.tar) as tar:
            names = {pathlib.PurePath(name).name for name in tar.getnames()}
        logs = {f"{name}.log" for group, name, _ in listed() if group != "sanitizers"}
        self.assertEqual(names, {"check-gpu", "machine.txt", "table.txt"} | logs)
        self.assertIn("v0-1-gabcdef\n", self.brought("machine.txt"))
        self.assertEqual(self.brought("torch.log"), "python ran\n")

    def test_whoever_ends_it_early_gets_what_there_is(self) -> None:
        started = self.root / "started"
        self.program("build/tests/conformance/equivalence_test", f"echo so far; touch {started}; sleep 600")
        running = subprocess.Popen([self.script, self.build], env=self.environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while not started.exists() and time.monotonic() < until:
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(PATIENCE_S), 1)
        self.assertEqual(self.table(), [("device", "passed"), ("step", "cut off")])
        self.assertEqual(self.brought("step.log"), "so far\n")

    def test_nccl_of_python3_is_found_unless_the_caller_says_where_one_is(self) -> None:
        self.program("build/tests/conformance/equivalence_test", 'echo "<$ZERO_NCCL_PATH>"')
        self.environment["PYTHONPATH"] = str(self.root / "site")
        library = self.root / "site/nvidia/nccl/lib/libnccl.so.2"
        library.parent.mkdir(parents=True)
        hidden = self.root / "site/nvidia/__init__.py"  # hides the installed package, and has no nccl
        hidden.touch()
        self.check("nccl-one-rank")
        self.assertEqual(self.brought("nccl-one-rank.log"), "<>\n")
        hidden.unlink()
        library.touch()
        self.check("nccl-one-rank")
        self.assertEqual(self.brought("nccl-one-rank.log"), f"<{library}>\n")
        self.environment["ZERO_NCCL_PATH"] = "/mine/libnccl.so.2"
        self.check("nccl-one-rank")
        self.assertEqual(self.brought("nccl-one-rank.log"), "</mine/libnccl.so.2>\n")


class Parts(unittest.TestCase):
    def test_a_command_of_ten_minutes_is_enough_for_all_but_sanitizers_and_for_each_of_those(self) -> None:
        limits = {group: [int(limit) for other, _, limit in listed() if other == group] for group, _, _ in listed()}
        ordinary = limits["tests"] + limits["benches"]
        for commands in (ordinary, *([limit] for limit in limits["sanitizers"])):
            self.assertLessEqual(sum(commands), 570)  # the rest is for other work
        self.assertLessEqual(sum(ordinary + limits["sanitizers"]), 40 * 60)

    def test_every_figure_that_is_not_measured_names_its_part(self) -> None:
        page = (SOURCE / "bench/results/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\|.*\| ([^|]*) \|$", page.split("## Not measured")[1], re.M)[2:]
        self.assertGreater(len(rows), 5)
        known = {f"`{word}`" for part in listed() for word in part[:2]}
        for row in rows:
            self.assertTrue(row == "several GPUs" or set(row.split(", ")) <= known, row)


class PackGpu(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        for file in needed():
            if file.startswith("build/"):
                (self.root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROGRAM, self.root / file)
        self.folder = self.root / "packed"

    def pack(self, status: int) -> str:
        done = subprocess.run([SOURCE / "scripts/pack-gpu", self.folder, self.build], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(self.folder.exists(), status == 0)
        return done.stdout + done.stderr

    def test_the_folder_has_all_that_is_needed_without_symbols(self) -> None:
        self.pack(status=0)
        self.assertNotIn("no symbols", self.symbols(PROGRAM))
        for file in needed():
            self.assertTrue((self.folder / file).exists(), file)
            if file.startswith("build/"):
                self.assertIn("no symbols", self.symbols(self.folder / file))
        self.assertEqual(listed(self.folder / "scripts/check-gpu"), listed())
        self.assertFalse(list(self.folder.rglob("__pycache__")))

    def test_a_program_that_needs_a_library_of_this_machine_is_refused(self) -> None:
        path = self.build / "bench/peers_bench"
        path.write_bytes(path.read_bytes().replace(b"libc.so.6\0", b"libq.so.6\0"))
        self.assertIn("bench/peers_bench needs libq.so.6", self.pack(status=1))

    def test_a_folder_that_is_too_large_is_refused(self) -> None:
        large = self.root / "large"
        with large.open("wb") as file:
            file.truncate(61 << 20)
        path = self.build / "bench/peers_bench"
        subprocess.run(["objcopy", "--add-section", f".large={large}", path], check=True)
        self.assertIn("more than 62914560", self.pack(status=1))

    @staticmethod
    def symbols(path: pathlib.Path) -> str:
        done = subprocess.run(["nm", path], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=2)
