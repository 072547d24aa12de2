# SPDX-License-Identifier: Apache-2.0
"""Tests libzero.torch.Optimizer with ranks that make different calls, and with programs that keep earlier values."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from torch import nn

from libzero.torch import Optimizer
from native import ARENAS, Pair, loss_of, refusal
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)


def late_groups_that_are_refused(rank: int, world: int) -> Any:
    """A group is rejected by one rank, or because ranks differ. Then a valid group is added, and training continues
    as in torch."""
    found = []
    last = rank == world - 1
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        pair.train([0])
        inside = pair.mine[7].bias.data[1:]
        told = []
        for group in (
            {"params": [("late", torch.ones(3).to_sparse() if last else torch.ones(3))]},
            {"params": [("late", torch.ones(3))], "lr": "fast" if last else 0.1},
            {"params": [("late", nn.Parameter(inside if last else torch.ones(4)))]},
            {"params": [("1.weight" if last else "late", torch.ones(3))]},
            {"params": [("other", torch.ones(3))], "lr": 0.1 + rank},
            {"params": [("another", torch.ones(3 + rank))]},
        ):
            told.append(refusal(lambda group=group: pair.optimizer.add_param_group(group)))
        late, other_late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        pair.optimizer.add_param_group({"params": [("late", late)], "lr": 0.2})
        pair.plain.add_param_group({"params": [("late", other_late)], "lr": 0.2})
        for step in range(1, 4):
            pair.zero_grad()
            pair.backward(step)
            (late**2).sum().backward()
            (other_late**2).sum().backward()
            pair.step()
        params, others = pair.params
        count = len(pair.optimizer.param_groups)
        found.append((told, count, worst([*params, late], [*others, other_late])))
        pair.optimizer.close()
    return found


def copies_of_the_state(rank: int, world: int) -> Any:
    found = []
    for arenas in (False, True):
        pair = Pair(rank, world, arenas=arenas, instances=world)
        pair.train([0, 1, 2])
        params, others = pair.params
        found.append((worst(params, others), everywhere(params)))
        pair.optimizer.close()
    return found


def late_groups_between_backward_and_step(rank: int, world: int) -> Any:
    found = []
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        pair.zero_grad()
        pair.backward(0)
        pair.optimizer.clip_grad_norm(1e9)
        late, other_late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        told = refusal(lambda: pair.optimizer.add_param_group({"params": [("late", late)]}))
        pair.step()
        pair.zero_grad()
        pair.backward(1)
        pair.optimizer.add_param_group({"params": [("late", late)]})
        pair.plain.add_param_group({"params": [("late", other_late)]})
        pair.step()
        pair.zero_grad()
        pair.backward(2)
        (late.sum() + other_late.sum()).backward()
        pair.step()
        params, others = pair.params
        found.append((told, worst([*params, late], [*others, other_late])))
        pair.optimizer.close()
    return found


def refused_at_first(rank: int, world: int) -> Any:
    """All ranks raise an exception immediately after one rank's own error, and keep a working comm."""
    shape = torch.ones(6, 4)
    param = nn.Parameter(shape[:, ::2] if rank == world - 1 else torch.ones(6, 2))
    pair = Pair(rank, world)
    told = refusal(lambda: Optimizer([param], process_group=pair.optimizer.comm))
    pair.train([0])
    return told, worst(*pair.params)


def closures_that_raise(rank: int, world: int) -> Any:
    pair = Pair(rank, world)
    before = [param.detach().clone() for param in pair.params[0]]

    def closure() -> torch.Tensor:
        pair.optimizer.zero_grad()
        loss = loss_of(pair.mine, 0, rank)
        loss.backward()
        if rank == world - 1:
            raise KeyError("no more batches")
        return loss

    told = refusal(lambda: pair.optimizer.step(closure))
    kept = all(torch.equal(now, then) for now, then in zip(pair.params[0], before))
    pair.train([0, 1])
    return told, kept, worst(*pair.params)


def joined_ranks_follow(rank: int, world: int) -> Any:
    """Rank 0 runs out of inputs first, and its parameters are moved before it joins. The rate of the other ranks
    changes."""
    pair = Pair(rank, world, uneven_inputs="world")
    graph = pair.mine[7].weight.square().sum()
    for step in range(4):
        having = [r for r in range(world) if step < 2 or r > 0]
        if not having:
            continue
        pair.plain.zero_grad()
        for group in pair.plain.param_groups:
            group["lr"] = 0.01 * (step + 1)
        for r in having:
            (loss_of(pair.other, step, r) / world).backward()
        pair.plain.step()
        if rank in having:
            for group in pair.optimizer.param_groups:
                group["lr"] = 0.01 * (step + 1)
            pair.optimizer.zero_grad()
            loss_of(pair.mine, step, rank).backward()
            pair.optimizer.step()
    if rank == 0:
        for param in pair.mine.parameters():
            param.data = param.data.clone()
        graph = pair.mine[7].weight.square().sum()
    last = pair.optimizer.join()
    rate = pair.optimizer.param_groups[0]["lr"]
    stale = refusal(graph.backward)
    return worst(*pair.params), everywhere(pair.params[0]), last, rate, stale


