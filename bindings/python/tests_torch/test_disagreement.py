# SPDX-License-Identifier: Apache-2.0
"""Tests ranks that make different calls. All ranks raise an exception, and existing optimizers
continue."""

from __future__ import annotations

import itertools
import unittest
from typing import Any

import torch
import torch.distributed as dist
from models import batch, copies, give_gradients, mlp, parameters
from support import InAllWorlds, everywhere, results_of, worst
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from libzero import ZeroError
from libzero.torch import OSS, ZeroRedundancyOptimizer

WORLDS = (2, 3)
CLASSES = (torch.optim.Adam, torch.optim.ASGD)


def ranks_that_differ(rank: int, world: int) -> Any:
    """Different parameters raise an exception on all ranks, and the next optimizer works."""
    found = []
    shape = [(4, 6), (6, 4)][rank % 2]
    for params, options in (
        ([torch.zeros(shape)], {}),
        ([torch.zeros(3)], {"lr": 0.1 + rank}),
        ([torch.zeros(3, dtype=[torch.float32, torch.float64][rank % 2])], {}),
        ([torch.zeros(3)] * 1 + [torch.zeros(2)] * (rank % 2), {}),
        ([torch.zeros(2, 2, 2, 2).permute((0, 1, 2, 3) if rank % 2 else (0, 2, 3, 1))], {}),
    ):
        try:
            ZeroRedundancyOptimizer(params, torch.optim.Adam, **options)
        except ZeroError as error:
            found.append((error.name, "rank" in str(error)))
    return found


def late_groups_that_differ(rank: int, world: int) -> Any:
    """Different groups are not added, and training continues as without them."""
    found = []
    shape = [(4, 6), (6, 4)][rank % 2]
    for chosen in CLASSES:
        mine = parameters(1)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, chosen, lr=0.1)
        plain = chosen(others, lr=0.1)
        told = []
        for params in ([torch.zeros(shape)], [torch.zeros(3)] * (rank > 0)):
            try:
                zero.add_param_group({"params": params})
            except (ZeroError, ValueError) as error:
                told.append("rank" in str(error))
        counts = len(zero.param_groups), len(zero.optim.param_groups)
        for step in range(3):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
        found.append((told, counts, worst(mine, others), everywhere(mine)))
        zero.close()
    return found


def a_group_on_one_rank_alone(rank: int, world: int) -> Any:
    """One rank adds a group while the others are in step(). No rank waits for a call that is never
    made."""
    found = []
    for chosen in CLASSES:
        mine = parameters(1)
        zero = ZeroRedundancyOptimizer(mine, chosen, lr=0.1)
        give_gradients(0, mine)
        try:
            if rank == 0:
                zero.add_param_group({"params": [torch.zeros(3)]})
            zero.step()
            found.append("nothing")
        except (ZeroError, RuntimeError) as error:
            found.append(str(error))
        zero.close()
        dist.barrier()
    return found


def a_scaler(rank: int, world: int) -> Any:
    """The last rank's loss is not finite in the second round, and DDP passes this to all ranks."""
    found = []
    for sharded in (True, False):
        ddp = DistributedDataParallel(mlp())
        params = list(ddp.parameters())
        optimizer: Any = (
            ZeroRedundancyOptimizer(params, torch.optim.Adam, lr=0.01)
            if sharded
            else torch.optim.Adam(params, lr=0.01)
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(4):
            inputs, labels = batch(10 * step + rank)
            if step == 1 and rank == world - 1:
                inputs = inputs * float("inf")
            optimizer.zero_grad()
            scaler.scale(torch.nn.functional.mse_loss(ddp(inputs), labels)).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append((params, scaler.get_scale()))
    (mine, scale), (others, _) = found
    return worst(mine, others), everywhere(mine), scale


def refused_by_the_last_rank_alone(rank: int, world: int) -> Any:
    """If the last rank raises an exception, the others raise one immediately, and all ranks then
    continue together."""
    found = []
    last = rank == world - 1
    for chosen, view in itertools.product(CLASSES, (False, True)):
        mine = parameters(1)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, chosen, parameters_as_bucket_view=view, lr=0.1)
        plain = chosen(others, lr=0.1)
        saved = plain.state_dict()
        spoiled = {**saved, "param_groups": []}
        late = torch.eye(3).to_sparse() if last else torch.eye(3)
        rate = -1.0 if last else 0.1
        calls = [
            lambda: zero.load_state_dict(spoiled if last else saved),
            lambda: zero.add_param_group({"params": [late]}),
            lambda: zero.add_param_group({"params": [mine[0] if last else torch.eye(3)]}),
        ]
        if chosen is torch.optim.Adam:  # torch's classes do not check the rate of a later group
            calls.append(lambda: zero.add_param_group({"params": [torch.eye(3)], "lr": rate}))
        told = []
        for call in calls:
            try:
                call()
            except (RuntimeError, TypeError, ValueError, ZeroError) as error:
                told.append(str(error))
        for step in range(2):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
        found.append((len(calls), told, worst(mine, others), everywhere(mine)))
        zero.close()
    return found


