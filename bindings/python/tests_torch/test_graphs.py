# SPDX-License-Identifier: Apache-2.0
"""Tests autograd graphs that refer to values of parameters. They continue if the values have not changed, and raise
an exception otherwise."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import torch
from models import give_gradients, parameters
from torch import nn

from libzero.torch import OSS, ShardedDataParallel, ZeroRedundancyOptimizer
from support import InAllWorlds, everywhere

WORLDS = (1, 2, 3)
KINDS: tuple[tuple[Any, Any], ...] = (
    (ZeroRedundancyOptimizer, torch.optim.SGD),
    (ZeroRedundancyOptimizer, torch.optim.Adam),
    (ZeroRedundancyOptimizer, torch.optim.ASGD),
    (OSS, torch.optim.SGD),
    (OSS, torch.optim.Adam),
    (OSS, torch.optim.ASGD),
)


def refused(params: list[torch.Tensor], change: Callable[[], Any]) -> list[bool]:
    """Return, for a graph of each of `params`, whether it raises an exception after `change`."""
    factors = [torch.ones_like(param, requires_grad=True) for param in params]
    graphs = [(param * factor).sum() for param, factor in zip(params, factors)]
    change()
    found = []
    for graph in graphs:
        try:
            graph.backward()
            found.append(False)
        except RuntimeError as error:
            found.append("modified by an inplace operation" in str(error))
    return found


def steps(rank: int, world: int) -> Any:
    """The first parameter has a gradient on its owner, or on all ranks if it has several owners. The second parameter
    has a gradient only on the first rank, and the last has none."""
    found = []
    for make, chosen in KINDS:
        params: list[Any] = parameters(7, [(3000,)] * 4)
        optimizer = make(params, chosen, lr=0.1, weight_decay=0.1)
        give_gradients(0, params, without=[3] if rank == 0 else [1, 3])
        before = [param.detach().clone() for param in params]
        told = refused(params, optimizer.step)
        moved = [not torch.equal(param, old) for param, old in zip(params, before)]
        found.append((optimizer.rule, told, moved))
        optimizer.close()
    return found


def masters_are_shared(rank: int, world: int) -> Any:
    """Values that a program writes into one parameter are rounded. All other parameters, including frozen ones, are
    also rounded."""
    params: list[Any] = parameters(7, [(30,)] * 3)
    params[2].requires_grad_(False)
    optimizer = OSS(params, lr=0.1, broadcast_fp16=True)
    with torch.no_grad():
        params[0].fill_(1 / 3)
    before = params[2].detach().clone()
    told = refused(params, optimizer.step)
    return told, torch.equal(params[2], before), everywhere(params)


def a_load(rank: int, world: int) -> Any:
    """A load does not change values."""
    found = []
    for make, chosen in KINDS:
        params: list[Any] = parameters(7, [(30,)] * 3)
        optimizer = make(params, chosen, lr=0.1)
        give_gradients(0, params)
        optimizer.step()
        optimizer.consolidate_state_dict(0)
        told: list[Any] = [optimizer.state_dict() if rank == 0 else None]
        if world > 1:
            torch.distributed.broadcast_object_list(told, src=0)
        before = [param.detach().clone() for param in params]
        found.append(refused(params, lambda: optimizer.load_state_dict(told[0])))
        found.append([not torch.equal(param, old) for param, old in zip(params, before)])
        optimizer.close()
    return found


def copies_from_the_first_rank(rank: int, world: int) -> Any:
    model = nn.BatchNorm1d(4)
    nn.init.constant_(model.weight, float(rank))
    optimizer = OSS(model.parameters(), lr=0.1)
    told = refused([model.weight], lambda: ShardedDataParallel(model, optimizer))
    parallel = ShardedDataParallel(model, optimizer)
    return told, refused([model.running_mean], parallel.sync_buffers)


CASES = (steps, masters_are_shared, a_load, copies_from_the_first_rank)


class Graphs(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_from_before_a_step_go_on_where_it_has_changed_nothing_and_only_there(self) -> None:
        for world, _, found in self.of_ranks(steps):
            self.assertEqual(len(found), len(KINDS))
            for rule, told, moved in found:
                self.assertEqual(told[0], True)
                if rule is None and world > 1:
                    # A class of the program may write to parameters without gradients.
                    self.assertTrue(all(not changed or no for changed, no in zip(moved, told)))
                else:
                    self.assertEqual(told, moved, rule)
                    self.assertFalse(told[3])

    def test_from_before_masters_are_shared_do_not_go_on(self) -> None:
        for told, kept, same in self.of(masters_are_shared):
            self.assertEqual((told, kept, same), ([True, True, True], False, True))

    def test_go_on_over_a_load(self) -> None:
        for found in self.of(a_load):
            self.assertEqual(found, [[False] * 3] * 2 * len(KINDS))

    def test_from_before_a_copy_from_the_first_rank_do_not_go_on_elsewhere(self) -> None:
        for _, rank, (told, of_buffers) in self.of_ranks(copies_from_the_first_rank):
            self.assertEqual((told, of_buffers), ([rank > 0], [rank > 0]))


if __name__ == "__main__":
    unittest.main()