def graphs_made_before(rank: int, world: int) -> Any:
    """The backward pass of these graphs would use changed values."""
    pair = Pair(rank, world)
    scale = pair.mine[5].running_var
    told = []
    for write in (
        lambda: pair.optimizer.broadcast_params(),
        lambda: pair.optimizer.broadcast_buffers(),
    ):
        graph = (pair.mine[7].weight.square().sum() + (pair.mine[7].bias.sum() * scale).sum())
        write()
        told.append(refusal(graph.backward))
        pair.zero_grad()
    return told


def buffers_that_a_program_moves(rank: int, world: int) -> Any:
    pair = Pair(rank, world)
    buffer = pair.mine[5].running_mean
    buffer.data = torch.full_like(buffer, float(rank + 1))
    pair.optimizer.broadcast_buffers(world - 1)
    value = buffer.unique().tolist()
    buffer.data = buffer.data.double()
    return value, refusal(lambda: pair.optimizer.broadcast_buffers())


def scales_and_masters_that_are_loaded(rank: int, world: int) -> Any:
    def made() -> Optimizer:
        param = nn.Parameter(torch.ones(6).bfloat16())
        return Optimizer([param], "sgd", lr=0.5, momentum=0.5, loss_scale=64.0, growth_interval=2)

    def train(optimizer: Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            optimizer.scale(optimizer.param_groups[0]["params"][0].sum()).backward()
            optimizer.step()

    optimizer = made()
    train(optimizer, 4)
    scale = optimizer.loss_scale
    optimizer.consolidate_state_dict(to=None)
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    kept = optimizer.loss_scale
    told = []
    for master in (torch.ones(5), "ones"):
        spoiled = {**state, "state": {0: {**state["state"][0], "master": master}}}
        told.append(refusal(lambda spoiled=spoiled: optimizer.load_state_dict(spoiled)))
    train(optimizer, 1)
    other = made()
    train(other, 5)
    (first,), (second,) = optimizer.param_groups[0]["params"], other.param_groups[0]["params"]
    return scale, kept, told, torch.equal(first, second)


CASES = (
    late_groups_that_are_refused,
    copies_of_the_state,
    late_groups_between_backward_and_step,
    refused_at_first,
    closures_that_raise,
    joined_ranks_follow,
    graphs_made_before,
    buffers_that_a_program_moves,
    scales_and_masters_that_are_loaded,
)


class NativeRanks(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_a_late_group_that_is_refused_leaves_all_as_it_was(self) -> None:
        own = ("is sparse", "lr is 'fast'", "overlap", "1.weight")
        for world, rank, found in self.of_ranks(late_groups_that_are_refused):
            for told, count, difference in found:
                alone, other_options, other_shapes = told[:4], told[4], told[5]
                for said, words in zip(alone, own):
                    self.assertIn(
                        words if rank == world - 1 else f"rank {world - 1} refused the new", said
                    )
                if world > 1:
                    self.assertIn("rank", other_options)
                    self.assertIn("rank", other_shapes)
                    self.assertEqual(count, 2)
                self.assertLess(difference, 1)

    def test_copies_of_the_state_train_alike(self) -> None:
        for found in self.of(copies_of_the_state):
            for difference, same in found:
                self.assertLess(difference, 1)
                self.assertTrue(same)

    def test_a_late_group_waits_for_no_step_but_after_a_clip(self) -> None:
        for found in self.of(late_groups_between_backward_and_step):
            for told, difference in found:
                self.assertIn("add the group before clip_grad_norm()", told)
                self.assertLess(difference, 1)

    def test_what_one_rank_refuses_at_first_the_others_are_told(self) -> None:
        for world, rank, (told, difference) in self.of_ranks(refused_at_first):
            own = "has strides"
            self.assertIn(own if rank == world - 1 else f"rank {world - 1} refused its par", told)
            self.assertLess(difference, 1)

    def test_a_closure_that_raises_on_one_rank_keeps_no_rank_waiting(self) -> None:
        for world, rank, (told, kept, difference) in self.of_ranks(closures_that_raise):
            own = "KeyError: 'no more batches'"
            self.assertIn(own if rank == world - 1 else f"closure of rank {world - 1} raised", told)
            self.assertTrue(kept)
            self.assertLess(difference, 1)

    def test_a_rank_that_joined_follows_the_others(self) -> None:
        for world in WORLDS[1:]:
            for found in results_of(self.found[world], joined_ranks_follow):
                difference, same, last, rate, stale = found
                self.assertLess(difference, 1)
                self.assertTrue(same)
                self.assertEqual(last, world - 1)
                self.assertAlmostEqual(rate, 0.04)
                self.assertIn("modified by an inplace operation", stale)

    def test_graphs_of_values_that_are_gone_are_refused(self) -> None:
        for found in self.of(graphs_made_before):
            for told in found:
                self.assertIn("modified by an inplace operation", told)

    def test_buffers_that_were_moved_are_brought_back(self) -> None:
        for world, _, (value, told) in self.of_ranks(buffers_that_a_program_moves):
            self.assertEqual(value, [float(world)])
            self.assertIn("ValueError: buffer 5.running_mean was torch.float32", told)

    def test_a_loaded_state_keeps_the_scale_and_its_masters_are_checked(self) -> None:
        for scale, kept, told, same in self.of(scales_and_masters_that_are_loaded):
            self.assertEqual((scale, kept), (256.0, 256.0))
            self.assertIn("'0.master' has shape [5], not [6]", told[0])
            self.assertIn("TypeError: state of parameter 0: master is a str", told[1])
            self.assertTrue(same)


if __name__ == "__main__":
    unittest.main()
