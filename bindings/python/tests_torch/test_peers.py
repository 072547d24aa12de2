# SPDX-License-Identifier: Apache-2.0
"""Tests what torch's and fairscale's own tests of their sharded optimizers test, if it needs no GPU and is not in
another file here. docs/comparison.md lists which of their tests corresponds to which test here.

With ZERO_TEST_NIGHTLY, every combination of options is tested, and otherwise one of sixteen.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import random
from typing import Any

import torch
import torch.distributed as dist
from fairscale.optim import AdaScale
from fairscale.optim.adascale import AdaScaleWrapper
from fairscale.optim.oss import OSS as FairOSS
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from libzero.torch import OSS, ShardedDataParallel, ShardedGradScaler, ZeroRedundancyOptimizer
from models import copies, give_gradients, parameters
from support import InAllWorlds, bits, everywhere, worst

NIGHTLY = bool(os.environ.get("ZERO_TEST_NIGHTLY"))


def chosen(combinations: list[Any]) -> list[Any]:
    """Return all combinations at night. Otherwise return a few, which are the same on every rank and contain each
    value of each option."""
    if NIGHTLY:
        return combinations
    return random.Random(5).sample(combinations, max(8, len(combinations) // 16))


# ---- A sharded module beside DistributedDataParallel ----


class PausingSGD(torch.optim.SGD):
    """A class that libzero does not know."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Embedded(nn.Module):
    """A model with a table whose rows may be frozen, two blocks of which the second may run twice, and a buffer that
    starts differently on each rank and is written in each forward pass."""

    def __init__(self, rank: int, twice: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(32, 2)
        self.trunk = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3))
        self.head = nn.Linear(3, 3)
        self.twice = twice
        self.register_buffer("seen", torch.full((1,), float(rank)))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        seen: Any = self.seen
        seen += 1
        values = self.head(self.trunk(self.table(rows)))
        if self.twice:
            values = self.head(values)
        return values


GRID = [
    dict(zip(("buffer", "micro", "change", "half", "clip", "amp", "manual", "twice", "kind"), one))
    for one in itertools.product(
        (0, 2**20),
        (1, 3),
        *[(False, True)] * 6,
        (torch.optim.SGD, PausingSGD),
    )
    # DistributedDataParallel determines what is trained when it is constructed. Its scaler does not match another
    # model's if gradients are rounded for the transfer.
    if not (one[2] and (one[4] or one[1] > 1)) and not (one[3] and one[5])
]


def module_grid(rank: int, world: int) -> Any:
    return [one_of_grid(rank, world, **options) for options in chosen(GRID)]


def one_of_grid(rank: int, world: int, **chosen: Any) -> Any:
    mine, other = (Embedded(rank, chosen["twice"]) for _ in range(2))
    for net in (mine, other):
        net.table.weight.requires_grad_(not chosen["change"])
    options = {"lr": 0.05, "momentum": 0.9}
    optimizer = OSS(mine.parameters(), chosen["kind"], **options)
    plain = chosen["kind"](other.parameters(), **options)
    sharded: Any = ShardedDataParallel(
        mine, optimizer, reduce_buffer_size=chosen["buffer"], reduce_fp16=chosen["half"]
    )
    ddp: Any = DistributedDataParallel(other, find_unused_parameters=True)
    scalers: list[Any] = [None, None]
    if chosen["amp"]:
        scalers = [
            ShardedGradScaler(init_scale=64.0),
            torch.amp.GradScaler("cpu", init_scale=64.0),
        ]
    norms, differences = [], []
    for step in range(4):
        generator = torch.Generator().manual_seed(100 * step + rank)
        rows = [
            torch.randint(0, 32, (8, 2), generator=generator) for _ in range(chosen["micro"])
        ]
        found = []
        for net, one, scaler in ((sharded, optimizer, scalers[0]), (ddp, plain, scalers[1])):
            one.zero_grad()
            by_hand = chosen["manual"] and net is sharded
            for number, batch in enumerate(rows):
                last = number == len(rows) - 1
                waits = not last or by_hand
                with net.no_sync() if waits else contextlib.nullcontext():
                    with torch.autocast("cpu", torch.bfloat16, enabled=chosen["amp"]):
                        loss = net(batch).float().abs().sum() / len(rows)
                    (scaler.scale(loss) if scaler else loss).backward()
            if by_hand:
                sharded.reduce()
            if chosen["clip"]:
                if scaler:
                    scaler.unscale_(one)
                if net is sharded:
                    found.append(float(optimizer.clip_grad_norm(0.3)))
                else:
                    found.append(float(nn.utils.clip_grad_norm_(other.parameters(), 0.3)))
            if scaler:
                scaler.step(one)
                scaler.update()
            else:
                one.step()
        norms.append(found)
        apart = worst(list(mine.parameters()), list(other.parameters()))
        differences.append(apart / 1000 if chosen["half"] else apart)
        if step == 1 and chosen["change"]:
            # Training continues with the change. A new DistributedDataParallel is created, because it cannot follow
            # the change.
            for net in (mine, other):
                net.table.weight.requires_grad_(True)
            ddp = DistributedDataParallel(other, find_unused_parameters=True)
    same = everywhere(list(mine.parameters()))
    seen = bits([mine.seen]) == bits([other.seen])
    words = ", ".join(f"{name} {getattr(one, '__name__', one)}" for name, one in chosen.items())
    optimizer.close()
    return words, max(differences), norms, same, seen


