# SPDX-License-Identifier: Apache-2.0
"""Tests the visible behaviour of ShardedDataParallel: gradients, buffers, attributes, and
errors."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel as FairParallel
from fairscale.optim.oss import OSS as FairOSS
from models import mlp
from random_programs import Pieces
from torch import nn

from libzero.torch import OSS, ShardedDataParallel
from support import InAllWorlds, bits, everywhere, worst

WORLDS = (1, 2, 3)


def gradients_after_a_backward(rank: int, world: int) -> Any:
    """The owner has the mean, and other ranks have no gradient."""
    model = Pieces()
    optimizer = OSS(model.parameters(), lr=0.1)
    parallel = ShardedDataParallel(model, optimizer)
    start = bits(list(model.parameters()))
    parallel(float(rank), [0, 1, 2, 3]).backward()
    mine = {id(p) for p in optimizer.partition_parameters()[rank][0]["params"]}
    wrong = []
    mean = (world - 1) / 2
    for number, (piece, values) in enumerate(zip(model.pieces, start)):
        if id(piece) not in mine or number > 3:
            if piece.grad is not None:
                wrong.append(number)
        else:
            wanted = torch.tensor(values).view(piece.shape) * 0.5 + mean + number
            if piece.grad is None or worst([piece.grad], [wanted.float()]) >= 1:
                wrong.append(number)
    return wrong


def buffers(rank: int, world: int) -> Any:
    """Buffers are copied when a model is wrapped and in each forward pass, also in eval mode, but
    not within no_sync."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), float(rank)))
            self.register_buffer("mean", torch.full((5,), rank + 0.5, dtype=torch.float16))
            self.register_buffer("count", torch.tensor(rank))
            self.register_buffer("mask", torch.tensor([rank == 0, True]), persistent=False)

        def forward(self) -> torch.Tensor:
            return self.weight.sum()

        def values(self) -> list[Any]:
            held: Any = self
            return [held.mean.tolist(), held.count.item(), held.mask.tolist()]

    model = Model()
    optimizer = OSS(model.parameters(), lr=0.1)
    parallel = ShardedDataParallel(model, optimizer)
    found = [model.weight.tolist(), model.values()]
    for mode, synced in (("eval", True), ("train", True), ("train", False)):
        getattr(parallel, mode)()
        model.count.fill_(10 + rank)
        if synced:
            parallel()
        else:
            with parallel.no_sync():
                parallel()
        found.append(model.count.item())
    kept = ShardedDataParallel(model, optimizer, broadcast_buffers=False)
    model.count.fill_(20 + rank)
    kept()
    found.append(model.count.item())
    other = Model()
    ShardedDataParallel(other, OSS(other.parameters()), sync_models_at_startup=False)
    found.append(other.weight.tolist())
    return found


def refusals(rank: int, world: int) -> Any:
    found = []

    def tell(error_type: Any, call: Any) -> None:
        try:
            call()
            found.append("nothing was raised")
        except error_type as error:
            found.append(str(error))

    model = nn.Linear(2, 2)
    optimizer = OSS(model.parameters(), lr=0.1)
    plain: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    nothing: Any = None
    tell(TypeError, lambda: ShardedDataParallel(nothing, optimizer))
    tell(TypeError, lambda: ShardedDataParallel(model, plain))
    tell(ValueError, lambda: ShardedDataParallel(model, []))
    twice = OSS([model.weight], lr=0.1)
    tell(ValueError, lambda: ShardedDataParallel(model, [optimizer, twice]))
    alone = [dist.new_group([one]) for one in range(world)][rank]
    if world > 1:
        tell(ValueError, lambda: ShardedDataParallel(model, optimizer, process_group=alone))
    parallel = ShardedDataParallel(model, optimizer)
    tell(
        RuntimeError, lambda: parallel(torch.ones(1, 2)).square().sum().backward(create_graph=True)
    )
    model.weight.grad = model.bias.grad = None
    sparse = nn.Embedding(4, 2, sparse=True)
    embedding = ShardedDataParallel(sparse, OSS(sparse.parameters(), lr=0.1))
    if world > 1:
        tell(ValueError, lambda: embedding(torch.tensor([1])).sum().backward())
    return found


def what_the_module_has(rank: int, world: int) -> Any:
    model = mlp()
    model.own = "attribute"  # type: ignore[assignment]
    parallel = ShardedDataParallel(model, OSS(model.parameters(), lr=0.1))
    names = list(FairParallel(mlp(), FairOSS(mlp().parameters(), lr=0.1)).state_dict())
    absent = ""
    try:
        parallel.nothing_of_that_name
    except AttributeError as error:
        absent = str(error)
    return (
        parallel.own,
        list(parallel.state_dict()) == names,
        parallel.device_type,
        parallel.is_multi_device_module,
        "nothing_of_that_name" in absent,
    )