class Odd(Exception):
    """An exception of the program."""


def a_closure_that_raises_on_the_last_rank(rank: int, world: int) -> Any:
    """Return the exception of each rank for each optimizer. With libzero's rules, all ranks then
    continue together."""
    found = []
    for make in (
        lambda params, chosen: ZeroRedundancyOptimizer(params, chosen, lr=0.1),
        lambda params, chosen: OSS(params, chosen, lr=0.1),
    ):
        for chosen in CLASSES:
            mine = parameters(1)
            others = copies(mine)
            sharded: Any = make(mine, chosen)
            plain = chosen(others, lr=0.1)

            def closure() -> float:
                if rank == world - 1:
                    raise Odd("of the last rank")
                return 0.5

            told = ""
            give_gradients(0, mine)
            try:
                sharded.step(closure)
            except (Odd, RuntimeError) as error:
                told = f"{type(error).__name__}: {error}"
            if sharded.rule is not None:
                for step in range(2):
                    give_gradients(step, mine, others)
                    sharded.step(lambda: 0.5)
                    plain.step()
            found.append((sharded.rule, told, worst(mine, others), everywhere(mine)))
            sharded.close()
    return found


def a_closure_that_raises_within_join(rank: int, world: int) -> Any:
    """Rank 0 has one batch more than the other ranks, and its closure raises an exception in that
    batch."""
    mine = parameters(1)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam, lr=0.1)

    def closure() -> float:
        raise Odd("of rank 0")

    try:
        with Join([zero]):
            give_gradients(0, mine)
            zero.step()
            if rank == 0:
                zero.step(closure)
    except (Odd, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


CASES = (
    ranks_that_differ,
    a_closure_that_raises_on_the_last_rank,
    a_closure_that_raises_within_join,
    refused_by_the_last_rank_alone,
    late_groups_that_differ,
    a_group_on_one_rank_alone,
    a_scaler,
)


class Disagreement(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_ranks_that_pass_something_else_are_told_at_once(self) -> None:
        for found in self.of(ranks_that_differ):
            self.assertEqual(len(found), 5, found)
            for name, named in found:
                self.assertIn(name, ("ZERO_ERR_MISMATCH", "ZERO_ERR_PEER"))
                self.assertTrue(named)

    def test_late_groups_that_differ_are_refused_and_not_added(self) -> None:
        for found in self.of(late_groups_that_differ):
            for told, counts, difference, same in found:
                self.assertEqual(told, [True, True])
                self.assertEqual(counts, (1, 1))
                self.assertLess(difference, 1)
                self.assertTrue(same)

    def test_what_one_rank_refuses_the_others_are_told_at_once(self) -> None:
        for world in WORLDS:
            ranks = results_of(self.found[world], refused_by_the_last_rank_alone)
            for rank, found in enumerate(ranks):
                for count, told, difference, same in found:
                    wanted = [
                        f"rank {world - 1} refused the state",
                        f"rank {world - 1} refused the new",
                        f"rank {world - 1} refused the new",
                        f"rank {world - 1} refused the new",
                    ]
                    if rank == world - 1:
                        wanted = ["the state has 0 parameter groups", "is sparse", "more than", "lr"]
                    self.assertEqual(len(told), count)
                    for said, words in zip(told, wanted):
                        self.assertIn(words, said)
                    self.assertLess(difference, 1)
                    self.assertTrue(same)

    def test_a_closure_that_raises_on_one_rank_keeps_no_rank_waiting(self) -> None:
        for world, rank, found in self.of_ranks(a_closure_that_raises_on_the_last_rank):
            self.assertEqual(len(found), 4)
            for rule, told, difference, same in found:
                if rank == world - 1:
                    self.assertEqual(told, "Odd: of the last rank")
                else:
                    self.assertIn("RuntimeError", told)
                    self.assertIn(f"rank {world - 1}", told)
                if rule is not None:
                    self.assertLess(difference, 1)
                    self.assertTrue(same)
        for _, rank, told in self.of_ranks(a_closure_that_raises_within_join):
            self.assertIn("Odd: of rank 0" if rank == 0 else "RuntimeError: rank 0", told)

    def test_a_group_that_one_rank_alone_adds_keeps_no_rank_waiting(self) -> None:
        for found in self.of(a_group_on_one_rank_alone):
            for said in found:
                self.assertIn("rank", said)

    def test_a_scaler_skips_on_all_ranks_what_one_cannot_represent(self) -> None:
        for difference, same, scale in self.of(a_scaler):
            self.assertLess(difference, 1)
            self.assertTrue(same)
            self.assertEqual(scale, 512.0)


if __name__ == "__main__":
    unittest.main()
