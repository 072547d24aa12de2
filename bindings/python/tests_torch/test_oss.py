# SPDX-License-Identifier: Apache-2.0
"""Tests that OSS trains like fairscale's OSS, or like one optimizer where fairscale's is wrong."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from fairscale.optim.oss import OSS as FairOSS
from models import DOCUMENTED, batch, class_of, copies, give_gradients, mlp, parameters
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from libzero import ZeroError
from libzero.torch import OSS
from support import InAllWorlds, assert_trained_alike, bits, everywhere, worst

WORLDS = (1, 2, 3)


def example(rank: int, oss: Any, name: str, options: dict[str, Any]) -> list[Any]:
    """Run fairscale's documented example with DDP and clipping. Only the class is an argument."""
    model = DistributedDataParallel(mlp())
    loss_fn = nn.MSELoss()
    optimizer = oss(params=model.parameters(), optim=class_of(name), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
    for step in range(50):
        inputs, labels = batch(100 * step + rank)
        model.zero_grad()
        loss_fn(model(inputs), labels).backward()
        optimizer.clip_grad_norm(0.5)
        optimizer.step()
        scheduler.step()
    return list(model.parameters())


def owners_of(optimizer: Any, params: list[Any]) -> list[int]:
    found = {}
    for rank, groups in enumerate(optimizer.partition_parameters()):
        for group in groups:
            found.update({id(param): rank for param in group["params"]})
    return [found[id(param)] for param in params]


def documented_example(rank: int, world: int) -> Any:
    found = []
    for name, options in DOCUMENTED:
        mine = example(rank, OSS, name, options)
        others = example(rank, FairOSS, name, options)
        moved = worst(mine, list(mlp().parameters()))
        found.append((name, worst(mine, others), everywhere(mine), moved > 1000))
    return found


def owners(rank: int, world: int) -> Any:
    """Owners are the same as fairscale's, also for a group that is added later. Owners of existing
    parameters never change."""
    params = [nn.Parameter(torch.zeros(size, 1)) for size in (9, 7, 5, 3) * world]
    held = params[:-3]
    late = params[-3:]
    mine, other = OSS(held, lr=0.1), FairOSS(copies(held), lr=0.1)
    first = owners_of(mine, held) == owners_of(other, other.param_groups[0]["params"])
    mine.add_param_group({"params": late})
    other.add_param_group({"params": copies(late)})
    all_of_it = [param for group in other.param_groups for param in group["params"]]
    second = owners_of(mine, params) == owners_of(other, all_of_it)
    lists = [[len(group["params"]) for group in one] for one in mine.partition_parameters()]
    freezes = [nn.Parameter(torch.ones(size)) for size in (10, 6, 5, 4)]
    kept = OSS(freezes, lr=0.1)
    before = owners_of(kept, freezes)
    freezes[0].requires_grad_(False)
    kept.refresh_trainable()
    more = [nn.Parameter(torch.ones(3))]
    kept.add_param_group({"params": more})
    after = owners_of(kept, freezes)
    for param in (*freezes[1:], *more):
        param.grad = torch.ones_like(param)
    kept.step()
    values = [param.detach().unique().tolist() for param in (*freezes, *more)]
    return first, second, [sum(one) for one in zip(*lists)], before == after, values


def shared_in_halves(rank: int, world: int) -> Any:
    """With broadcast_fp16, small updates accumulate, other dtypes are not rounded, and all ranks
    hold the same values."""
    ones = nn.Parameter(torch.ones(5))
    double = nn.Parameter(torch.ones(2, dtype=torch.float64))
    brain = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    params = [ones, double, brain]
    optimizer = OSS(params, torch.optim.Adam, lr=1e-4, broadcast_fp16=True)
    for _ in range(100):
        for param in (ones, double):
            param.grad = torch.ones_like(param)
        optimizer.step()
    rounded = [value == float(torch.tensor(value).half()) for value in ones.tolist()]
    same = everywhere(params)
    found = [ones.tolist(), double.tolist(), [str(p.dtype) for p in params]]
    told = ""
    large = nn.Parameter(torch.tensor([70000.0, 1.0]))
    large.grad = torch.ones(2)
    try:
        OSS([nn.Parameter(torch.ones(3)), large], lr=1.0, broadcast_fp16=True).step()
    except ValueError as error:
        told = str(error)
    return found, all(rounded), same, told, large.tolist()


def programs_write_into_masters(rank: int, world: int) -> Any:
    """If parameters have master weights, the next step begins with the values that a program has
    written. A run whose model and optimizer are reset, in either order, repeats its results."""
    params = parameters(1)
    optimizer = OSS(params, lr=1.0, broadcast_fp16=True)
    for param in params:
        param.data.fill_(3.0)  # no counter of torch registers this write
        param.grad = torch.ones_like(param)
    optimizer.step()
    written = all(bool((param == 2).all()) for param in params)
    params[0].data.fill_(1 / 3)
    params[0].grad = None
    optimizer.step()
    same = everywhere(params)
    optimizer.close()

    model = mlp()
    runner = OSS(model.parameters(), torch.optim.RMSprop, lr=0.01, broadcast_fp16=True)

    def train(first: int) -> list[float]:
        losses = []
        for step in range(first, first + 3):
            inputs, labels = batch(step)
            runner.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), labels)
            loss.backward()
            runner.step()
            losses.append(loss.item())
        return [*losses, *bits(list(model.parameters()))]

    train(0)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    state = runner.state_dict(all_ranks=True)
    first = train(10)
    equal = []
    for order in (0, 1):
        for turn in (order, 1 - order):
            if turn == 0:
                model.load_state_dict(values)
            else:
                runner.load_state_dict(state)
        equal.append(train(10) == first)
    plain = torch.optim.RMSprop(model.parameters(), lr=0.01)
    plain.load_state_dict(state)
    plain.step()
    other = OSS(mlp().parameters(), torch.optim.RMSprop)
    other.load_state_dict(state)
    return written, same, equal