def train_and_eval(rank: int, world: int) -> Any:
    """A forward pass in eval mode reduces nothing. If only rank 0 runs one, other ranks do not wait
    for it."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = OSS(model.parameters(), lr=1.0)
    parallel = ShardedDataParallel(model, optimizer, broadcast_buffers=False)
    for _ in range(2):
        parallel.train()
        optimizer.zero_grad()
        parallel(torch.full((1, 2), float(rank))).sum().backward()
        parallel.eval()
        if rank == 0:
            parallel(torch.ones(1, 2))
        optimizer.step()
    return model.weight.flatten().tolist()


def manual_reduction(rank: int, world: int) -> Any:
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = OSS(model.parameters(), lr=1.0)
    parallel = ShardedDataParallel(model, optimizer)
    with parallel.no_sync():
        for _ in range(2):
            parallel(torch.full((1, 2), float(rank))).sum().backward()
    parallel.reduce()
    optimizer.step()
    told = ""
    try:
        parallel.reduce()
    except RuntimeError as error:
        told = str(error)
    return model.weight.flatten().tolist(), told


def half_gradients(rank: int, world: int) -> Any:
    """Gradients are rounded to float16 for the transfer without overflow, and summed in float32."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = OSS(model.parameters(), lr=1.0)
    parallel = ShardedDataParallel(model, optimizer, reduce_fp16=True)
    parallel(torch.tensor([[98304.0, 1.0001]])).sum().backward()
    optimizer.step()
    return model.weight.flatten().tolist()


def closures(rank: int, world: int) -> Any:
    """A step uses the gradients that its closure reduces, and the gradients of a rank whose
    backward pass reached no parameter."""
    mine, other = Pieces(), Pieces()
    optimizer = OSS(mine.parameters(), lr=0.1, momentum=0.9)
    parallel = ShardedDataParallel(mine, optimizer)
    plain = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        used = [[] if one == step else [0, 1, 2, 3, 4] for one in range(world)]

        def closure(used: list[list[int]] = used) -> Any:
            optimizer.zero_grad()
            loss = parallel(1.0, used[rank])
            loss.backward()
            return loss

        optimizer.step(closure)
        plain.zero_grad()
        for one in range(world):
            (other(1.0, used[one]) / world).backward()
        plain.step()
    return worst(list(mine.parameters()), list(other.parameters())), everywhere(
        list(mine.parameters())
    )


