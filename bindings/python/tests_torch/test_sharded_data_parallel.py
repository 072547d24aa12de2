# SPDX-License-Identifier: Apache-2.0
"""Tests that OSS with ShardedDataParallel trains like fairscale's classes, or like one process
where fairscale's are wrong."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel as FairParallel
from fairscale.optim.oss import OSS as FairOSS
from models import DOCUMENTED, batch, class_of, mlp
from random_programs import Pieces, freeze, program, unsharded
from torch import nn

from libzero.torch import OSS, ShardedDataParallel
from support import InAllWorlds, assert_trained_alike, everywhere, worst

WORLDS = (1, 2, 3)
PROGRAMS = 40


def example(
    rank: int, oss: Any, parallel: Any, name: str, options: dict[str, Any], **more: Any
) -> list[Any]:
    """Run fairscale's documented example. Only the classes are arguments."""
    model = mlp()
    optimizer = oss(params=model.parameters(), optim=class_of(name), **options)
    model = parallel(model, optimizer, **more)
    loss_fn = nn.MSELoss()
    model.train()
    for step in range(50):
        inputs, labels = batch(100 * step + rank)
        model.zero_grad()
        outputs = model(inputs)
        loss_fn(outputs, labels).backward()
        optimizer.step()
    return list(model.parameters())


def clear(model: Any, optimizer: OSS, how: str, turn: int) -> None:
    """Clear gradients with any of the methods that a program may call."""
    if how == "keep":
        return
    ways = [model.zero_grad, model.module.zero_grad, optimizer.zero_grad]
    ways[turn % 3](set_to_none=how == "none")


def sharded(rank: int, world: int, seed: int, **more: Any) -> tuple[float, float, bool]:
    steps = program(seed, world)
    mine, other = Pieces(), Pieces()
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    plain = torch.optim.SGD(other.parameters(), **options)
    wanted = unsharded(other, plain, steps, world)
    optimizer = OSS(mine.parameters(), torch.optim.SGD, **options)
    model = ShardedDataParallel(mine, optimizer, warn_on_trainable_params_changed=False, **more)
    norms = []
    for turn, step in enumerate(steps):
        freeze(mine, step)
        clear(model, optimizer, step.clear, turn)
        for micro in step.micro:
            if micro.synced:
                model(micro.value, micro.used[rank]).backward()
            else:
                with model.no_sync():
                    model(micro.value, micro.used[rank]).backward()
        if step.clip:
            norms.append(float(optimizer.clip_grad_norm(step.clip)))
        optimizer.step()
    difference = worst(list(mine.parameters()), list(other.parameters()))
    apart = worst([torch.tensor(norms)], [torch.tensor(wanted)])
    same = everywhere(list(mine.parameters()))
    optimizer.close()
    return difference, apart, same


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        raise KeyError("of the program")


def documented_example(rank: int, world: int) -> Any:
    found = []
    for name, options in DOCUMENTED:
        for size in (0, 2**23):
            more = {"reduce_buffer_size": size}
            mine = example(rank, OSS, ShardedDataParallel, name, options, **more)
            others = example(rank, FairOSS, FairParallel, name, options, **more)
            moved = worst(mine, list(mlp().parameters()))
            found.append((name, worst(mine, others), everywhere(mine), moved > 1000))
    return found


def any_program(rank: int, world: int) -> Any:
    return [sharded(rank, world, seed) for seed in range(PROGRAMS)]


def an_exception_in_no_sync(rank: int, world: int) -> Any:
    """All ranks or one rank leave no_sync through an exception. The next backward pass reduces
    gradients at its end."""
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = OSS(model.parameters(), lr=0.1)
    parallel = ShardedDataParallel(model, optimizer)
    here = []
    for raising in (True, rank == 0):
        parallel.zero_grad(set_to_none=True)
        try:
            with parallel.no_sync():
                parallel(torch.ones(1, 3)).sum().backward()
                if raising:
                    raise KeyError("of the program")
        except KeyError:
            pass
        parallel.zero_grad(set_to_none=True)
        parallel(torch.full((1, 3), float(rank))).sum().backward()
        here.append(model.weight.grad is not None)
        optimizer.step()
    return model.weight.flatten().tolist(), here


