# SPDX-License-Identifier: Apache-2.0
"""Tests on the CPU that ShardedGradScaler follows torch's rule in the same way on every rank."""

from __future__ import annotations

import math
import unittest
from typing import Any

import torch
import torch.distributed as dist
from random_programs import Pieces
from torch import nn

from libzero.torch import OSS, ShardedDataParallel, ShardedGradScaler, ZeroRedundancyOptimizer
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)


def one_rank_overflows(rank: int, world: int) -> Any:
    """Only the last rank has an infinity or a NaN in every other round. All ranks skip the step, and the scale is
    that of a run in one process."""
    mine, other = Pieces(), Pieces()
    optimizer = OSS(mine.parameters(), torch.optim.Adam, lr=0.1)
    plain = torch.optim.Adam(other.parameters(), lr=0.1)
    model = ShardedDataParallel(mine, optimizer)
    options: dict[str, Any] = {"init_scale": 1024.0, "growth_interval": 3}
    scaler = ShardedGradScaler(**options)
    wanted = torch.amp.GradScaler("cpu", **options)
    found = []
    for step in range(16):
        bad = (math.inf, math.nan)[step % 4 // 2] if step < 8 and step % 2 == 0 else 1.0
        values = [bad if one == world - 1 else 1.0 + one for one in range(world)]
        used = [[1] if bad != 1.0 else [0, 1, 2, 3] for _ in values]
        if step % 8 == 7 and world > 1:
            used[0] = []  # this rank keeps its gradients until unscale_
        before = torch.cat([piece.detach().flatten().clone() for piece in mine.pieces])
        optimizer.zero_grad()
        plain.zero_grad()
        scaler.scale(model(values[rank], used[rank])).backward()
        for value, mine_of_it in zip(values, used):
            wanted.scale(other(value, mine_of_it) / world).backward()
        if step % 3 == 0:
            scaler.unscale_(optimizer)
            wanted.unscale_(plain)
            optimizer.clip_grad_norm(1.0)
            nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        scaler.step(optimizer)
        wanted.step(plain)
        scaler.update()
        wanted.update()
        after = torch.cat([piece.detach().flatten() for piece in mine.pieces])
        found.append((bool((before != after).any()), scaler.get_scale(), wanted.get_scale()))
    return (
        found,
        worst(list(mine.parameters()), list(other.parameters())),
        everywhere(list(mine.parameters())),
    )


def all_overflow_at_once(rank: int, world: int) -> Any:
    """Two optimizers overflow on every rank, and the scale is reduced once."""
    scaler = ShardedGradScaler(init_scale=1024.0)
    params = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [OSS([param], lr=1.0) for param in params]
    scaler.scale(torch.ones(()))
    for param, optimizer in zip(params, optimizers):
        param.grad = torch.full((3,), math.inf)
        scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), [param.tolist() for param in params]


def a_rank_without_gradients(rank: int, world: int) -> Any:
    """A rank without gradients takes part in the decisions of one good step and one bad step."""
    found = []
    scaler = ShardedGradScaler(init_scale=4.0)
    params = [nn.Parameter(torch.ones(2)) for _ in range(world)]
    optimizer = OSS(params, lr=1.0)
    for value in (8.0, math.inf):
        scaler.scale(torch.ones(()))
        for param in params:
            param.grad = None
        if rank == 0:
            params[0].grad = torch.full((2,), value)
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.get_scale(), params[0].tolist()))
    return found


def half_gradients(rank: int, world: int) -> Any:
    scaler = ShardedGradScaler(init_scale=256.0)
    param = nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = OSS([param], lr=1.0)
    scaler.scale(torch.ones(()))
    param.grad = torch.full((3,), 128.0, dtype=torch.float16)
    scaler.step(optimizer)
    scaler.update()
    return param.tolist()


def calls_out_of_order(rank: int, world: int) -> Any:
    found = []

    def tell(error_type: Any, call: Any) -> None:
        try:
            call()
            found.append("")
        except error_type as error:
            found.append(str(error))

    scaler = ShardedGradScaler()
    param = nn.Parameter(torch.ones(3))
    optimizer = OSS([param], lr=1.0)
    param.grad = torch.ones(3)
    tell(AssertionError, lambda: scaler.unscale_(optimizer))
    scaler.scale(torch.ones(()))
    tell(AssertionError, scaler.update)
    scaler.unscale_(optimizer)
    tell(RuntimeError, lambda: scaler.unscale_(optimizer))
    tell(RuntimeError, lambda: scaler.step(optimizer, closure=lambda: 1.0))
    scaler.step(optimizer)
    tell(RuntimeError, lambda: scaler.step(optimizer))
    tell(RuntimeError, lambda: scaler.unscale_(optimizer))
    scaler.update()
    param.grad = torch.full((3,), 65536.0)
    scaler.step(optimizer)
    return found, param.tolist()


