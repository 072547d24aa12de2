# SPDX-License-Identifier: Apache-2.0
"""Tests how libzero.torch.Optimizer reduces gradients to their owners, in comparison with an
unsharded run."""

from __future__ import annotations

import gc
import inspect
import os
import unittest
import weakref
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from libzero.torch import Optimizer
from models import CLASSES, class_of
from native import ARENAS, Pair, loss_of, model
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)


def every_memory_and_micro_batches(rank: int, world: int) -> Any:
    found = []
    for arenas in ARENAS:
        for overlap in (True, False):
            for way in ("one batch", "no_sync", "all announced"):
                pair = Pair(rank, world, arenas=arenas, overlap=overlap)
                batches = 1 if way == "one batch" else 3
                for step in range(6):
                    pair.zero_grad(set_to_none=step % 2 == 0)
                    for micro in range(batches):
                        if way == "no_sync" and micro < batches - 1:
                            with pair.optimizer.no_sync():
                                pair.backward(step * batches + micro)
                        else:
                            pair.backward(step * batches + micro)
                    pair.step()
                what = f"arenas {arenas}, overlap {overlap}, {way}"
                copied = pair.optimizer.stats().copied_bytes
                found.append((what, worst(*pair.params), everywhere(pair.params[0]), copied))
                pair.optimizer.close()
    return found


def every_class(rank: int, world: int) -> Any:
    found = []
    for name, options in CLASSES:
        given = dict(options)
        if "eps" in inspect.signature(class_of(name)).parameters:
            given["eps"] = 1e-4  # a smaller eps would amplify the rounding of tiny gradients
        pair = Pair(rank, world, class_of(name), torch_options=given, arenas=True)
        pair.train(range(5))
        found.append((name, worst(*pair.params)))
        pair.optimizer.close()
    return found


def gradients_that_a_program_changes(rank: int, world: int) -> Any:
    def halve(net: nn.Module) -> None:
        for param in net.parameters():
            param.grad.mul_(0.5)

    def replace(net: nn.Module) -> None:
        for param in net.parameters():
            param.grad = param.grad * 3

    def remove_one(net: nn.Module) -> None:
        net[7].bias.grad = None

    def write_one(net: nn.Module) -> None:
        net[7].bias.grad[0] = 2.0

    found = []
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        for step, change in enumerate((halve, replace, remove_one, write_one) * 2):
            pair.zero_grad()
            pair.backward(step)
            change(pair.mine)
            change(pair.other)
            pair.step()
        copied = pair.optimizer.stats().copied_bytes
        found.append((arenas, worst(*pair.params), everywhere(pair.params[0]), copied))
        pair.optimizer.close()
    return found


def parameters_that_a_program_moves(rank: int, world: int) -> Any:
    found = []
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        pair.train([0])
        places = [param.data_ptr() for param in pair.params[0]]
        for step in (1, 2):
            pair.zero_grad()
            pair.backward(step)
            for param in (*pair.params[0], *pair.params[1]):
                param.data = param.data * 0.5
            pair.step()
        moved = [param.data_ptr() for param in pair.params[0]] != places
        copied = pair.optimizer.stats().copied_bytes
        found.append((arenas, worst(*pair.params), everywhere(pair.params[0]), moved, copied))
        pair.optimizer.close()
    return found


def backwards_that_do_not_count(rank: int, world: int) -> Any:
    found = []
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        pair.train(range(2))
        # Gradients are announced or reduced and then discarded, also if only one rank does this.
        if rank == 0:
            loss_of(pair.mine, 50, rank).backward()
            pair.optimizer.zero_grad()
            loss_of(pair.mine, 51, rank).backward()
            pair.mine.zero_grad()
        pair.train([2])
        loss_of(pair.mine, 52, rank).backward()
        pair.optimizer.clip_grad_norm(1.0)
        pair.train([3])
        raised = False
        try:
            with pair.optimizer.no_sync():
                raise KeyError("in no_sync")
        except KeyError:
            raised = True
        pair.train(range(4, 6))
        found.append((arenas, worst(*pair.params), everywhere(pair.params[0]), raised))
        pair.optimizer.close()
    return found


def gradients_after_a_clip(rank: int, world: int) -> Any:
    found = []
    for arenas in ARENAS:
        for overlap in (False, True):
            a, b = (torch.nn.Parameter(torch.ones(40)) for _ in range(2))
            named = [("a", a), ("b", b)]
            optimizer = Optimizer(named, "sgd", lr=0.1, arenas=arenas, overlap=overlap)
            (a.sum() + b.sum()).backward()
            optimizer.clip_grad_norm(1e-3)
            a.grad = b.grad = None
            (10 * (a.sum() + b.sum())).backward()
            optimizer.step()
            values = [a[7].item(), b[7].item()]
            refused = []
            for change in ("another backward", "a write"):
                optimizer.zero_grad()
                (a.sum() + b.sum()).backward()
                optimizer.clip_grad_norm(1.0)
                try:
                    a.sum().backward() if change == "another backward" else b.grad.zero_()
                    optimizer.step()
                except RuntimeError as error:
                    refused.append("changed after clip_grad_norm" in str(error))
            optimizer.zero_grad()
            (a.sum() + b.sum()).backward()
            optimizer.step()
            found.append((arenas, overlap, *values, refused, a[7].item(), b[7].item()))
            optimizer.close()
    return found


