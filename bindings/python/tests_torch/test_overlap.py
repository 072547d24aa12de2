# SPDX-License-Identifier: Apache-2.0
"""Tests steps in DDP's communication hook, beginning with the first backward pass."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from models import batch, copies, mlp
from support import everywhere, results_of, run_cases, worst
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel

from libzero.torch import (
    ZeroRedundancyOptimizer,
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)

WORLDS = (1, 2, 3)
HOOKS = (hook_with_zero_step, hook_with_zero_step_interleaved)
CLASSES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.001}),
    (torch.optim.AdamW, {"lr": 0.01}),
    (torch.optim.ASGD, {"lr": 0.05}),
)


def train(
    rank: int, make: Any, options: dict[str, Any], view: bool, reduce: Any
) -> tuple[list[torch.nn.Parameter], Any, float]:
    """Train with several small buckets and a rate that changes halfway. The last result is the
    change of the parameters in the first backward pass."""
    ddp = DistributedDataParallel(
        mlp(), bucket_cap_mb=0.001, gradient_as_bucket_view=view, static_graph=view
    )
    before = copies(list(ddp.parameters()))
    optimizer, overlaps = make(ddp, options)
    if not overlaps:
        ddp.register_comm_hook(None, reduce)
    first = 0.0
    for step in range(8):
        inputs, labels = batch(10 * step + rank)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(inputs), labels).backward()
        if step == 0:
            first = worst(list(ddp.parameters()), before)
        optimizer.step()
        if step == 3:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
    return list(ddp.parameters()), optimizer, first


def overlapped(rank: int, world: int) -> Any:
    found = []
    for number, (chosen, options) in enumerate(CLASSES):
        hook, view = HOOKS[number % 2], number == 1
        reduce = fp16_compress_hook if number == 2 else allreduce_hook

        def sharded(ddp: Any, options: Any, chosen: Any = chosen, hook: Any = hook) -> Any:
            zero = ZeroRedundancyOptimizer(
                ddp.parameters(), chosen, overlap_with_ddp=True, **options
            )
            ddp.register_comm_hook(None, hook(reduce, ddp, zero, shard_buckets=True))
            return zero, True

        def plain(ddp: Any, options: Any, chosen: Any = chosen) -> Any:
            return chosen(ddp.parameters(), **options), False

        mine, zero, moved = train(rank, sharded, options, view, reduce)
        others, _, unmoved = train(rank, plain, options, view, reduce)
        zero.consolidate_state_dict(0)
        steps = float(zero.state_dict()["state"][0].get("step", 8)) if rank == 0 else 8.0
        found.append(
            (chosen.__name__, worst(mine, others), everywhere(mine), moved, unmoved, steps)
        )
    return found


def without_overlap(rank: int, world: int) -> Any:
    ddp = DistributedDataParallel(mlp())
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    try:
        hook_with_zero_step(allreduce_hook, ddp, zero)
    except ValueError as error:
        return str(error)
    return ""


class Overlap(unittest.TestCase):
    found: dict[int, dict[str, list[Any]]]

    @classmethod
    def setUpClass(cls) -> None:
        cases = (overlapped, without_overlap)
        cls.found = {world: run_cases(world, cases) for world in WORLDS}

    def test_steps_in_the_hook_are_those_of_the_unsharded_optimizer_without_warm_up(self) -> None:
        for world in WORLDS:
            for found in results_of(self.found[world], overlapped):
                for name, difference, same_everywhere, moved, unmoved, steps in found:
                    self.assertLess(difference, 1, f"{name} on {world} ranks")
                    self.assertTrue(same_everywhere, name)
                    self.assertGreater(moved, 1, f"{name}: the first backward is a step")
                    self.assertEqual(unmoved, 0)
                    self.assertEqual(steps, 8)

    def test_an_optimizer_that_steps_itself_is_refused(self) -> None:
        for world in WORLDS:
            for said in results_of(self.found[world], without_overlap):
                self.assertIn("overlap_with_ddp=True", said)


if __name__ == "__main__":
    unittest.main()
