# SPDX-License-Identifier: Apache-2.0
"""Tests char_lm in every language, compiled as examples/README.md describes. From the same seed, all languages give
bitwise identical results, and each continues from a checkpoint of another. The small program in Go and Zig gives
bitwise the same result as the one in C."""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
LIBRARIES = os.environ.get("LIBZERO_LIB_DIR", str(ROOT / "build/src"))
LANGUAGES = ("c", "fortran", "julia", "python", "rust")
BATCH = 9  # none of the numbers of ranks below divides it evenly

# This folder is removed when the program ends, because module cleanups run when the first of many modules ends.
folder = tempfile.TemporaryDirectory(prefix="zero-examples-")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                          check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def needs(program):
    found = shutil.which(program)
    if found is None:
        raise unittest.SkipTest(f"{program} is not here")
    return found


def build_c():
    binary = pathlib.Path(folder.name) / "c"
    sources = (EXAMPLES / "c" / name for name in ("char_lm.c", "arena_view.c"))
    run(needs(os.environ.get("CC", "cc")), "-O2", "-ffp-contract=off", "-I", ROOT / "include", *sources,
        "-o", binary, "-L", LIBRARIES, "-lzero", "-lm", "-ldl")
    return [binary]


def build_minimal():
    binary = pathlib.Path(folder.name) / "minimal"
    run(needs(os.environ.get("CC", "cc")), "-O2", "-I", ROOT / "include", EXAMPLES / "c/minimal.c", "-o", binary, "-L", LIBRARIES,
        "-lzero")
    return [binary]


def build_fortran():
    compiler, output = needs("gfortran"), pathlib.Path(folder.name)
    module = output / "libzero.f90"
    with module.open("w", encoding="utf-8") as file:
        subprocess.run([sys.executable, ROOT / "scripts/fortran_module.py"], stdout=file, check=True)
    run(compiler, "-std=f2018", "-Wall", "-Wextra", "-Werror", "-O2", "-fwrapv", "-ffp-contract=off", "-J", output,
        module, EXAMPLES / "fortran/char_lm.f90", "-o", output / "fortran", "-L", LIBRARIES, "-lzero")
    return [output / "fortran"]


def build_go():
    binary = pathlib.Path(folder.name) / "go"
    run(needs("go"), "build", "-o", binary, EXAMPLES / "go/minimal.go",
        env=os.environ | {"CGO_CFLAGS": f"-I{ROOT / 'include'}", "CGO_LDFLAGS": f"-L{LIBRARIES}"})
    return [binary]


def build_julia():
    return [needs("julia"), "--startup-file=no", EXAMPLES / "julia/char_lm.jl"]


def build_python():
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True, check=False).returncode:
        raise unittest.SkipTest("numpy is not here")
    return [sys.executable, EXAMPLES / "python/char_lm.py"]


def build_rust():
    cargo = needs("cargo")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "bindings/rust/target"))
    run(cargo, "build", "--quiet", "--offline", "--release", "--example", "char_lm", cwd=ROOT / "bindings/rust")
    return [target / "release/examples/char_lm"]


def build_zig():
    compiler, output = needs("zig"), pathlib.Path(folder.name)
    module = output / "zero.zig"
    module.write_text(run(compiler, "translate-c", "-lc", ROOT / "include/zero.h"), encoding="utf-8")
    run(compiler, "build-exe", "-O", "ReleaseFast", "--dep", "zero", f"-Mroot={EXAMPLES / 'zig/minimal.zig'}",
        f"-Mzero={module}", f"-femit-bin={output / 'zig'}", "-lc", "-L", LIBRARIES, "-lzero")
    return [output / "zig"]


@functools.cache
def command_of(language):
    """Return the command that starts the program. Skips the test if the language is not installed."""
    return globals()[f"build_{language}"]()


def said(output):
    """Return the printed losses and checksums, without the rank that zero-run prints before them."""
    return re.findall(r"(?:step|checksum)=.*", output)


def train(language, ranks, steps, *options):
    return said(run(ZERO_RUN, "-n", ranks, *command_of(language), "--text", ROOT / "LICENSE", "--batch", BATCH,
                    "--progress", "--steps", steps, *options))


@functools.cache
def reference(worlds, steps):
    """Return the output of the same training in one process without libzero."""
    return said(run(*command_of("c"), "--text", ROOT / "LICENSE", "--batch", BATCH, "--progress", "--steps", steps,
                    "--reference", worlds))


