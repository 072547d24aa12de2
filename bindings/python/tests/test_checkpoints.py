# SPDX-License-Identifier: Apache-2.0
"""Tests that a folder of checkpoints is listed and pruned."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path

from libzero import ArgumentError, Comm, Optimizer, list_checkpoints, prune_checkpoints
from support import needs_numpy


@needs_numpy
class CheckpointsTest(unittest.TestCase):
    def test_a_folder_is_listed_newest_first_and_pruned(self) -> None:
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run")
            self.assertEqual(list_checkpoints(run), [])
            optimizer = Optimizer(Comm.solo(), "sgd")
            optimizer.register({"w": np.ones(3, np.float32)})
            for step in range(1, 5):
                optimizer.step({"w": np.ones(3, np.float32)})
                optimizer.save(run / f"schritt-\u00e4-{step}")
            found = list_checkpoints(run)
            self.assertEqual([one.step for one in found], [4, 3, 2, 1])
            self.assertEqual(found[0].name, "schritt-\u00e4-4")
            self.assertEqual(found[0].world, 1)
            size = sum(file.stat().st_size for file in (run / found[0].name).iterdir())
            self.assertEqual(found[0].bytes, size)
            self.assertEqual(prune_checkpoints(str(run), keep_last=1, keep_every=3), 2)
            self.assertEqual([one.step for one in list_checkpoints(run)], [4, 3])
            self.assertEqual(sorted(os.listdir(run)), ["schritt-\u00e4-3", "schritt-\u00e4-4"])
            with self.assertRaisesRegex(ArgumentError, "^prune_checkpoints: keep_last is 0"):
                prune_checkpoints(run, 0)
            with self.assertRaisesRegex(ValueError, "NUL"):
                list_checkpoints("a\0")


if __name__ == "__main__":
    unittest.main()