def frozen_and_loaded(rank: int, world: int) -> Any:
    """Only the owner of a frozen parameter has a gradient for it. The parameter changes as in the
    unsharded optimizer, and a load in between gives the same values on all ranks."""
    mine, others = parameters(1), parameters(1)
    optimizer = OSS(mine, torch.optim.SGD, lr=0.1, momentum=0.9)
    plain = torch.optim.SGD(others, lr=0.1, momentum=0.9)
    owned = {id(p) for group in optimizer.partition_parameters()[rank] for p in group["params"]}
    for step in range(6):
        if step in (0, 3):
            give_gradients(step, mine, others)
            for param in mine:
                if id(param) not in owned:
                    param.grad = None
        if step == 1:
            for param in (*mine[:3], *others[:3]):
                param.requires_grad_(False)
        if step == 4:
            optimizer.load_state_dict(optimizer.state_dict(all_ranks=True))
        optimizer.step()
        plain.step()
    return worst(mine, others), everywhere(mine)


def gradients_elsewhere(rank: int, world: int) -> Any:
    """If the owner of a parameter has no gradient, the parameter does not change, even if other
    ranks have gradients."""
    found = []
    for chosen in (torch.optim.SGD, torch.optim.ASGD):
        params = [nn.Parameter(torch.ones(2)) for _ in range(world)]
        optimizer = OSS(params, chosen, lr=0.1, weight_decay=0.5)
        for number, owner in enumerate(owners_of(optimizer, params)):
            if number == 0 or owner != rank:
                params[number].grad = torch.ones(2)
        optimizer.step()
        found.append([param[0].item() == 1 for param in params])
    return found


def arguments_and_closures(rank: int, world: int) -> Any:
    class Scaled(torch.optim.SGD):
        def step(self, closure: Any = None, factor: float = 1.0) -> Any:  # type: ignore[override]
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad = param.grad * factor
            return super().step(closure)

    weight = nn.Parameter(torch.zeros(1))
    optimizer = OSS([weight], Scaled, lr=1.0)
    weight.grad = torch.ones(1)
    optimizer.step(factor=0.5)
    found: list[Any] = [weight.item()]
    plain = OSS([weight], lr=1.0)

    def closure() -> float:
        weight.grad = torch.ones(1)
        return 7.0

    found += [plain.step(closure), weight.item(), plain.step(closure=closure), weight.item()]
    try:
        plain.step(factor=2.0)
    except TypeError as error:
        found.append(str(error))
    return found