def inputs_of_any_shape(rank: int, world: int) -> Any:
    """The forward pass gets the arguments of its wrapper: lists, dictionaries and keywords."""

    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, first: Any, *others: Any, **named: Any) -> torch.Tensor:
            given = [*(first.values() if isinstance(first, dict) else first), *others]
            return sum(one * self.weight for one in (*given, *named.values())).sum()

    model = Takes()
    wrapped = ShardedDataParallel(model, OSS(model.parameters(), torch.optim.SGD, lr=1.0))
    one = torch.ones(2)
    calls: tuple[Any, ...] = (
        lambda: wrapped([one, one]),
        lambda: wrapped((one,), one),
        lambda: wrapped({"a": one, "b": one}),
        lambda: wrapped([one], named=one),
    )
    return [float(call().detach()) for call in calls]


def dtypes_mixed_in_a_module(rank: int, world: int) -> Any:
    """A sharded module has float16, float32 and float64 parameters. Each is reduced and updated in its own dtype."""
    dtypes = (torch.float16, torch.float32, torch.float64)
    model = nn.ParameterList([nn.Parameter(torch.ones(4, dtype=one)) for one in dtypes])
    optimizer = OSS(model.parameters(), torch.optim.SGD, lr=0.5)
    wrapped = ShardedDataParallel(model, optimizer)
    wrapped._reducer.begin()
    sum((param.float() * (1 + rank)).sum() for param in model).backward()
    optimizer.step()
    mean = sum(1 + one for one in range(world)) / world
    wanted = [1 - 0.5 * mean] * 4
    return [str(one.dtype) for one in model], [bits([one])[0] == wanted for one in model]


# ---- ZeroRedundancyOptimizer beside a local optimizer, both under DistributedDataParallel ----


LOCAL = [
    (kind, maximize, view)
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
    for maximize in (False, True)
    for view in (False, True)
]