def a_backward_that_fails(rank: int, world: int) -> Any:
    """The backward pass fails after half of the gradients exist. Later results are as without the
    failure."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    fail = [True]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            hidden = self.first(given)
            return self.second(Fails.apply(hidden) if fail[0] else hidden)  # type: ignore

    for one in (first, second):
        for param in one.parameters():
            nn.init.ones_(param)
    optimizer = OSS([*first.parameters(), *second.parameters()], lr=0.01)
    parallel = ShardedDataParallel(Model(), optimizer)
    raised = 0
    try:
        parallel(torch.ones(1, 3)).sum().backward()
    except KeyError:
        raised += 1
    fail[0] = False
    optimizer.zero_grad()
    parallel(torch.full((1, 3), float(rank))).sum().backward()
    optimizer.step()
    return raised, second.bias.item(), first.bias.tolist()


def checkpoints_and_tied_weights(rank: int, world: int) -> Any:
    """A weight is used in two backward passes that run inside another backward pass, and outside of
    them."""
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.tied, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, given: torch.Tensor, plain: bool = False) -> torch.Tensor:
            for _ in range(2):
                given = (
                    self.tied(given).tanh()
                    if plain
                    else checkpoint(lambda x: self.tied(x).tanh(), given, use_reentrant=True)
                )
            return self.last(self.tied(given)).sum()  # type: ignore[no-any-return]

    mine, other = Model(), Model()
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    optimizer = OSS(mine.parameters(), lr=0.1)
    parallel = ShardedDataParallel(mine, optimizer)
    for step in range(3):
        parallel.zero_grad(set_to_none=True)
        plain.zero_grad()
        inputs = [batch(10 * step + r)[0][:, :4].requires_grad_() for r in range(world)]
        parallel(inputs[rank]).backward()
        for one in inputs:
            (other(one, True) / world).backward()
        optimizer.step()
        plain.step()
    difference = worst(list(mine.parameters()), list(other.parameters()))
    return difference, everywhere(list(mine.parameters()))


def sub_groups(rank: int, world: int) -> Any:
    """Ranks other than the first form separate groups. Each group trains with its own mean."""
    found = []
    for ranks in ([0, 2], [1, 2], [2]):
        group = dist.new_group(ranks) if max(ranks) < world else None
        if group is None or rank not in ranks:
            continue
        model = Pieces()
        other = Pieces()
        optimizer = OSS(model.parameters(), group=group, lr=0.1)
        parallel = ShardedDataParallel(model, optimizer, process_group=group)
        plain = torch.optim.SGD(other.parameters(), lr=0.1)
        norms = []
        for _ in range(3):
            plain.zero_grad()
            optimizer.zero_grad()
            parallel(float(rank), [0, 1, 2, 3, 4]).backward()
            for one in ranks:
                (other(float(one), [0, 1, 2, 3, 4]) / len(ranks)).backward()
            norms.append(optimizer.clip_grad_norm(2.0))
            norms.append(-nn.utils.clip_grad_norm_(other.parameters(), 2.0))
            optimizer.step()
            plain.step()
        away = float(sum(norms).abs())  # type: ignore[union-attr]
        found.append((worst(list(model.parameters()), list(other.parameters())), away))
    return found


def two_optimizers(rank: int, world: int) -> Any:
    """Two optimizers train one model. A group is added to one of them during training."""
    mine, other = Pieces(), Pieces()
    pieces, twins = list(mine.pieces), list(other.pieces)
    first = OSS(pieces[:2], torch.optim.Adam, lr=0.1)
    second = OSS(pieces[2:4], lr=0.1, momentum=0.5)
    plain = [
        torch.optim.Adam(twins[:2], lr=0.1),
        torch.optim.SGD(twins[2:4], lr=0.1, momentum=0.5),
    ]
    parallel = ShardedDataParallel(mine, [first, second])
    for step in range(6):
        if step == 3:
            second.add_param_group({"params": pieces[4:], "lr": 0.3})
            plain[1].add_param_group({"params": twins[4:], "lr": 0.3})
        parallel.zero_grad()
        other.zero_grad()
        parallel(float(rank + step), list(range(6))).backward()
        for one in range(world):
            (other(float(one + step), list(range(6))) / world).backward()
        for optimizer in (first, second, *plain):
            optimizer.step()
    return worst(pieces, twins), everywhere(pieces)


def another_dtype(rank: int, world: int) -> Any:
    """The model and its state become float64 and then float32 again."""
    mine, other = mlp(), mlp()
    optimizer = OSS(mine.parameters(), torch.optim.Adam, lr=0.01)
    parallel = ShardedDataParallel(mine, optimizer)
    plain = torch.optim.Adam(other.parameters(), lr=0.01)
    for step in range(6):
        if step in (2, 4):
            dtype = torch.float64 if step == 2 else torch.float32
            # libzero treats a move to another device in the same way, but this machine has only one
            # device.
            returned = parallel.to("cpu", dtype)
            assert returned is parallel
            other.to(dtype)
            for state in plain.state.values():
                state.update({key: state[key].to(dtype) for key in ("exp_avg", "exp_avg_sq")})
        parallel.zero_grad()
        plain.zero_grad()
        for one in range(world):
            given = batch(step * 10 + one)[0].to(next(other.parameters()).dtype)
            if one == rank:
                parallel(given).sum().backward()
            (other(given).sum() / world).backward()
        optimizer.step()
        plain.step()
    return worst(list(mine.parameters()), list(other.parameters())), everywhere(
        list(mine.parameters())
    )


CASES = (
    documented_example,
    any_program,
    an_exception_in_no_sync,
    a_backward_that_fails,
    checkpoints_and_tied_weights,
    sub_groups,
    two_optimizers,
    another_dtype,
)


class Sharded(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_the_documented_example_trains_as_fairscales(self) -> None:
        for _, _, found in self.of_ranks(documented_example):
            self.assertEqual(len(found), 10)
            assert_trained_alike(self, found)

    def test_any_program_trains_as_one_process(self) -> None:
        for world, _, found in self.of_ranks(any_program):
            self.assertEqual(len(found), PROGRAMS)
            for seed, (difference, norms, same) in enumerate(found):
                self.assertLess(difference, 1, f"seed {seed}, {world} ranks")
                self.assertLess(norms, 1, f"seed {seed}, {world} ranks")
                self.assertTrue(same, f"seed {seed}, {world} ranks")

    def test_an_exception_ends_no_sync(self) -> None:
        for world, rank, (values, here) in self.of_ranks(an_exception_in_no_sync):
            for value in values:
                self.assertAlmostEqual(value, -0.1 * (world - 1), places=6)
            self.assertEqual(here, [rank == 0] * 2)

    def test_after_a_backward_that_failed_the_next_one_counts_alone(self) -> None:
        for _, _, (raised, second, first) in self.of_ranks(a_backward_that_fails):
            self.assertEqual(raised, 1)
            for value in (second, *first):
                self.assertAlmostEqual(value, 0.99, places=6)

    def test_backwards_within_backwards_and_tied_weights_train_as_one_process(self) -> None:
        for _, _, (difference, same) in self.of_ranks(checkpoints_and_tied_weights):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_every_rank_of_a_sub_group_trains_its_own(self) -> None:
        counts = []
        for world, _, found in self.of_ranks(sub_groups):
            if world == 3:
                counts.append(len(found))
            for difference, norms in found:
                self.assertLess(difference, 1)
                self.assertLess(norms, 1e-4)
        self.assertEqual(counts, [1, 1, 3])

    def test_two_optimizers_and_a_late_group_train_as_two_in_one_process(self) -> None:
        for _, _, (difference, same) in self.of_ranks(two_optimizers):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_a_model_in_another_dtype_goes_on_with_its_state(self) -> None:
        for _, _, (difference, same) in self.of_ranks(another_dtype):
            self.assertLess(difference, 1)
            self.assertTrue(same)


if __name__ == "__main__":
    unittest.main()
