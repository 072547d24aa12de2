# SPDX-License-Identifier: Apache-2.0
"""Tests clipping, loss scales, uneven inputs and closures of libzero.torch.Optimizer, in comparison
with one process."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from torch import nn

import libzero
from libzero.torch import Optimizer
from native import Pair, loss_of, model, refusal
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)


def clipping(rank: int, world: int) -> Any:
    found = []
    for kind in (1.0, 2.0, float("inf")):
        pair = Pair(rank, world, arenas=True)
        for step in range(4):
            pair.zero_grad()
            pair.backward(step)
            mine = pair.optimizer.clip_grad_norm(0.05, kind)
            other = float(nn.utils.clip_grad_norm_(pair.other.parameters(), 0.05, kind))
            pair.step()
            found.append((abs(mine - other) / other, worst(*pair.params)))
        pair.optimizer.close()
    pair = Pair(rank, world)
    pair.backward(0)
    pair.optimizer.clip_grad_norm(0.01, params=pair.mine[7].parameters())
    pair.optimizer.clip_grad_value(0.02)
    nn.utils.clip_grad_norm_(pair.other[7].parameters(), 0.01)
    nn.utils.clip_grad_value_(pair.other.parameters(), 0.02)
    pair.step()
    found.append((0.0, worst(*pair.params)))
    inside = Pair(rank, world, max_grad_norm=0.05)
    inside.backward(0)
    norm = float(nn.utils.clip_grad_norm_(inside.other.parameters(), 0.05))
    inside.step()
    found.append((abs(inside.optimizer.result().grad_norm - norm) / norm, worst(*inside.params)))
    return found


def overflows_and_the_loss_scale(rank: int, world: int) -> Any:
    pair = Pair(rank, world, loss_scale=1024.0, growth_interval=2, arenas=True)
    scales, skipped = [], []
    for step in range(4):
        pair.zero_grad()
        loss = pair.optimizer.scale(loss_of(pair.mine, step, rank))
        # Only the last rank has an infinity.
        (loss * float("inf") if step == 1 and rank == world - 1 else loss).backward()
        pair.optimizer.step()
        skipped.append(pair.optimizer.result().skipped)
        scales.append(pair.optimizer.loss_scale)
        if step != 1:
            for r in range(world):
                (loss_of(pair.other, step, r) / world).backward()
            pair.plain.step()
    return worst(*pair.params), scales, skipped


def overflows_that_are_errors(rank: int, world: int) -> Any:
    pair = Pair(rank, world, nonfinite="error", arenas=True)
    (loss_of(pair.mine, 0, rank) * float("inf")).backward()
    told = refusal(pair.optimizer.step)
    # Later gradients are not added to what the failed step has left.
    loss_of(pair.mine, 1, rank).backward()
    pair.optimizer.step()
    for r in range(world):
        (loss_of(pair.other, 1, r) / world).backward()
    pair.plain.step()
    return worst(*pair.params), told


def uneven_inputs(rank: int, world: int) -> Any:
    pair = Pair(rank, world, uneven_inputs="world", arenas=True)
    for step in range(2 + world):
        having = [r for r in range(world) if step < 2 + r]
        pair.plain.zero_grad()
        for r in having:
            (loss_of(pair.other, step, r) / world).backward()
        if rank in having:
            pair.optimizer.zero_grad()
            loss_of(pair.mine, step, rank).backward()
            pair.optimizer.step()
        if having:
            pair.plain.step()
    last = pair.optimizer.join()
    return worst(*pair.params), everywhere(pair.params[0]), last


def closures_and_comms(rank: int, world: int) -> Any:
    net = model(rank)
    comm = libzero.Comm.solo()
    with Optimizer(net.parameters(), torch.optim.SGD, lr=0.1, process_group=comm) as optimizer:
        before = loss_of(net, 0, 0).item()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, 0, 0)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        after = loss_of(net, 0, 0).item()
    return abs(loss.item() - before) == 0, after < before, comm.world


CASES = (
    clipping,
    overflows_and_the_loss_scale,
    overflows_that_are_errors,
    uneven_inputs,
    closures_and_comms,
)


class NativeSteps(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_clipping_sees_the_average_of_all_ranks(self) -> None:
        for found in self.of(clipping):
            for norm, difference in found:
                self.assertLess(norm, 1e-5)
                self.assertLess(difference, 1)

    def test_an_overflow_on_one_rank_is_skipped_by_all_and_halves_the_scale(self) -> None:
        for difference, scales, skipped in self.of(overflows_and_the_loss_scale):
            self.assertLess(difference, 1)
            self.assertEqual(scales, [1024.0, 512.0, 512.0, 1024.0])
            self.assertEqual(skipped, [0, 1, 1, 1])

    def test_an_overflow_that_is_an_error_has_taken_the_gradients(self) -> None:
        for difference, told in self.of(overflows_that_are_errors):
            self.assertLess(difference, 1)
            self.assertIn("NonfiniteError", told)

    def test_ranks_with_fewer_batches_join_the_steps_of_the_others(self) -> None:
        for world in WORLDS:
            for difference, same, last in results_of(self.found[world], uneven_inputs):
                self.assertLess(difference, 1)
                self.assertTrue(same)
                self.assertEqual(last, world - 1)

    def test_a_comm_that_was_passed_stays_open_and_closures_are_called(self) -> None:
        for same, less, world in self.of(closures_and_comms):
            self.assertTrue(same and less)
            self.assertEqual(world, 1)


if __name__ == "__main__":
    unittest.main()
