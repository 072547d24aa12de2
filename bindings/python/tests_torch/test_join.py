# SPDX-License-Identifier: Apache-2.0
"""Tests Join with ranks that have different numbers of batches, in comparison with one process that
has all batches."""

from __future__ import annotations

import unittest
from typing import Any

import torch
from models import batch, mlp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from libzero.torch import ZeroRedundancyOptimizer, hook_with_zero_step
from support import InAllWorlds, everywhere, worst

BATCHES = {2: ((3, 6), (0, 3), (4, 0), (5, 5)), 3: ((2, 4, 5), (5, 0, 2))}
CLASSES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (torch.optim.Adam, {"lr": 0.01}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    (torch.optim.ASGD, {"lr": 0.05}),
)


def train(
    rank: int, make: Any, batches: tuple[int, ...], closure: bool, view: bool
) -> list[torch.nn.Parameter]:
    ddp = DistributedDataParallel(mlp(), gradient_as_bucket_view=view)
    return train_in(ddp, make(ddp.parameters()), rank, batches, closure)


def train_in(
    ddp: DistributedDataParallel, optimizer: Any, rank: int, batches: tuple[int, ...], closure: bool
) -> list[torch.nn.Parameter]:
    """Train for two epochs. The second has one more batch on every rank and half the rate."""
    for epoch in range(2):
        with Join([ddp, optimizer]):
            for step in range(batches[rank] + epoch):
                inputs, labels = batch(1000 * epoch + 10 * step + rank)

                def loss() -> torch.Tensor:
                    optimizer.zero_grad()
                    value = torch.nn.functional.mse_loss(ddp(inputs), labels)
                    value.backward()
                    return value

                if closure:
                    optimizer.step(loss)
                else:
                    loss()
                    optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    return list(ddp.parameters())


def train_alone(make: Any, batches: tuple[int, ...]) -> list[torch.nn.Parameter]:
    """Train in one process. Each round uses the gradients of the ranks that still have a batch,
    divided by the number of all ranks."""
    model = mlp()
    optimizer = make(model.parameters())
    for epoch in range(2):
        for step in range(max(batches) + epoch):
            optimizer.zero_grad()
            for rank, count in enumerate(batches):
                if step < count + epoch:
                    inputs, labels = batch(1000 * epoch + 10 * step + rank)
                    loss = torch.nn.functional.mse_loss(model(inputs), labels)
                    (loss / len(batches)).backward()
            optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    return list(model.parameters())


def uneven_batches(rank: int, world: int) -> Any:
    found = []
    for batches in BATCHES[world]:
        for place, (chosen, options) in enumerate(CLASSES):
            mine = train(
                rank,
                lambda params: ZeroRedundancyOptimizer(params, chosen, **options),
                batches,
                closure=place == 1,
                view=place == 2,
            )
            others = train_alone(lambda params: chosen(params, **options), batches)
            found.append((batches, chosen.__name__, worst(mine, others), everywhere(mine)))
    return found


def rates_of_their_own(rank: int, world: int) -> Any:
    """A rank without inputs uses the options of the ranks that have inputs."""
    ddp = DistributedDataParallel(mlp())
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    with Join([ddp, zero]):
        for step in range(2 + rank):
            zero.zero_grad()
            inputs, labels = batch(step + rank)
            torch.nn.functional.mse_loss(ddp(inputs), labels).backward()
            zero.param_groups[0]["lr"] = 0.1 / (step + 1)
            zero.step()
    return everywhere(list(ddp.parameters())), zero.param_groups[0]["lr"]


def stops_with_the_first(rank: int, world: int) -> Any:
    ddp = DistributedDataParallel(mlp())
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    steps, said = 0, ""
    try:
        with Join([ddp, zero], throw_on_early_termination=True):
            for step in range(2 + rank):
                zero.zero_grad()
                inputs, labels = batch(step)
                torch.nn.functional.mse_loss(ddp(inputs), labels).backward()
                zero.step()
                steps += 1
    except RuntimeError as error:
        said = str(error)
    return steps, said


def steps_in_the_hook(rank: int, world: int) -> Any:
    found = []
    for batches in BATCHES[world]:
        ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.001)
        zero = ZeroRedundancyOptimizer(
            ddp.parameters(), torch.optim.Adam, overlap_with_ddp=True, lr=0.01
        )
        ddp.register_comm_hook(None, hook_with_zero_step(allreduce_hook, ddp, zero))
        mine = train_in(ddp, zero, rank, batches, closure=False)
        others = train_alone(lambda params: torch.optim.Adam(params, lr=0.01), batches)
        found.append((batches, worst(mine, others), everywhere(mine)))
    return found