def disabled(rank: int, world: int) -> Any:
    scaler = ShardedGradScaler(enabled=False)
    param = nn.Parameter(torch.ones(3))
    optimizer = OSS([param], lr=1.0)
    param.grad = torch.full((3,), 0.5)
    loss = scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.item(), param.tolist(), scaler.is_enabled()


def groups_of_their_own(rank: int, world: int) -> Any:
    """An infinity in one group has no effect on another group."""
    group = [dist.new_group([one]) for one in range(world)][rank]
    scaler = ShardedGradScaler(init_scale=2.0, process_group=group)
    param = nn.Parameter(torch.ones(1))
    optimizer = OSS([param], lr=1.0, group=group)
    scaler.scale(torch.ones(()))
    param.grad = torch.full((1,), math.inf if rank == 0 else 1.0)
    scaler.step(optimizer)
    scaler.update()
    return param.item(), scaler.get_scale()


def torchs_own_scaler(rank: int, world: int) -> Any:
    """If all ranks overflow, all skip the step. If only rank 0 overflows, all ranks raise an exception, and then
    continue together."""
    found = []
    for chosen in (OSS, ZeroRedundancyOptimizer):
        for wanted in (torch.optim.SGD, torch.optim.ASGD):
            mine, other = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
            optimizer: Any = chosen([mine], wanted, lr=0.5)
            plain = wanted([other], lr=0.5)
            scaler, wants = (torch.amp.GradScaler("cpu", init_scale=64.0) for _ in range(2))
            told = []
            for step, overflow in enumerate(("", "all", "", "first", "")):
                alone = overflow == "first" and rank == 0
                value = math.inf if overflow == "all" or alone else 1.0 + step
                mine.grad = torch.full((5,), value * scaler.scale(torch.ones(())).item())
                if step == 2:
                    scaler.unscale_(optimizer)
                try:
                    scaler.step(optimizer)
                except RuntimeError as error:
                    told.append(str(error))
                    scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
                    continue
                scaler.update()
                other.grad = torch.full((5,), value * wants.scale(torch.ones(())).item())
                wants.step(plain)
                wants.update()
            same = scaler.get_scale() == wants.get_scale()
            found.append((told, worst([mine], [other]), everywhere([mine]), same))
            optimizer.close()
    return found


CASES = (
    torchs_own_scaler,
    one_rank_overflows,
    all_overflow_at_once,
    a_rank_without_gradients,
    half_gradients,
    calls_out_of_order,
    disabled,
    groups_of_their_own,
)


class GradScaler(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_an_overflow_on_one_rank_is_skipped_by_all_as_in_one_process(self) -> None:
        for found, difference, same in self.of(one_rank_overflows):
            for step, (moved, scale, wanted) in enumerate(found):
                self.assertEqual(moved, step >= 8 or step % 2 == 1, f"step {step}")
                self.assertEqual(scale, wanted, f"step {step}")
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_with_torchs_scaler_ranks_skip_together_or_are_told(self) -> None:
        for world in WORLDS[1:]:
            for found in results_of(self.found[world], torchs_own_scaler):
                self.assertEqual(len(found), 4)
                for told, difference, same, scale in found:
                    self.assertEqual(len(told), 1)
                    self.assertIn("finite on some ranks and not on others", told[0])
                    self.assertLess(difference, 1)
                    self.assertTrue(same)
                    self.assertTrue(scale)

    def test_overflows_of_all_ranks_and_optimizers_at_once_back_off_once(self) -> None:
        for found in self.of(all_overflow_at_once):
            self.assertEqual(found, (512.0, [[1.0] * 3] * 2))

    def test_a_rank_without_gradients_decides_as_the_others(self) -> None:
        for found in self.of(a_rank_without_gradients):
            self.assertEqual(found, [(4.0, [-1.0, -1.0]), (2.0, [-1.0, -1.0])])

    def test_half_gradients_are_unscaled(self) -> None:
        for found in self.of(half_gradients):
            self.assertEqual(found, [0.5] * 3)

    def test_calls_out_of_order_are_refused_and_leave_the_scaler_usable(self) -> None:
        for found, values in self.of(calls_out_of_order):
            self.assertEqual(len(found), 6)
            self.assertTrue(all(found), found)
            self.assertEqual(values, [1 - 1 / 65536 - 1] * 3)

    def test_a_disabled_scaler_changes_nothing(self) -> None:
        for found in self.of(disabled):
            self.assertEqual(found, (1.0, [0.5] * 3, False))

    def test_groups_decide_for_themselves(self) -> None:
        for world in WORLDS:
            for rank, found in enumerate(results_of(self.found[world], groups_of_their_own)):
                self.assertEqual(found, (1.0, 1.0) if rank == 0 else (0.5, 2.0))


if __name__ == "__main__":
    unittest.main()
