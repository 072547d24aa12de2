# SPDX-License-Identifier: Apache-2.0
"""Tests that every rank can read a rank's own bytes from a checkpoint."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any

from libzero import ArgumentError, Comm, Optimizer
from support import needs_numpy, run_ranks


def optimizer_of(comm: Comm) -> Optimizer:
    import numpy as np

    optimizer = Optimizer(comm)
    optimizer.register({"w": np.ones(3000, np.float32)})
    return optimizer


@needs_numpy
class ExtrasTest(unittest.TestCase):
    def test_every_rank_reads_what_each_rank_set(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            directory = os.path.join(folder, "step-0")

            def save(comm: Comm) -> None:
                optimizer = optimizer_of(comm)
                optimizer.state_extra_set("zufällig", b"\0" + bytes([comm.rank]))
                if comm.rank == 0:
                    optimizer.state_extra_set("config", bytearray(b"{}"))
                    optimizer.state_extra_set("gone", memoryview(b"x"))
                    optimizer.state_extra_set("gone", None)
                self.assertEqual(optimizer.state_extra_list(), [])
                optimizer.save(directory)

            def load(comm: Comm) -> Any:
                optimizer = optimizer_of(comm)
                optimizer.load(directory)
                own = optimizer.state_extra_get("zufällig") if comm.rank < 2 else None
                listed = optimizer.state_extra_list()
                return own, {place: optimizer.state_extra_get(place[1], place[0]) for place in listed}

            run_ranks(2, save)
            wanted = {(0, "config"): b"{}", (0, "zufällig"): b"\0\0", (1, "zufällig"): b"\0\1"}
            for rank, (own, found) in enumerate(run_ranks(3, load)):
                self.assertEqual(own, (b"\0\0", b"\0\1", None)[rank])
                self.assertEqual(found, wanted)

    def test_what_does_not_fit_is_refused(self) -> None:
        optimizer = optimizer_of(Comm.solo())
        with self.assertRaisesRegex(ArgumentError, "^Optimizer.state_extra_set: .*0 bytes"):
            optimizer.state_extra_set("a", b"")
        with self.assertRaisesRegex(ArgumentError, "1 to 255"):
            optimizer.state_extra_set("", b"x")
        with self.assertRaisesRegex(ArgumentError, "together they may have at most 16777216"):
            optimizer.state_extra_set("a", bytes((16 << 20) + 1))
        with self.assertRaisesRegex(ValueError, "contains a NUL character"):
            optimizer.state_extra_set("a\0", b"x")
        for wrong in ("text", 5):
            with self.assertRaisesRegex(TypeError, "the value of an extra is bytes, not"):
                optimizer.state_extra_set("a", wrong)  # type: ignore[arg-type]
        with self.assertRaisesRegex(
            ArgumentError, "Optimizer.state_extra_list lists those that were"
        ):
            optimizer.state_extra_get("a")


if __name__ == "__main__":
    unittest.main()