def turned_order(rank: int, world: int) -> Any:
    """The order is rejected before any rank has sent data, so that later calls work."""
    ddp = DistributedDataParallel(mlp())
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    said = ""
    try:
        Join([zero, ddp])
    except ValueError as error:
        said = str(error)
    rounds = 0
    # If Join is disabled, the order does not matter. Without a module, any optimizer may be first.
    with Join([zero, ddp], enable=False):
        rounds += 1
    with Join([zero]):
        for _ in range(1 + rank):
            for param in ddp.parameters():
                param.grad = torch.ones_like(param)
            zero.step()
            rounds += 1
    return said, rounds, everywhere(list(ddp.parameters()))


class Strict(torch.optim.SGD):
    """An optimizer of the program that rejects some gradients."""

    refusing = False

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        if self.refusing:
            raise ArithmeticError("refused")
        return super().step(closure)


def a_step_that_raises(rank: int, world: int) -> Any:
    """The first rank's step raises an exception while only the last rank has inputs. The next step
    does not raise one."""
    mine = [torch.nn.Parameter(torch.zeros(4)) for _ in range(2 * world)]
    zero = ZeroRedundancyOptimizer(mine, Strict, lr=1.0)
    for number, param in enumerate(mine):
        param.grad = torch.full((4,), float(10 * rank + number))
    before = [param.grad for param in mine]
    told, kept = "", []
    for refusing in (True, False):
        Strict.refusing = refusing and rank == 0
        try:
            with Join([zero]):
                if rank == world - 1:
                    zero.step()
        except (ArithmeticError, RuntimeError) as error:
            told = f"{type(error).__name__}: {error}"
        kept.append(all(param.grad is grad for param, grad in zip(mine, before)))
    return told, kept, [param[0].item() for param in mine], everywhere(mine)


CASES = (
    uneven_batches,
    rates_of_their_own,
    stops_with_the_first,
    steps_in_the_hook,
    turned_order,
    a_step_that_raises,
)


class JoinedRanks(InAllWorlds):
    worlds, cases = tuple(BATCHES), CASES

    def test_a_step_that_raises_leaves_gradients_as_they_were_and_the_next_one_works(self) -> None:
        for world, rank, (told, kept, values, same) in self.of_ranks(a_step_that_raises):
            self.assertIn("ArithmeticError: refused" if rank == 0 else "on rank 0", told)
            self.assertEqual(kept, [True, True])
            self.assertTrue(same)
            # In the step that raised, other ranks have updated their parameters, which the error
            # mentions.
            for number, value in enumerate(values):
                gradient = 10.0 * (world - 1) + number
                self.assertIn(value, (-gradient, -2 * gradient))

    def test_uneven_batches_train_as_one_process_with_all_of_them(self) -> None:
        for found in self.of(uneven_batches):
            for batches, name, difference, same_everywhere in found:
                self.assertLess(difference, 1, f"{name} with {batches} batches")
                self.assertTrue(same_everywhere, f"{name} with {batches} batches")

    def test_a_rank_without_inputs_follows_the_options_of_the_others(self) -> None:
        for world, _, (same_everywhere, rate) in self.of_ranks(rates_of_their_own):
            self.assertTrue(same_everywhere)
            self.assertAlmostEqual(rate, 0.1 / (1 + world))

    def test_a_rank_without_inputs_steps_in_the_hook_as_the_others_do(self) -> None:
        for found in self.of(steps_in_the_hook):
            for batches, difference, same_everywhere in found:
                self.assertLess(difference, 1, f"{batches} batches")
                self.assertTrue(same_everywhere, f"{batches} batches")

    def test_the_optimizer_before_the_module_is_refused_at_once(self) -> None:
        for _, rank, (said, rounds, same_everywhere) in self.of_ranks(turned_order):
            self.assertIn("Join([ddp, optimizer])", said)
            self.assertEqual(rounds, 2 + rank)
            self.assertTrue(same_everywhere)

    def test_all_stop_with_the_first_where_the_program_wants_that(self) -> None:
        for _, rank, (steps, said) in self.of_ranks(stops_with_the_first):
            self.assertEqual(steps, 2)
            self.assertIn("exhausted", said, f"rank {rank}")


if __name__ == "__main__":
    unittest.main()