def missing_gradients(rank: int, world: int) -> Any:
    """In some steps, no rank uses the last layer's bias, and in others only the last rank uses it.
    A rank without a batch takes part. Convolution weights are frozen and trained again."""
    found = []
    for arenas in ARENAS:
        pair = Pair(rank, world, arenas=arenas)
        for step in range(9):
            frozen = 2 <= step < 5
            for net in (pair.mine, pair.other):
                net[1].weight.requires_grad_(not frozen)
                net[7].bias.requires_grad_(step % 3 != 1)
            pair.zero_grad()
            pair.backward(step, [world - 1] if step % 4 == 3 else None)
            pair.step()
        steps = pair.optimizer._sharded().core.optimizer.state_get_scalar("7.bias", "step")
        found.append((arenas, worst(*pair.params), everywhere(pair.params[0]), steps))
        pair.optimizer.close()
    return found


def groups_and_schedulers(rank: int, world: int) -> Any:
    def groups(net: nn.Module) -> list[dict[str, Any]]:
        decays = [pair for pair in net.named_parameters() if pair[1].dim() > 1]
        others = [pair for pair in net.named_parameters() if pair[1].dim() <= 1]
        return [{"params": decays}, {"params": others, "weight_decay": 0.0, "betas": (0.5, 0.9)}]

    pair = Pair(rank, world, groups=groups, arenas=True)
    mine = lr_scheduler.OneCycleLR(pair.optimizer, 0.05, total_steps=12)
    other = lr_scheduler.OneCycleLR(pair.plain, 0.05, total_steps=12)
    late = nn.Parameter(torch.full((7, 9), float(rank)))
    other_late = nn.Parameter(torch.zeros(7, 9))
    for step in range(8):
        if step == 4:
            pair.optimizer.add_param_group({"params": [("late", late)], "lr": 0.2})
            pair.plain.add_param_group({"params": [("late", other_late)], "lr": 0.2})
        pair.zero_grad()
        pair.backward(step)
        if step >= 4:
            ((late - rank) ** 2).sum().backward()
            sum(((other_late - r) ** 2).sum() / world for r in range(world)).backward()
        pair.step()
        if step < 4:
            mine.step()
            other.step()
    params, others = pair.params
    worst_of = worst([*params, late], [*others, other_late])
    rates = [group["lr"] for group in pair.optimizer.param_groups]
    same = rates == [group["lr"] for group in pair.plain.param_groups]
    return worst_of, everywhere([*params, late]), same, pair.optimizer.stats().copied_bytes


def what_arenas_leave(rank: int, world: int) -> Any:
    private, shared = Pair(rank, world, arenas=True), Pair(rank, world, arenas="shared")
    formats = [(p.stride(), p.shape) for p in private.other.parameters()]
    kept = [(p.stride(), p.shape) for p in private.mine.parameters()] == formats
    for pair in (private, shared):
        pair.train([0])
    empty = all(param.grad is None for param in private.mine.parameters())
    comm = private.optimizer.comm
    seen = []
    for pair in (private, shared):
        bias = pair.mine[7].bias
        comm.barrier()
        if rank == 0:
            with torch.no_grad():
                bias[0] = 123.0
        comm.barrier()
        seen.append(bias[0].item() == 123.0)
    for pair in (private, shared):
        pair.optimizer.close()
    param = private.mine[7].bias
    with torch.no_grad():
        param.add_(1)  # the arena lives as long as its tensors
    return kept, empty, seen


def an_optimizer_that_goes(rank: int, world: int) -> Any:
    """A model keeps neither hooks nor the optimizer alive."""
    net = model(0)
    optimizer = Optimizer(net.named_parameters(), "sgd", lr=0.1)
    gone = weakref.ref(optimizer)
    loss_of(net, 0, rank).backward()
    del optimizer
    gc.collect()
    loss_of(net, 1, rank).backward()
    closed = Optimizer(net.named_parameters(), "sgd", lr=0.1)
    closed.close()
    closed.close()
    loss_of(net, 2, rank).backward()
    return gone() is None, all(not p._post_accumulate_grad_hooks for p in net.parameters())


