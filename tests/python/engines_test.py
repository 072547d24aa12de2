# SPDX-License-Identifier: Apache-2.0
"""examples/engines: what others wrote trains to the same numbers with libzero, on one rank and on several."""

import pathlib
import subprocess
import sys
import sys
import unittest

ENGINES = pathlib.Path(__file__).resolve().parents[2] / "examples/engines"


def test_of(engine):
    def test(self):
        done = subprocess.run([sys.executable, ENGINES / "run.py", engine], capture_output=True, text=True,
                              timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if " not run: " in done.stdout:
            self.skipTest(done.stdout.strip())

    return test


class Engines(unittest.TestCase):
    pass


for name in ["one_block", "dlib", "libtorch", *sorted(path.stem[7:] for path in ENGINES.glob("engine_*.py"))]:
    setattr(Engines, f"test_{name}_trains_to_the_numbers_of_its_own_optimizer", test_of(name))
