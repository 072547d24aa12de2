# SPDX-License-Identifier: Apache-2.0
"""examples/engines: what others wrote trains to the same numbers with libzero, on one rank and on several."""

import os
import pathlib
import subprocess
import sys
import unittest

ENGINES = pathlib.Path(__file__).resolve().parents[2] / "examples/engines"


HERE = ["one_block", "dlib", "libtorch"]
FETCHED = sorted(path.stem.removeprefix("engine_") for path in ENGINES.glob("engine_*.py"))


def test_of(engine):
    def test(self):
        if engine in FETCHED and "ZERO_TEST_NIGHTLY" not in os.environ:
            self.skipTest("is fetched and built, a minute for all; set ZERO_TEST_NIGHTLY")
        done = subprocess.run([sys.executable, ENGINES / "run.py", engine], capture_output=True, text=True,
                              timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if " not run: " in done.stdout:
            self.skipTest(done.stdout.strip())

    return test


class Engines(unittest.TestCase):
    pass


for name in [*HERE, *FETCHED]:
    setattr(Engines, f"test_{name}_trains_to_the_numbers_of_its_own_optimizer", test_of(name))