def when_to_overlap(rank: int, world: int) -> Any:
    chosen = []
    for cores, threads in ((world, 1), (world + 1, 1), (2 * world, 2), (2 * world + 1, 2)):
        os.sched_getaffinity = lambda _, cores=cores: set(range(cores))
        torch.set_num_threads(threads)
        with Optimizer([nn.Parameter(torch.ones(3))]) as optimizer:
            chosen.append(optimizer._native.gradients.overlap)
    torch.set_num_threads(1)
    # If ranks are on two hosts, only the ranks on this host count.
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    os.sched_getaffinity = lambda _: {0, 1}
    with Optimizer([nn.Parameter(torch.ones(3))]) as optimizer:
        chosen.append(optimizer._native.gradients.overlap)
    return chosen


CASES = (
    every_memory_and_micro_batches,
    every_class,
    gradients_that_a_program_changes,
    parameters_that_a_program_moves,
    backwards_that_do_not_count,
    gradients_after_a_clip,
    missing_gradients,
    groups_and_schedulers,
    what_arenas_leave,
    an_optimizer_that_goes,
    when_to_overlap,
)


class Native(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_every_memory_and_way_to_accumulate_follows_one_process(self) -> None:
        for found in self.of(every_memory_and_micro_batches):
            for what, difference, same, _ in found:
                self.assertLess(difference, 1, what)
                self.assertTrue(same, what)

    def test_nothing_is_copied_in_arenas(self) -> None:
        for world in WORLDS:
            for found in results_of(self.found[world], every_memory_and_micro_batches):
                for what, _, _, copied in found:
                    if "arenas False" not in what:
                        self.assertEqual(copied, 0, what)
                    elif world > 1:
                        self.assertGreater(copied, 0, what)

    def test_every_class_of_torch_that_libzero_has_follows_one_process(self) -> None:
        for found in self.of(every_class):
            for name, difference in found:
                self.assertLess(difference, 1, name)

    def test_after_a_clip_other_gradients_count_and_changed_ones_are_refused(self) -> None:
        for found in self.of(gradients_after_a_clip):
            self.assertEqual(len(found), 2 * len(ARENAS))
            for arenas, overlap, first, second, refused, *last in found:
                self.assertAlmostEqual(first, 0, 5, (arenas, overlap))
                self.assertAlmostEqual(second, 0, 5, (arenas, overlap))
                self.assertEqual(refused, [True, True], (arenas, overlap))
                for value in last:
                    self.assertAlmostEqual(value, -0.1, 5, (arenas, overlap))

    def test_what_a_program_changes_of_a_gradient_counts(self) -> None:
        for found in self.of(gradients_that_a_program_changes):
            for arenas, difference, same, copied in found:
                self.assertLess(difference, 1, arenas)
                self.assertTrue(same, arenas)
                if arenas:
                    self.assertEqual(copied, 0, "memory with others behind it was given as padded")

    def test_what_belongs_into_an_arena_is_brought_back(self) -> None:
        for found in self.of(parameters_that_a_program_moves):
            for arenas, difference, same, moved, copied in found:
                self.assertLess(difference, 1, arenas)
                self.assertTrue(same, arenas)
                # Other ranks may still read shared memory.
                self.assertEqual(moved, arenas is not True, arenas)
                if arenas is True:
                    self.assertEqual(copied, 0, arenas)

    def test_backwards_that_are_given_up_leave_nothing_behind(self) -> None:
        for found in self.of(backwards_that_do_not_count):
            for arenas, difference, same, raised in found:
                self.assertLess(difference, 1, arenas)
                self.assertTrue(same and raised, arenas)

    def test_missing_gradients_are_absent_or_zeros_and_never_stale(self) -> None:
        for found in self.of(missing_gradients):
            for arenas, difference, same, steps in found:
                self.assertLess(difference, 1, arenas)
                self.assertTrue(same, arenas)
                self.assertEqual(steps, 6, arenas)

    def test_groups_schedulers_and_late_groups_follow_torch(self) -> None:
        for difference, same, rates, copied in self.of(groups_and_schedulers):
            self.assertLess(difference, 1)
            self.assertTrue(same and rates)
            self.assertEqual(copied, 0)

    def test_arenas_keep_formats_and_only_shared_ones_are_one_copy(self) -> None:
        for world in WORLDS:
            for rank, found in enumerate(results_of(self.found[world], what_arenas_leave)):
                kept, empty, (private, shared) = found
                self.assertTrue(kept and empty)
                self.assertEqual(private, rank == 0)
                self.assertTrue(shared)

    def test_a_model_outlives_its_optimizer(self) -> None:
        for gone, unhooked in self.of(an_optimizer_that_goes):
            self.assertTrue(gone and unhooked)

    def test_sums_are_made_during_the_backward_only_where_a_core_is_idle(self) -> None:
        for chosen in self.of(when_to_overlap):
            self.assertEqual(chosen, [False, True, False, True, True])


if __name__ == "__main__":
    unittest.main()