def refusals(rank: int, world: int) -> Any:
    found = []
    for params, error_type in (
        (torch.zeros(3), TypeError),
        ([], ValueError),
        ([3], TypeError),
        ([torch.zeros(2).to_sparse()], TypeError),
        ([nn.Parameter(torch.zeros(2).to(torch.float8_e5m2))], TypeError),
    ):
        try:
            OSS(params)
        except error_type as error:
            found.append(bool(str(error)))
    if world > 1:
        try:
            OSS([torch.zeros(3 + rank)], lr=0.1)
        except ZeroError as error:
            found.append(error.name in ("ZERO_ERR_MISMATCH", "ZERO_ERR_PEER"))
    closed = OSS([torch.zeros(3)])
    closed.close()
    closed.close()
    for call in (closed.step, closed.partition_parameters, closed.refresh_trainable):
        try:
            call()
        except RuntimeError as error:
            found.append("closed" in str(error))
    return found


CASES = (
    documented_example,
    owners,
    shared_in_halves,
    programs_write_into_masters,
    frozen_and_loaded,
    gradients_elsewhere,
    arguments_and_closures,
    refusals,
)


class Oss(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_the_documented_example_trains_and_clips_as_fairscales(self) -> None:
        for _, _, found in self.of_ranks(documented_example):
            self.assertEqual(len(found), 5)
            assert_trained_alike(self, found)

    def test_owners_are_fairscales_and_never_change(self) -> None:
        for world, _, (first, second, sizes, stayed, values) in self.of_ranks(owners):
            self.assertTrue(first)
            self.assertTrue(second)
            self.assertEqual(sizes, [4 * world - 3, 3])
            self.assertTrue(stayed)
            self.assertEqual(values[0], [1.0])
            for (value,) in values[1:]:
                self.assertAlmostEqual(value, 0.9, places=6)

    def test_sharing_in_halves_loses_no_updates_and_no_dtypes(self) -> None:
        for _, _, ((ones, double, dtypes), rounded, same, *large) in self.of_ranks(
            shared_in_halves
        ):
            for value in ones:
                self.assertAlmostEqual(value, 0.99, delta=0.0005)
            self.assertIn("parameter 1 has values", large[0])
            self.assertEqual(large[1], [70000.0, 1.0])
            for value in double:
                self.assertAlmostEqual(value, 0.99, places=9)
            kinds = ["float32", "float64", "bfloat16"]
            self.assertEqual(dtypes, [f"torch.{kind}" for kind in kinds])
            self.assertTrue(rounded)
            self.assertTrue(same)

    def test_what_a_program_writes_is_kept_by_masters_and_runs_are_set_back(self) -> None:
        for _, _, (written, same, equal) in self.of_ranks(programs_write_into_masters):
            self.assertTrue(written)
            self.assertTrue(same)
            self.assertEqual(equal, [True, True])

    def test_a_frozen_parameters_gradient_may_be_on_its_owner_alone(self) -> None:
        for _, _, (difference, same) in self.of_ranks(frozen_and_loaded):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_a_parameter_whose_owner_has_no_gradient_is_left_alone(self) -> None:
        for world, _, found in self.of_ranks(gradients_elsewhere):
            self.assertEqual(found, [[False] + [True] * (world - 1)] * 2)

    def test_steps_take_arguments_of_the_class_and_closures(self) -> None:
        for _, _, found in self.of_ranks(arguments_and_closures):
            self.assertEqual(found[:5], [-0.5, 7.0, -1.5, 7.0, -2.5])
            self.assertIn("factor", found[5])

    def test_what_makes_no_sense_is_refused(self) -> None:
        for world, _, found in self.of_ranks(refusals):
            self.assertEqual(found, [True] * (9 if world > 1 else 8))


if __name__ == "__main__":
    unittest.main()
