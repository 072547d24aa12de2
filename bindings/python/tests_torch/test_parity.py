# SPDX-License-Identifier: Apache-2.0
"""Tests that ZeroRedundancyOptimizer trains like torch's class and like the optimizer that it
shards."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from models import CLASSES, DOCUMENTED, batch, class_of, copies, give_gradients, mlp, parameters
from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZero
from torch.nn.parallel import DistributedDataParallel

from libzero.torch import ZeroRedundancyOptimizer
from support import assert_trained_alike, bits, everywhere, results_of, run_cases, worst

WORLDS = (1, 2, 3)


def example(rank: int, zero: Any, name: str, options: dict[str, Any], view: bool) -> list[Any]:
    """Run torch's documented example. Only the class of the optimizer is an argument."""
    ddp = DistributedDataParallel(mlp())
    loss_fn = torch.nn.MSELoss()
    optimizer = zero(
        ddp.parameters(),
        optimizer_class=class_of(name),
        parameters_as_bucket_view=view,
        **options,
    )
    for step in range(50):
        inputs, labels = batch(100 * step + rank)
        optimizer.zero_grad()
        loss_fn(ddp(inputs), labels).backward()
        optimizer.step()
    return list(ddp.parameters())


def documented_example(rank: int, world: int) -> list[Any]:
    found = []
    for name, options in DOCUMENTED:
        for view in (False, True):
            mine = example(rank, ZeroRedundancyOptimizer, name, options, view)
            others = example(rank, TorchZero, name, options, view)
            moved = worst(mine, list(mlp().parameters()))
            found.append((name, worst(mine, others), everywhere(mine), moved > 1000))
    return found


def every_class(rank: int, world: int) -> list[Any]:
    found = []
    for name, options in CLASSES:
        mine = parameters(1)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, class_of(name), **options)
        plain = class_of(name)(others, **options)
        for step in range(10):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
        found.append((name, zero.rule, worst(mine, others), everywhere(mine), bits(mine)))
        zero.close()
    return found


class Own(torch.optim.Adam):
    """A class of the program. Its step has an additional argument, and writes an option."""

    def step(self, closure: Any = None, scale: float = 1.0) -> Any:
        for group in self.param_groups:
            group["seen"] = group.get("seen", 0) + 1
            for param in group["params"]:
                if param.grad is not None:
                    param.grad.mul_(scale)
        return super().step(closure)


def any_other_class(rank: int, world: int) -> list[Any]:
    found = []
    for chosen, options in (
        (torch.optim.ASGD, {"lr": 0.1}),
        (Own, {"lr": 0.01}),
    ):
        mine = parameters(2)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, chosen, **options)
        plain = chosen(others, **options)
        arguments = {"scale": 0.5} if chosen is Own else {}
        for step in range(6):
            give_gradients(step, mine, others)
            with torch.no_grad():
                zero.step(**arguments)
                plain.step(**arguments)
        groups = zero.param_groups[0].get("seen", 6)
        found.append(
            (chosen.__name__, zero.rule, bits(mine) == bits(others), everywhere(mine), groups)
        )
        zero.close()
    return found


def complex_parameters(rank: int, world: int) -> list[Any]:
    torch.manual_seed(4)
    mine = [torch.nn.Parameter(torch.randn(6, 3, dtype=torch.complex64)) for _ in range(3)]
    others = copies(mine)
    zero = ZeroRedundancyOptimizer(mine, torch.optim.Adam, lr=0.1)
    plain = torch.optim.Adam(others, lr=0.1)
    for _ in range(3):
        for one, other in zip(mine, others):
            one.grad = torch.ones_like(one) * (1 + 2j)
            other.grad = one.grad.clone()
        zero.step()
        plain.step()
    equal = all(torch.equal(one, other) for one, other in zip(mine, others))
    zero.close()
    return [zero.rule, equal]


def dtypes_and_formats(rank: int, world: int) -> list[Any]:
    """Use mixed dtypes, channels-last and a transposed matrix. Integer parameters are frozen."""
    torch.manual_seed(5)
    mine = [
        torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)),
        torch.nn.Parameter(torch.randn(30, 20).t()),
        torch.nn.Parameter(torch.randn(50, dtype=torch.float64)),
        torch.nn.Parameter(torch.tensor([1, 2, 3]), requires_grad=False),
        torch.nn.Parameter(torch.randn(70).to(torch.bfloat16)),
    ]
    others = [
        torch.nn.Parameter(param.detach().clone(), requires_grad=param.requires_grad)
        for param in mine
    ]
    strides = [param.stride() for param in mine]
    zero = ZeroRedundancyOptimizer(mine, torch.optim.AdamW, lr=0.01)
    plain = torch.optim.AdamW(others, lr=0.01)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        for one, other in zip(mine, others):
            if one.requires_grad:
                # The gradient is contiguous, and not in the memory format of the parameter.
                one.grad = torch.randn(one.shape, generator=generator).to(one.dtype)
                other.grad = one.grad.clone()
        zero.step()
        plain.step()
    zero.consolidate_state_dict(0)
    state = True
    if rank == 0:
        saved = zero.state_dict()["state"]
        state = 3 not in saved and all(
            worst([saved[number]["exp_avg"]], [plain.state[others[number]]["exp_avg"]]) < 1
            for number in (0, 1, 2)
        )
    sixteen = (mine[4] - others[4]).abs().max().item()
    zero.close()
    kept = strides == [param.stride() for param in mine]
    return [worst(mine[:4], others[:4]), sixteen, kept, everywhere(mine), state]


