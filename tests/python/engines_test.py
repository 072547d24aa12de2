# SPDX-License-Identifier: Apache-2.0
"""Tests examples/engines. Engines that others wrote train to the same numbers with libzero, on one and on several
ranks. Also tests the other promises of zero_torch.hpp."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ENGINES = HERE.parents[1] / "examples/engines"
spec = importlib.util.spec_from_file_location("engines", ENGINES / "run.py")
engines = importlib.util.module_from_spec(spec)
sys.modules["engines"] = engines
spec.loader.exec_module(engines)


def test_of(engine):
    def test(self):
        # By day, ZeroTorch represents libtorch, whose programs each take 20 s to compile.
        if engine in (*engines.FETCHED, "libtorch") and "ZERO_TEST_NIGHTLY" not in os.environ:
            self.skipTest("takes long to build; set ZERO_TEST_NIGHTLY")
        done = subprocess.run([sys.executable, ENGINES / "run.py", engine], capture_output=True, text=True,
                              timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if " not run: " in done.stdout:
            self.skipTest(done.stdout.strip())

    return test


class Engines(unittest.TestCase):
    pass


for name in engines.ENGINES:
    setattr(Engines, f"test_{name}_trains_to_the_numbers_of_its_own_optimizer", test_of(name))


class ZeroTorch(unittest.TestCase):
    def test_modules_of_libtorch_train_on_two_ranks_as_in_one_process(self):
        try:
            compiler, libraries = engines.torch_compiler()
        except engines.NotHere as reason:
            self.skipTest(str(reason))
        with tempfile.TemporaryDirectory(prefix="zero-torch-") as folder:
            binary = pathlib.Path(folder) / "test"
            engines.run(*compiler, "-Wall", "-Wextra", "-Werror", HERE / "zero_torch_test.cpp", "-o", binary, *libraries,
                        *engines.linked())
            said = engines.run(engines.ZERO_RUN, "-n", 2, binary)
        self.assertEqual(sorted(said.splitlines()), ["[0] sound", "[1] sound"])
