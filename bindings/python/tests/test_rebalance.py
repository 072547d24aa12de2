# SPDX-License-Identifier: Apache-2.0
"""Tests that owners change on request, together with their state."""

from __future__ import annotations

import unittest
from typing import Any

from libzero import ArgumentError, Comm, Optimizer, Param, ZeroError
from support import floats, run_ranks


def owned(optimizer: Optimizer) -> list[list[int]]:
    """Return the parameters of each rank."""
    return [
        [range.param for range in optimizer.owned_ranges(rank)]
        for rank in range(optimizer.comm.world)
    ]


class RebalanceTest(unittest.TestCase):
    def test_owners_are_those_that_were_named_and_training_goes_on(self) -> None:
        def train(comm: Comm, moves: bool) -> list[float]:
            a, b = floats(*range(40)), floats(5)
            with Optimizer(comm, partition="manual", lr=0.1) as optimizer:
                optimizer.register([Param("a", a, floats(*range(40))), Param("b", b, floats(-1))])
                for step in range(4):
                    optimizer.step()
                    if not moves or step != 1:
                        continue
                    optimizer.rebalance({"b": 1, "a": 2})
                    self.assertEqual(owned(optimizer), [[], [1], [0]])
                    optimizer.rebalance()
                    self.assertEqual(owned(optimizer), [[], [1], [0]])
                    optimizer.rebalance([0, 0])
                    self.assertEqual(owned(optimizer), [[0, 1], [], []])
            return [*a, *b]

        moved = run_ranks(3, lambda comm: train(comm, True))
        self.assertEqual(moved, run_ranks(3, lambda comm: train(comm, False)))

    def test_frozen_parameters_come_last_where_a_rule_decides(self) -> None:
        def body(comm: Comm) -> list[list[int]]:
            with Optimizer(comm, partition="greedy_in_order") as optimizer:
                optimizer.register({name: floats(1, 2, 3) for name in "abcd"})
                for name in "bd":
                    optimizer.set_trainable(name, False)
                optimizer.seal()
                self.assertEqual(owned(optimizer), [[0, 2], [1, 3]])
                optimizer.rebalance()
                return owned(optimizer)

        self.assertEqual(run_ranks(2, body), [[[0, 1], [2, 3]]] * 2)

    def test_wrong_owners_are_named_and_nothing_moves(self) -> None:
        def body(comm: Comm) -> None:
            with Optimizer(comm, partition="manual") as optimizer:
                optimizer.register({"a": floats(1), "b": floats(1)})
                optimizer.seal()
                wrong: list[tuple[type[Exception], Any, str]] = [
                    (ArgumentError, [0, 2], "parameter 'b': owner 2"),
                    (ArgumentError, [0], "1 owners given for 2"),
                    (KeyError, {"a": 0, "c": 1}, "no parameter has that name"),
                    (KeyError, {"a": 0}, "b"),
                    (OverflowError, [0, 1 << 40], "owner"),
                    (TypeError, ["0", "1"], "owner"),
                    (ZeroError, [0, comm.rank], "owner of parameter 'b'"),
                ]
                for error, owners, says in wrong:
                    with self.assertRaisesRegex(error, says):
                        optimizer.rebalance(owners)
                self.assertEqual(owned(optimizer), [[0, 1], []])
            with Optimizer(comm) as optimizer:
                optimizer.register({"a": floats(1)})
                with self.assertRaisesRegex(ArgumentError, 'partition="manual"'):
                    optimizer.rebalance([0])

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