class ExamplesTest(unittest.TestCase):
    def ends_with_the_bits_of_one_process(self, language):
        wanted = reference("2", 5)
        self.assertRegex(wanted[-1], "^checksum=[0-9A-F]{16}$")
        self.assertEqual(len(wanted), 6)
        self.assertEqual(train(language, 2, 5), wanted)

    def test_c_ends_with_the_bits_of_one_process(self):
        self.ends_with_the_bits_of_one_process("c")

    def test_fortran_ends_with_the_bits_of_one_process(self):
        self.ends_with_the_bits_of_one_process("fortran")

    def test_julia_ends_with_the_bits_of_one_process(self):
        self.ends_with_the_bits_of_one_process("julia")

    def test_python_ends_with_the_bits_of_one_process(self):
        self.ends_with_the_bits_of_one_process("python")

    def test_rust_ends_with_the_bits_of_one_process(self):
        self.ends_with_the_bits_of_one_process("rust")

    def ends_as_the_small_program_in_c(self, language):
        with tempfile.TemporaryDirectory() as run_folder:
            printed = [said(run(ZERO_RUN, "-n", 2, *command_of(of), "saved", cwd=run_folder)) for of in (language, "minimal")]
        self.assertRegex(printed[1][0], "^checksum=[0-9A-F]{16}$")
        self.assertEqual(*printed)

    def test_go_ends_as_the_small_program_in_c(self):
        self.ends_as_the_small_program_in_c("go")

    def test_zig_ends_as_the_small_program_in_c(self):
        self.ends_as_the_small_program_in_c("zig")

    def says_whom_a_rank_waits_for(self, language):
        """The other rank is stopped, and continues after the message has been printed."""
        with tempfile.TemporaryDirectory() as run_folder:
            paths = [pathlib.Path(run_folder) / f"{stream}-{rank}" for rank in range(2) for stream in ("out", "err")]
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(path.open("wb")) for path in paths]
                job = {"ZERO_WORLD_SIZE": "2", "ZERO_JOB": f"examples-{os.getpid()}-{language}"}
                ranks = [
                    subprocess.Popen([*map(str, command_of(language)), "--text", str(ROOT / "LICENSE"), "--batch", "2",
                                      "--progress", "--steps", "2000"], stdout=files[2 * rank], stderr=files[2 * rank + 1],
                                     env=os.environ | job | {"ZERO_RANK": str(rank), "ZERO_LOCAL_RANK": str(rank)})
                    for rank in range(2)
                ]
                try:
                    self.wait_for(ranks[0], lambda: "step=" in paths[0].read_text())
                    ranks[1].send_signal(signal.SIGSTOP)
                    self.wait_for(ranks[0], lambda: "has been waiting for 10 s for rank 1" in paths[1].read_text())
                finally:
                    for rank in ranks:
                        rank.kill()
                        rank.wait()

    def wait_for(self, process, happened):
        end = time.monotonic() + 120
        while not happened():
            self.assertIsNone(process.poll(), "it ended")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_a_rank_that_waits_says_for_whom(self):
        self.says_whom_a_rank_waits_for("c")

    def test_a_rank_that_waits_says_for_whom_in_every_language(self):
        if "ZERO_TEST_NIGHTLY" not in os.environ:
            self.skipTest("takes 10 s for each; set ZERO_TEST_NIGHTLY")
        for language in ("fortran", "python", "rust"):
            with self.subTest(language):
                self.says_whom_a_rank_waits_for(language)

    def test_every_language_goes_on_from_another_ones_checkpoint(self):
        present = []
        for language in LANGUAGES:
            try:
                command_of(language)
                present.append(language)
            except unittest.SkipTest:
                pass
        if len(present) < 2:
            self.skipTest(f"there is {' and '.join(present) or 'nothing'} alone")
        steps, worlds, checkpoint = 0, [], None
        with tempfile.TemporaryDirectory() as run_folder:
            for number, language in enumerate([*present, present[0]]):
                ranks, steps, found = 2 + number % 2, steps + 2, checkpoint
                worlds.append(f"{ranks}:{steps}")
                checkpoint = pathlib.Path(run_folder) / f"{number}-{language}"
                options = ["--save", checkpoint] + (["--load", found] if found else [])
                printed = train(language, ranks, steps, *options)
                # The reference does not print that a rank starts again.
                wanted = reference(",".join(worlds), steps)
                self.assertEqual(printed[-3:], wanted[-3:], f"{language}, after {steps} steps")


if __name__ == "__main__":
    unittest.main()