def the_groups_collectives(rank: int, world: int) -> list[Any]:
    """Make each rank believe that it is on a separate host."""
    from libzero.torch import _group

    mine = parameters(1)
    true_host = _group._host
    _group._host = lambda: f"host {rank}"
    try:
        zero = ZeroRedundancyOptimizer(mine, torch.optim.AdamW, lr=1e-2, maximize=True, eps=1e-6)
    finally:
        _group._host = true_host
    for step in range(10):
        give_gradients(step, mine)
        zero.step()
    zero.consolidate_state_dict(world - 1)
    names = sorted(zero.state_dict()["state"]) if rank == world - 1 else None
    zero.close()
    return [bits(mine), everywhere(mine), names]


def a_group_of_some_ranks(rank: int, world: int) -> list[Any]:
    """Use the group {0, 2} of three ranks. Its members have the ranks 0 and 1."""
    group = dist.new_group([0, 2])
    if rank == 1:
        return []
    found: list[Any] = []
    for chosen in (torch.optim.Adam, torch.optim.ASGD):
        mine = parameters(6)
        others = copies(mine)
        zero = ZeroRedundancyOptimizer(mine, chosen, process_group=group, lr=0.01)
        plain = chosen(others, lr=0.01)
        for step in range(5):
            give_gradients(step, mine, others)
            zero.step()
            plain.step()
        zero.consolidate_state_dict(to=1)
        count = len(zero.state_dict()["state"]) if rank == 2 else 0
        found.append((zero.rank, zero.world_size, zero.global_rank, worst(mine, others), count))
        zero.close()
    return found


class Parity(unittest.TestCase):
    found: dict[int, dict[str, list[Any]]]

    @classmethod
    def setUpClass(cls) -> None:
        cases = [
            documented_example,
            every_class,
            any_other_class,
            complex_parameters,
            dtypes_and_formats,
            the_groups_collectives,
        ]
        cls.found = {
            world: run_cases(world, [*cases, a_group_of_some_ranks] if world == 3 else cases)
            for world in WORLDS
        }

    def of(self, case: Any) -> Iterator[Any]:
        for world in WORLDS:
            yield from results_of(self.found[world], case)

    def test_the_documented_example_ends_where_torchs_own_optimizer_does(self) -> None:
        for found in self.of(documented_example):
            assert_trained_alike(self, found)

    def test_every_class_and_option_follows_the_unsharded_optimizer(self) -> None:
        for found in self.of(every_class):
            for (name, options), (_, rule, difference, same_everywhere, _) in zip(CLASSES, found):
                wanted = "adamw" if "decoupled_weight_decay" in options else name.lower()
                self.assertEqual(rule, "radam" if name == "RAdam" else wanted)
                self.assertLess(difference, 1, f"{name} {options}")
                self.assertTrue(same_everywhere, name)

    def test_the_bits_of_a_training_are_the_same_in_every_world(self) -> None:
        alone = results_of(self.found[1], every_class)[0]
        for found in self.of(every_class):
            for one, other in zip(alone, found):
                self.assertEqual(one[-1], other[-1], one[0])

    def test_any_other_class_steps_itself_with_its_arguments_to_the_same_bits(self) -> None:
        for found in self.of(any_other_class):
            for name, rule, equal, same_everywhere, seen in found:
                self.assertIsNone(rule, name)
                self.assertTrue(equal, name)
                self.assertTrue(same_everywhere, name)
                self.assertEqual(seen, 6, "options that the step writes are seen outside")

    def test_complex_parameters_train_as_unsharded_ones(self) -> None:
        for rule, equal in self.of(complex_parameters):
            self.assertIsNone(rule)
            self.assertTrue(equal)

    def test_dtypes_may_be_mixed_and_memory_formats_stay(self) -> None:
        for difference, sixteen, kept, same_everywhere, state in self.of(dtypes_and_formats):
            self.assertLess(difference, 1)
            self.assertLess(sixteen, 0.02)  # two steps of bfloat16 for values near 1
            self.assertTrue(kept)
            self.assertTrue(same_everywhere)
            self.assertTrue(state)

    def test_the_process_groups_collectives_give_the_same_bits(self) -> None:
        alone = dict((entry[0], entry[-1]) for entry in results_of(self.found[1], every_class)[0])
        for values, same_everywhere, names in self.of(the_groups_collectives):
            self.assertEqual(values, alone["AdamW"])
            self.assertTrue(same_everywhere)
            self.assertIn(names, (None, [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4, 5, 6]))

    def test_a_group_of_some_ranks_trains_by_its_own_numbers(self) -> None:
        found = results_of(self.found[3], a_group_of_some_ranks)
        self.assertEqual(found[1], [])
        for place, global_rank in ((0, 0), (1, 2)):
            for rank, world, named, difference, count in found[global_rank]:
                self.assertEqual((rank, world, named), (place, 2, global_rank))
                self.assertLess(difference, 1)
                self.assertEqual(count > 5, place == 1)


if __name__ == "__main__":
    unittest.main()
