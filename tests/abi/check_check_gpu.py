# SPDX-License-Identifier: Apache-2.0
"""scripts/check-gpu runs the parts that are asked for, ends each at its limit, and keeps what all of them
said in one file: tried with programs that only say their names, as there is no GPU here.

usage: check_check_gpu.py ROOT
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SANITIZED = ["memcheck", "memcheck-step", "racecheck-step"]
PROGRAMS = ["bench/device_bench", "bench/peers_bench", "examples/c/char_lm"] + [
    f"tests/conformance/{name}_test"
    for name in ("device", "device_step", "device_processes", "device_capture")
]


def script(path: pathlib.Path, lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)


class CheckGpu(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.build = self.folder / "build"
        for program in PROGRAMS:
            script(self.build / program, 'echo "this is $0 $*, NCCL $ZERO_NCCL_PATH"')
        for tool in ("nvidia-smi", "compute-sanitizer"):
            script(self.folder / "bin" / tool, "echo here")
        package = self.folder / "packages" / "nvidia" / "nccl"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()

    def run_parts(self, *parts: str) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ, PYTHONPATH=str(self.folder / "packages"))
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        environment.pop("ZERO_NCCL_PATH", None)
        command = [ROOT / "scripts/check-gpu", "--out", self.folder / "all.tar.gz", self.build, *parts]
        return subprocess.run(command, text=True, capture_output=True, env=environment, check=False)

    def said(self) -> dict[str, str]:
        with tarfile.open(self.folder / "all.tar.gz") as tar:
            files = [one for one in tar.getmembers() if one.isfile()]
            return {pathlib.Path(one.name).name: tar.extractfile(one).read().decode() for one in files}

    def table(self) -> dict[str, str]:
        rows = self.said()["table.txt"].splitlines()
        return {row.split()[0]: row[21:37].strip() for row in rows}

    def test_all_parts_run_benches_before_sanitizers_and_all_is_in_one_file(self) -> None:
        self.run_parts()
        names = list(self.table())
        self.assertEqual(names[-3:], SANITIZED)
        self.assertEqual(names[-6:-3], ["bench", "peers", "torch"])
        self.assertEqual(set(self.said()), {f"{name}.log" for name in names} | {"table.txt"})

    def test_only_what_is_chosen_runs(self) -> None:
        ended = self.run_parts("peers", "sanitizers")
        self.assertEqual(list(self.table()), ["peers", *SANITIZED])
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("peers_bench", ended.stdout)

    def test_a_part_that_is_not_known_is_refused_before_any_runs(self) -> None:
        ended = self.run_parts("peers", "benchs")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("there is no part 'benchs'", ended.stderr)
        self.assertFalse((self.folder / "all.tar.gz").exists())

    def test_a_part_ends_at_its_limit_and_the_others_go_on(self) -> None:
        real = subprocess.run(["sh", "-c", "command -v timeout"], text=True, capture_output=True, check=True)
        script(self.folder / "bin/timeout", f'shift 3; exec {real.stdout.strip()} 1 "$@"')  # for all parts
        script(self.build / "bench/device_bench", '[ "$1" = --look ] || exec sleep 60')
        ended = self.run_parts("benches")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(self.table()["bench"], "timed out")
        self.assertEqual(self.table()["peers"], "passed")

    def test_what_fails_and_what_is_skipped_is_told_apart(self) -> None:
        script(self.build / "tests/conformance/device_step_test", "exit 3")
        script(self.build / "tests/conformance/device_test", "echo '[  SKIPPED ] all'")
        script(self.build / "tests/conformance/device_capture_test", "echo '[==========] 0 tests ran'")
        self.assertEqual(self.run_parts("step", "device", "captured").returncode, 1)
        self.assertEqual(
            self.table(), {"device": "skipped", "step": "failed (3)", "captured": "failed (no test)"}
        )

    def test_nccl_is_found_in_the_package_of_python3(self) -> None:
        self.run_parts("nccl-one-rank")
        self.assertIn("packages/nvidia/nccl/lib/libnccl.so.2", self.said()["nccl-one-rank.log"])

    def test_without_a_gpu_nothing_runs(self) -> None:
        script(self.build / "bench/device_bench", "exit 77")
        self.assertEqual(self.run_parts().returncode, 77)
        self.assertFalse((self.folder / "all.tar.gz").exists())

    def test_each_group_ends_within_ten_minutes(self) -> None:
        listed = subprocess.run(
            [ROOT / "scripts/check-gpu", "--list"], text=True, capture_output=True, check=True
        )
        seconds: dict[str, int] = {}
        for row in listed.stdout.splitlines():
            group, limit = row.split()[:2]
            seconds[group] = seconds.get(group, 0) + int(limit)
        self.assertEqual(set(seconds), {"tests", "benches", "sanitizers"})
        self.assertLess(max(seconds.values()), 600)


unittest.main()
