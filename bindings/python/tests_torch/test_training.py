# SPDX-License-Identifier: Apache-2.0
"""Tests groups, schedulers, closures, frozen parameters and moved memory, in comparison with the unsharded
optimizer."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from models import copies, give_gradients, parameters
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import lr_scheduler

from libzero.torch import ZeroRedundancyOptimizer
from support import InAllWorlds, everywhere, results_of, worst

WORLDS = (1, 2, 3)


def groups_with_options_of_their_own(rank: int, world: int) -> Any:
    def groups(params: list[Any]) -> list[dict[str, Any]]:
        return [
            {"params": params[0::2], "weight_decay": 0.0, "betas": (0.5, 0.9)},
            {"params": params[1::2], "lr": 0.1, "amsgrad": True},
        ]

    mine = parameters(1)
    others = copies(mine)
    late, other_late = parameters(9, [(33,), (5, 5)]), parameters(9, [(33,), (5, 5)])
    zero = ZeroRedundancyOptimizer(groups(mine), torch.optim.AdamW, lr=0.01, weight_decay=0.1)
    plain = torch.optim.AdamW(groups(others), lr=0.01, weight_decay=0.1)
    owners = zero._sharded().core.optimizer.owned_ranges()
    for step in range(8):
        if step == 3:
            zero.add_param_group({"params": late, "eps": 1e-4, "maximize": True})
            plain.add_param_group({"params": other_late, "eps": 1e-4, "maximize": True})
        give_gradients(step, mine, others)
        if step >= 3:
            give_gradients(50 + step, late, other_late)
        zero.step()
        plain.step()
    stayed = [one for one in zero._sharded().core.optimizer.owned_ranges() if one.param < 7]
    options = [
        set(group) == set(twin) for group, twin in zip(zero.param_groups, plain.param_groups)
    ]
    return (
        worst([*mine, *late], [*others, *other_late]),
        everywhere([*mine, *late]),
        stayed == owners,
        options,
        len(zero.optim.param_groups),
    )


def any_class_with_a_late_group(rank: int, world: int) -> Any:
    mine = parameters(1)
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine[:4], torch.optim.ASGD, lr=0.1)
    plain = torch.optim.ASGD(others[:4], lr=0.1)
    for step in range(6):
        if step == 2:
            zero.add_param_group({"params": mine[4:], "lr": 0.3})
            plain.add_param_group({"params": others[4:], "lr": 0.3})
        give_gradients(step, mine, others)
        zero.step()
        plain.step()
    return worst(mine, others), everywhere(mine)


def schedulers(rank: int, world: int) -> Any:
    found = []
    for make, options in (
        (lambda one: lr_scheduler.StepLR(one, 2, gamma=0.5), {}),
        (lambda one: lr_scheduler.OneCycleLR(one, 0.5, total_steps=12), {"momentum": 0.9}),
        (lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 / (step + 1)), {}),
    ):
        mine = parameters(3)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, torch.optim.SGD, lr=0.1, **options)
        plain = torch.optim.SGD(others, lr=0.1, **options)
        scheduled, other_scheduled = make(zero), make(plain)
        for step in range(10):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
            scheduled.step()
            other_scheduled.step()
        same = zero.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
        found.append((worst(mine, others), everywhere(mine), same))
        zero.close()
    return found


def closures(rank: int, world: int) -> Any:
    """Train two parameters with the loss of this rank's inputs and without reduced gradients. The owner of each
    tensor uses its own gradient."""
    found = []
    for chosen in (torch.optim.SGD, torch.optim.Rprop):
        weight = torch.nn.Parameter(torch.tensor([1.0]))
        bias = torch.nn.Parameter(torch.tensor([2.0]))
        inputs, calls = torch.tensor([float(rank + 1)]), []
        zero = ZeroRedundancyOptimizer([weight, bias], chosen, lr=0.1)

        def closure() -> torch.Tensor:
            zero.zero_grad()
            loss = (inputs * weight + bias - (inputs + bias.detach() + 1)).abs().sum()
            loss.backward()
            calls.append(1)
            return loss

        with torch.no_grad():
            loss = zero.step(closure)
        found.append((loss.item(), len(calls), weight.item(), bias.item()))
        zero.close()
    return found


def frozen_now_and_then(rank: int, world: int) -> Any:
    """The first parameter is frozen in rounds 3 to 5, and the second from the start until round 6. The third has no
    gradient in odd rounds."""
    found = []
    for chosen in (torch.optim.AdamW, torch.optim.SGD, torch.optim.NAdam, torch.optim.ASGD):
        options: dict[str, Any] = {"momentum": 0.9} if chosen is torch.optim.SGD else {}
        mine = parameters(4)
        others = copies(mine)
        for model in (mine, others):
            model[1].requires_grad_(False)
        zero = ZeroRedundancyOptimizer(mine, chosen, lr=0.01, weight_decay=0.1, **options)
        plain = chosen(others, lr=0.01, weight_decay=0.1, **options)
        for step in range(10):
            for model in (mine, others):
                model[0].requires_grad_(not 3 <= step <= 5)
                model[1].requires_grad_(step >= 6)
            without = [2] if step % 2 else []
            without += [number for number in (0, 1) if not mine[number].requires_grad]
            give_gradients(step, mine, others, without=without)
            zero.step()
            plain.step()
        found.append((chosen.__name__, worst(mine, others), everywhere(mine)))
        zero.close()
    return found


def frozen_with_a_gradient_left(rank: int, world: int) -> Any:
    """torch.optim moves the parameter by its momentum even though it is frozen."""
    mine = parameters(4)
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.SGD, lr=0.1, momentum=0.9)
    plain = torch.optim.SGD(others, lr=0.1, momentum=0.9)
    for step in range(4):
        give_gradients(step, mine, others)
        if step >= 2:
            for model in (mine, others):
                model[0].requires_grad_(False)
                model[0].grad.zero_()
        zero.step()
        plain.step()
    return worst(mine, others), everywhere(mine)


def no_gradients_at_all(rank: int, world: int) -> Any:
    mine = parameters(4)
    before = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam)
    zero.step()
    zero.zero_grad()
    loss = zero.step(lambda: 3.5)
    give_gradients(0, mine)
    unmoved = worst(mine, before)
    zero.step()
    zero.consolidate_state_dict(0)
    step = float(zero.state_dict()["state"][0]["step"]) if rank == 0 else 1.0
    return unmoved, loss, step, worst(mine, before) > 1


def gradients_at_new_addresses(rank: int, world: int) -> Any:
    """Old gradients are kept and overwritten, to detect code that still reads them."""
    mine = parameters(5)
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.SGD, lr=0.1)
    plain = torch.optim.SGD(others, lr=0.1)
    kept = []
    for step in range(6):
        give_gradients(step, mine, others)
        kept.append([param.grad for param in mine])
        for grads in kept[:-1]:
            for grad in grads:
                grad.fill_(1e9)
        zero.step()
        plain.step()
    return worst(mine, others), everywhere(mine)


def memory_that_moves(rank: int, world: int) -> Any:
    found = []
    for view in (False, True):
        for chosen in (torch.optim.Adam, torch.optim.ASGD):
            mine = parameters(6)
            others = copies(mine)
            zero = ZeroRedundancyOptimizer(mine, chosen, parameters_as_bucket_view=view, lr=0.1)
            plain = chosen(others, lr=0.1)
            for step in range(8):
                if step == 2:
                    mine[0].data = mine[0].data.clone()
                if step == 4:
                    vector_to_parameters(parameters_to_vector(mine), mine)
                if step == 6:
                    for model in (mine, others):
                        with torch.no_grad():
                            model[3].mul_(0.5)
                give_gradients(step, mine, others)
                zero.step()
                plain.step()
            found.append((view, chosen.__name__, worst(mine, others), everywhere(mine)))
            zero.close()
    return found


def arenas(rank: int, world: int) -> Any:
    """Parameters that are views of an arena are updated there without a copy."""
    mine = parameters(6)
    formatted = torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
    before = [*copies(mine), formatted.detach().clone()]
    zero = ZeroRedundancyOptimizer(
        [*mine, formatted], torch.optim.Adam, parameters_as_bucket_view=True
    )
    unchanged = worst([*mine, formatted], before)
    channels_last = formatted.is_contiguous(memory_format=torch.channels_last)
    addresses = [param.data_ptr() for param in mine]
    give_gradients(0, mine)
    formatted.grad = torch.ones_like(formatted)
    zero.step()
    stayed = addresses == [param.data_ptr() for param in mine]
    # Saving one parameter does not save the others.
    stayed = stayed and all(p.untyped_storage().nbytes() == p.numel() * 4 for p in mine)
    staged = zero._sharded().core.optimizer.stats().staging_bytes
    zero.close()
    # The arena lives as long as the parameters.
    readable = all(bool(param.isfinite().all()) for param in mine)
    return unchanged, channels_last, stayed, staged, readable


def a_program_that_changes_16_bits(rank: int, world: int) -> Any:
    """Values that a program writes into a parameter are kept, because there is no copy with more bits."""
    mine = [torch.nn.Parameter(torch.randn(300).to(torch.bfloat16))]
    zero = ZeroRedundancyOptimizer(mine, torch.optim.SGD, lr=0.5)
    mine[0].grad = torch.zeros_like(mine[0])
    zero.step()
    with torch.no_grad():
        mine[0].fill_(2.0)
    mine[0].grad = torch.ones_like(mine[0])
    zero.step()
    return float(mine[0].detach().min()), float(mine[0].detach().max())


CASES = (
    groups_with_options_of_their_own,
    any_class_with_a_late_group,
    schedulers,
    closures,
    frozen_now_and_then,
    frozen_with_a_gradient_left,
    no_gradients_at_all,
    gradients_at_new_addresses,
    memory_that_moves,
    arenas,
    a_program_that_changes_16_bits,
)


class Training(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_groups_have_their_options_and_a_late_one_moves_no_owner(self) -> None:
        for difference, same, stayed, options, count in self.of(groups_with_options_of_their_own):
            self.assertLess(difference, 1)
            self.assertTrue(same)
            self.assertTrue(stayed)
            self.assertEqual((options, count), ([True, True, True], 3))

    def test_any_class_takes_a_late_group(self) -> None:
        for difference, same in self.of(any_class_with_a_late_group):
            self.assertEqual(difference, 0)
            self.assertTrue(same)

    def test_schedulers_change_what_steps_do(self) -> None:
        for found in self.of(schedulers):
            for difference, same, same_rate in found:
                self.assertLess(difference, 1)
                self.assertTrue(same)
                self.assertTrue(same_rate)

    def test_a_closure_is_called_once_and_its_loss_returned(self) -> None:
        for found in self.of(closures):
            sgd, rprop = found
            self.assertEqual(sgd[:2], (1.0, 1))
            # The gradient of the first parameter is -1 on rank 0, which owns both: 1 + 0.1 and 2 + 0.1.
            self.assertAlmostEqual(sgd[2], 1.1, places=6)
            self.assertAlmostEqual(sgd[3], 2.1, places=6)
            self.assertEqual(rprop[1], 1)

    def test_frozen_parameters_and_missing_gradients_are_left_alone_with_their_state(self) -> None:
        for found in self.of(frozen_now_and_then):
            for name, difference, same in found:
                self.assertLess(difference, 1, name)
                self.assertTrue(same, name)

    def test_a_frozen_parameter_with_a_gradient_moves_as_unsharded(self) -> None:
        for difference, same in self.of(frozen_with_a_gradient_left):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_a_step_without_gradients_does_nothing_and_counts_nothing(self) -> None:
        for unmoved, loss, step, moved in self.of(no_gradients_at_all):
            self.assertEqual((unmoved, loss, step, moved), (0, 3.5, 1.0, True))

    def test_gradients_are_read_where_they_are_now(self) -> None:
        for difference, same in self.of(gradients_at_new_addresses):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_parameters_are_updated_where_they_are_now(self) -> None:
        for found in self.of(memory_that_moves):
            for view, name, difference, same in found:
                self.assertLess(difference, 1, f"{name}, bucket view {view}")
                self.assertTrue(same, f"{name}, bucket view {view}")

    def test_bucket_views_keep_values_and_formats_and_need_no_copies(self) -> None:
        for world in WORLDS:
            for unchanged, channels_last, stayed, staged, readable in results_of(
                self.found[world], arenas
            ):
                self.assertEqual(unchanged, 0)
                self.assertTrue(channels_last)
                self.assertTrue(stayed)
                self.assertTrue(readable)
                self.assertEqual(staged, 0, f"{world} ranks")

    def test_what_a_program_writes_into_16_bits_is_where_the_next_step_begins(self) -> None:
        for lowest, highest in self.of(a_program_that_changes_16_bits):
            self.assertEqual((lowest, highest), (1.5, 1.5))


if __name__ == "__main__":
    unittest.main()