def two_backwards(rank: int, world: int) -> Any:
    """Run two backward passes after one forward pass of a model that uses its weight twice."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.ones_(model.weight)
    other = nn.Linear(2, 2, bias=False)
    nn.init.ones_(other.weight)
    optimizer = OSS(model.parameters(), lr=0.01)
    plain = torch.optim.SGD(other.parameters(), lr=0.01)
    parallel = ShardedDataParallel(nn.Sequential(model, model), optimizer)
    loss = parallel(torch.full((1, 2), float(rank + 1))).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    for one in range(world):
        (2 * other(other(torch.full((1, 2), float(one + 1)))).sum() / world).backward()
    optimizer.step()
    plain.step()
    return worst([model.weight], [other.weight]), everywhere([model.weight])


class Part(nn.Module):
    """A model that consists of two pieces of another model."""

    def __init__(self, whole: Pieces) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, value: float) -> torch.Tensor:
        loss: torch.Tensor = self.whole(value, [2, 3])
        return loss


def two_models(rank: int, world: int) -> Any:
    """Two models share an optimizer and a piece, and each has its own backward passes."""
    mine, other = Pieces(), Pieces()
    plain = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    optimizer = OSS(mine.parameters(), lr=0.1, momentum=0.9)
    first = ShardedDataParallel(mine, optimizer)
    second = ShardedDataParallel(Part(mine), optimizer, reduce_buffer_size=0)
    for step in range(4):
        first.zero_grad(set_to_none=True)
        plain.zero_grad()
        first(float(rank + step), [0, 1, 2]).backward()
        second(float(rank)).backward()
        for one in range(world):
            (other(float(one + step), [0, 1, 2]) / world).backward()
            (other(float(one), [2, 3]) / world).backward()
        optimizer.step()
        plain.step()
    return worst(list(mine.parameters()), list(other.parameters())), everywhere(
        list(mine.parameters())
    )


def frozen_integers(rank: int, world: int) -> Any:
    """An integer parameter is next to trained parameters. All ranks have the values of rank 0."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    model.register_parameter("count", nn.Parameter(torch.tensor([rank, 7]), requires_grad=False))
    optimizer = OSS(model.parameters(), lr=1.0)
    parallel = ShardedDataParallel(model, optimizer)
    parallel(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model.weight.flatten().tolist(), parallel.count.tolist()


def conjugated_gradients(rank: int, world: int) -> Any:
    """Autograd may set a flag on a gradient instead of changing its memory."""
    params = [nn.Parameter(torch.tensor([1 + 1j, 2 - 1j])) for _ in range(3)]
    factor = torch.tensor([1 + 2j, 3 - 1j])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.params = nn.ParameterList(params)

        def forward(self) -> torch.Tensor:
            return sum((one.conj() * (rank + 1) * factor).real.sum() for one in params)  # type: ignore

    before = [param.detach().clone() for param in params]
    optimizer = OSS(params, lr=1.0)
    parallel = ShardedDataParallel(Model(), optimizer)
    parallel().backward()
    norm = optimizer.clip_grad_norm(1e9)
    optimizer.step()
    mean = (world + 1) / 2 * factor
    wanted = [old - mean for old in before]
    return [float((one.detach() - want).abs().max()) for one, want in zip(params, wanted)], float(norm)


CASES = (
    conjugated_gradients,
    gradients_after_a_backward,
    buffers,
    refusals,
    what_the_module_has,
    train_and_eval,
    manual_reduction,
    half_gradients,
    closures,
    two_backwards,
    two_models,
    frozen_integers,
)


class ShardedModule(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_a_backward_leaves_the_mean_on_the_owner_and_nothing_elsewhere(self) -> None:
        for _, _, wrong in self.of_ranks(gradients_after_a_backward):
            self.assertEqual(wrong, [])

    def test_buffers_are_rank_0s_in_each_forward_but_within_no_sync(self) -> None:
        for _, rank, found in self.of_ranks(buffers):
            weight, held, in_eval, in_train, unsynced, not_at_all, unsynced_start = found
            self.assertEqual(weight, [0.0] * 3)
            self.assertEqual(held, [[0.5] * 5, 0, [True, True]])
            self.assertEqual((in_eval, in_train), (10, 10))
            self.assertEqual((unsynced, not_at_all), (10 + rank, 20 + rank))
            self.assertEqual(unsynced_start, [float(rank)] * 3)

    def test_what_makes_no_sense_is_refused_in_words(self) -> None:
        for world, _, found in self.of_ranks(refusals):
            wanted = ["module is", "OSS", "empty", "in two", "create_graph"]
            if world > 1:
                wanted[4:] = ["ranks", "create_graph", "sparse"]
            self.assertEqual(len(found), len(wanted), found)
            for word, told in zip(wanted, found):
                self.assertIn(word, told)

    def test_attributes_and_state_are_the_modules(self) -> None:
        for _, _, found in self.of_ranks(what_the_module_has):
            self.assertEqual(found, ("attribute", True, "cpu", False, True))

    def test_a_forward_in_eval_takes_no_part_in_reductions(self) -> None:
        for world, _, weight in self.of_ranks(train_and_eval):
            self.assertEqual(weight, [-float(world - 1)] * 2)

    def test_reduce_takes_what_no_sync_added_up_once(self) -> None:
        for world, _, (weight, told) in self.of_ranks(manual_reduction):
            self.assertEqual(weight, [-float(world - 1)] * 2)
            self.assertIn("nothing to reduce", told)

    def test_gradients_in_halves_neither_overflow_nor_keep_more_digits(self) -> None:
        for world, _, weight in self.of_ranks(half_gradients):
            self.assertEqual(weight[0], -98304.0)
            if world > 1:
                self.assertEqual(weight[1], -1.0)

    def test_closures_reduce_before_the_step(self) -> None:
        for _, _, (difference, same) in self.of_ranks(closures):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_every_backward_after_a_forward_counts(self) -> None:
        for _, _, (difference, same) in self.of_ranks(two_backwards):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_two_models_may_share_an_optimizer(self) -> None:
        for _, _, (difference, same) in self.of_ranks(two_models):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_gradients_that_autograd_has_conjugated_are_what_they_stand_for(self) -> None:
        for world, _, (apart, norm) in self.of_ranks(conjugated_gradients):
            for difference in apart:
                self.assertLess(difference, 1e-6)
            # The factor is 1, 2, 3 and -1, times three.
            self.assertAlmostEqual(norm, (world + 1) / 2 * (3 * 15) ** 0.5, places=5)

    def test_frozen_integers_are_left_alone(self) -> None:
        for _, _, found in self.of_ranks(frozen_integers):
            self.assertEqual(found, ([-1.0, -1.0], [0, 7]))


if __name__ == "__main__":
    unittest.main()