def local_parity(rank: int, world: int) -> Any:
    """Test closures, losses, a parameter that is frozen and trained again, and an exchange of states."""
    found = []
    for kind, maximize, view in LOCAL:
        torch.manual_seed(0)
        # Use float64, because a gradient that is zero except for rounding would move Adam's parameters by its sign.
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 3)).double()
        twin = copy.deepcopy(net)
        zero = ZeroRedundancyOptimizer(
            net.parameters(), kind, parameters_as_bucket_view=view, lr=1e-3, maximize=maximize
        )
        plain = kind(twin.parameters(), lr=1e-3, maximize=maximize)
        models = [DistributedDataParallel(one, find_unused_parameters=True) for one in (net, twin)]
        differences = []

        def train(step: int) -> None:
            generator = torch.Generator().manual_seed(10 * step + rank)
            inputs = torch.rand(16, 2, generator=generator, dtype=torch.float64)
            losses = []
            for model, optimizer in zip(models, (zero, plain)):

                def closure(model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
                    optimizer.zero_grad()
                    loss: torch.Tensor = model(inputs).abs().sum()
                    loss.backward()
                    return loss

                losses.append(optimizer.step(closure).detach())
            params = list(net.parameters()), list(twin.parameters())
            differences.append(max(worst(*params), worst(losses[:1], losses[1:])))

        for step in range(8):
            train(step)
            for one in (net, twin):
                next(one.parameters()).requires_grad_(step < 4 or bool(step % 2))
        zero.consolidate_state_dict(None)
        # torch's optimizers continue to use the tensors that they load.
        of_zero, of_plain = zero.state_dict(), copy.deepcopy(plain.state_dict())
        plain.load_state_dict(copy.deepcopy(of_zero))
        zero.load_state_dict(of_plain)
        train(8)
        plain.load_state_dict(copy.deepcopy(of_plain))
        zero.load_state_dict(of_zero)
        train(9)
        found.append((f"{kind.__name__}, {maximize}, {view}", max(differences)))
        zero.close()
    return found


# ---- Who owns what ----


def shares(rank: int, world: int) -> Any:
    """Return the number of elements of this rank. Sizes can be split evenly, with the last parameter in a later
    group, or there are fewer tensors than ranks, or a large frozen tensor is first."""
    found = []
    for kind in (OSS, ZeroRedundancyOptimizer):
        sizes = [9, 7, 5, 3] * world
        for late in (0, 1):
            count = len(sizes) - late
            params = [nn.Parameter(torch.rand(size, 1)) for size in sizes]
            optimizer = kind(params[:count], torch.optim.SGD, lr=0.1)
            if late:
                optimizer.add_param_group({"params": params[count:]})
            groups = optimizer.optim.param_groups
            owned = sum(param.numel() for group in groups for param in group["params"])
            found.append((kind.__name__, len(groups), len(optimizer.param_groups), owned))
            optimizer.close()
    few = parameters(1, ((4,),))
    others = copies(few)
    for kind in (OSS, ZeroRedundancyOptimizer):
        optimizer, plain = kind(few, torch.optim.Adam, lr=0.1), torch.optim.Adam(others, lr=0.1)
        for step in range(3):
            give_gradients(step, few, others)
            optimizer.step()
            plain.step()
        found.append((worst(few, others), everywhere(few)))
        optimizer.close()
    first = nn.Parameter(torch.ones(100), requires_grad=False)
    optimizer = OSS([first, *[nn.Parameter(torch.ones(n)) for n in (3, 5, 2, 6, 4)]], lr=0.1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    found.append([len(groups) for groups in optimizer.partition_parameters()])
    optimizer.close()
    return found


class Adding(torch.optim.SGD):
    """A class whose step has no arguments and adds an option."""

    def step(self) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["left"] = 0.25


def classes_of_their_own(rank: int, world: int) -> Any:
    found = []
    for kind in (OSS, ZeroRedundancyOptimizer):
        params = parameters(2, ((3,), (4,), (5,)))
        others = copies(params)
        optimizer, plain = kind(params, Adding, lr=0.1), Adding(others, lr=0.1)
        give_gradients(0, params, others)
        optimizer.step()
        plain.step()
        found.append((worst(params, others), optimizer.param_groups[0]["left"]))
        optimizer.close()
    return found


# ---- AdaScale ----


def ladder() -> nn.Sequential:
    made = nn.Sequential(*[nn.Linear(size, size + 1, bias=False) for size in (2, 3, 4, 5)])
    for layer in made:
        weight: Any = layer.weight
        values = torch.arange(float(weight.numel()))
        weight.data.copy_((values / values.mean()).view_as(weight))
    return made


def adascale_under_ddp(rank: int, world: int) -> Any:
    """Return gains and weights of AdaScale around OSS, around fairscale's OSS, and around a plain optimizer, and of
    AdaScale as the class that OSS shards. A step has one or two backward passes."""
    found = []
    for micro in (1, 2):
        rows = []
        for name, make in (
            ("plain", lambda params, **more: AdaScale(torch.optim.SGD(params, lr=0.1), **more)),
            ("ours", lambda params, **more: AdaScale(OSS(params, torch.optim.SGD, lr=0.1), **more)),
            (
                "fairscale's",
                lambda params, **more: AdaScale(FairOSS(params, torch.optim.SGD, lr=0.1), **more),
            ),
            (
                "wrapper",
                lambda params, **more: AdaScaleWrapper(
                    params, optim_cls=OSS, optim=torch.optim.SGD, lr=0.1, **more
                ),
            ),
            (
                "within",
                lambda params, **more: OSS(
                    params, AdaScaleWrapper, optim_cls=torch.optim.SGD, lr=0.1, **more
                ),
            ),
            (
                "within fairscale's",
                lambda params, **more: FairOSS(
                    params, AdaScaleWrapper, optim_cls=torch.optim.SGD, lr=0.1, **more
                ),
            ),
        ):
            net = ladder()
            model = DistributedDataParallel(net)
            optimizer: Any = make(net.parameters(), num_gradients_to_accumulate=micro)
            for step in range(2):
                for number in range(micro):
                    inputs = torch.zeros(2)
                    inputs[(rank + step + number) % 2] = 1.0
                    waits = number < micro - 1
                    with model.no_sync() if waits else contextlib.nullcontext():
                        (model(inputs).sum() / 1000 / micro).backward()
                optimizer.step()
                optimizer.zero_grad()
            gain = float(optimizer.gain()) if hasattr(optimizer, "gain") else 0.0
            weights = torch.cat([param.detach().flatten() for param in net.parameters()])
            rows.append((name, gain, float(weights.mean())))
        found.append(rows)
    return found


CASES = (
    module_grid,
    inputs_of_any_shape,
    dtypes_mixed_in_a_module,
    local_parity,
    shares,
    classes_of_their_own,
    adascale_under_ddp,
)


class Peers(InAllWorlds):
    worlds, cases = (2,), CASES

    def test_a_sharded_module_trains_as_ddp_in_every_combination(self) -> None:
        for found in self.of(module_grid):
            self.assertGreaterEqual(len(found), 8)
            for words, difference, norms, same, seen in found:
                # bfloat16 rounds each forward pass by 2**-8, and sums are computed in another order.
                self.assertLess(difference, 300 if "amp True" in words else 2, words)
                for norm in norms:
                    if norm:
                        self.assertLess(abs(norm[0] / norm[1] - 1), 1e-2, words)
                self.assertTrue(same, words)
                self.assertTrue(seen, words)

    def test_forwards_get_what_the_wrapper_is_called_with(self) -> None:
        for found in self.of(inputs_of_any_shape):
            self.assertEqual(found, [4.0] * 4)

    def test_a_sharded_module_may_mix_dtypes(self) -> None:
        for dtypes, same in self.of(dtypes_mixed_in_a_module):
            self.assertEqual(dtypes, ["torch.float16", "torch.float32", "torch.float64"])
            self.assertEqual(same, [True] * 3)

    def test_under_ddp_it_trains_as_the_local_optimizer_and_states_change_places(self) -> None:
        for found in self.of(local_parity):
            for words, difference in found:
                self.assertLess(difference, 1e-3, words)

    def test_each_rank_owns_a_share_of_each_group(self) -> None:
        sizes = 9 + 7 + 5 + 3
        for world, _, found in self.of_ranks(shares):
            for name, groups, given, owned in found[:4]:
                self.assertEqual(groups, given)
                if name == "OSS":
                    self.assertEqual(owned, sizes)
            for difference, same in found[4:6]:
                self.assertLess(difference, 1)
                self.assertTrue(same)
            self.assertEqual(found[6], [2] * world)

    def test_classes_may_step_without_closures_and_add_options(self) -> None:
        for found in self.of(classes_of_their_own):
            for difference, left in found:
                self.assertLess(difference, 1)
                self.assertEqual(left, 0.25)

    def test_adascale_has_the_gain_and_weights_that_it_has_with_fairscales(self) -> None:
        for found in self.of(adascale_under_ddp):
            for rows in found:
                values = {name: (gain, mean) for name, gain, mean in rows}
                for one in ("ours", "wrapper", "fairscale's"):
                    for mine, plain in zip(values[one], values["plain"]):
                        self.assertAlmostEqual(mine, plain, places=5, msg=one)
                for mine, other in zip(values["within"], values["within fairscale's"]):
                    self.assertAlmostEqual(mine, other, places=5)
                self.assertGreater(abs(values["plain"][0] - 1), 1e-3)
