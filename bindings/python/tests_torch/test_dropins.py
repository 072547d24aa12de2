# SPDX-License-Identifier: Apache-2.0
"""Tests that libzero's classes support what programs do with the optimizers of torch and fairscale,
or with plain torch optimizers. Results are compared with the unsharded optimizer."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel as FairSharded
from fairscale.optim import AdaScale
from fairscale.optim.oss import OSS as FairOSS
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZero

from libzero.torch import OSS, Optimizer, ShardedDataParallel, ZeroRedundancyOptimizer
from models import batch, copies, give_gradients, mlp, parameters
from support import InAllWorlds, bits, everywhere, worst

WORLDS = (1, 2, 3)
DROPINS: tuple[Any, ...] = (ZeroRedundancyOptimizer, OSS)


def train(model: Any, *optimizers: Any, others: Any = None, steps: range = range(3)) -> None:
    for step in steps:
        give_gradients(step, *(model, others) if others else (model,))
        for optimizer in optimizers:
            optimizer.step()


# ---- Groups and state ----


def groups_of_the_program(rank: int, world: int) -> Any:
    """The groups are the program's own dictionaries, in which it may continue to set options."""
    found = []
    for dropin in DROPINS:
        first, second = ({"params": [nn.Parameter(torch.ones(3))], "lr": 0.1} for _ in range(2))
        optimizer = dropin([first], torch.optim.SGD)
        optimizer.add_param_group(second)
        copied = copy.deepcopy(optimizer.state) == optimizer.state
        found.append((optimizer.param_groups[0] is first, optimizer.param_groups[1] is second, copied))
        optimizer.close()
    return found


def matrices_before_the_first_step(rank: int, world: int) -> Any:
    """Use a class that accepts only matrices."""
    found = []
    for dropin in DROPINS:
        optimizer = dropin([nn.Parameter(torch.ones(4, 3))], torch.optim.Muon, lr=0.1)
        found.append(dict(optimizer.state_dict()["state"]))
        optimizer.close()
    return found


def begun_apart(rank: int, world: int) -> Any:
    """Ranks begin with different parameters, one of which has no gradient. OSS takes the owner's
    parameters, which have seen only that rank's batch. With ZeroRedundancyOptimizer, gradients are
    averaged before the step."""
    found = []
    for mine, theirs in ((OSS, FairOSS), (ZeroRedundancyOptimizer, TorchZero)):
        for optim in (torch.optim.Adam, torch.optim.ASGD):
            params = parameters(rank)
            others = copies(params)
            optimizer, original = mine(params, optim, lr=0.1), theirs(others, optim, lr=0.1)
            far = []
            for step in range(3):
                own = 10 * step + rank if mine is OSS else step
                give_gradients(own, params, others, without=(1,))
                if mine is OSS:
                    optimizer.clip_grad_norm(9.0)
                    original.clip_grad_norm(9.0)
                optimizer.step()
                original.step()
                far.append(worst(params, others))
            found.append((mine.__name__, max(far), everywhere(params)))
            optimizer.close()
    return found


def begun_apart_in_modules(rank: int, world: int) -> Any:
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    twin = copy.deepcopy(net)
    pairs = []
    for one, kind, sharded in ((net, OSS, ShardedDataParallel), (twin, FairOSS, FairSharded)):
        optimizer = kind(one.parameters(), torch.optim.SGD, lr=0.1)
        pairs.append((sharded(one, optimizer, sync_models_at_startup=False), optimizer))
    for step in range(3):
        inputs, targets = batch(7 * step + rank)
        for model, optimizer in pairs:
            model.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
    params = list(net.parameters())
    return worst(params, list(twin.parameters())), everywhere(params)


# ---- Loss scaling ----


def clipped_between_unscale_and_step(rank: int, world: int) -> Any:
    """Clip as Lightning does for 16-mixed after it has checked that clipping is allowed. Programs
    such as accelerate detect a skipped step because step() was not called."""
    found = []
    for dropin in DROPINS:
        mine, other = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
        optimizer = dropin([mine], torch.optim.Adam, lr=0.1)
        plain = torch.optim.Adam([other], lr=0.1)
        may = not getattr(optimizer, "_step_supports_amp_scaling", False)
        scalers = [torch.amp.GradScaler("cpu", init_scale=64.0) for _ in range(2)]
        calls: list[list[int]] = [[], []]
        for one, called in zip((optimizer, plain), calls):
            one.register_step_post_hook(lambda *_, called=called: called.append(1))
        for step in range(4):
            for scaler, one, param in zip(scalers, (optimizer, plain), (mine, other)):
                scaler.scale(torch.ones(()))
                grad = torch.arange(5.0) * (float("inf") if step == 1 else scaler.get_scale())
                param.grad = grad
                scaler.unscale_(one)
                nn.utils.clip_grad_norm_([param], 0.5)
                scaler.step(one)
                scaler.update()
        same_scale = scalers[0].get_scale() == scalers[1].get_scale()
        found.append((may, worst([mine], [other]), len(calls[0]), len(calls[1]), same_scale))
        optimizer.close()
    return found


def scaled_without_gradients_on_a_rank(rank: int, world: int) -> Any:
    told = []
    for dropin in DROPINS:
        param = nn.Parameter(torch.ones(5))
        optimizer = dropin([param], torch.optim.SGD, lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(torch.ones(()))
        param.grad = torch.ones(5) if rank else None
        try:
            scaler.step(optimizer)
            told.append("")
        except RuntimeError as error:
            told.append(str(error))
        param.grad = torch.ones(5)
        optimizer.step()
        told.append(str(param.unique().tolist()))
        optimizer.close()
    return told


# ---- State ----


def owned_state(rank: int, world: int) -> Any:
    """Return the number of elements on all ranks together, and whether whole tensors have the
    consolidated state."""
    found = []
    for kind, optim, partial in (
        (ZeroRedundancyOptimizer, torch.optim.Adam, True),
        (OSS, torch.optim.Adam, False),
        (OSS, torch.optim.NAdam, False),
        (ZeroRedundancyOptimizer, torch.optim.ASGD, False),
    ):
        model = parameters(1, ((40, 50), (50,), (), (3000,), (7, 3, 2)))
        model[4].data = model[4].data.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        groups = [{"params": model[:2]}, {"params": model[2:], "lr": 0.5}]
        optimizer = kind(groups, optim, lr=0.1)
        before = sum(len(optimizer.optim.state[param]) for param in model)
        train(model, optimizer)
        optimizer.consolidate_state_dict(-1 if kind is OSS else None)
        whole = optimizer.state_dict()["state"]
        shown = optimizer.optim
        owned = [param for group in shown.param_groups for param in group["params"]]
        rates = [group["lr"] for group in shown.param_groups]
        equal, elements = True, 0
        for number, param in enumerate(model):
            state = shown.state[param]
            equal &= (param in set(owned)) == bool(state)
            for name, values in state.items():
                equal &= name in whole[number]
                if tuple(values.shape) == tuple(whole[number][name].shape):
                    equal &= bits([values]) == bits([whole[number][name]])
                else:
                    equal &= partial and values.dim() == 1
            elements += sum(
                values.numel() for name, values in state.items() if name in ("exp_avg", "ax")
            )
            if optim is not torch.optim.ASGD:
                state.clear()  # it is a copy
        total = torch.tensor(elements)
        dist.all_reduce(total)
        train(model, optimizer, steps=range(3, 4))
        found.append((before, equal, int(total), rates, everywhere(model)))
        optimizer.close()
    return found


def state_before_the_first_step(rank: int, world: int) -> Any:
    """The initial state is the same as in plain torch on every rank, and can be loaded immediately,
    as accelerate does."""
    found = []
    for kind in (*DROPINS, Optimizer):
        for optim in (torch.optim.Adam, torch.optim.Adagrad, torch.optim.ASGD):
            if kind is Optimizer and optim is torch.optim.ASGD:
                continue
            mine = parameters(1)
            others = copies(mine)
            optimizer, plain = kind(mine, optim, lr=0.1), optim(others, lr=0.1)
            state, wanted = optimizer.state_dict(), plain.state_dict()
            same = state["state"].keys() == wanted["state"].keys() and all(
                bits(list(state["state"][number].values())) == bits(list(entry.values()))
                for number, entry in wanted["state"].items()
            )
            optimizer.load_state_dict(state)
            if kind is Optimizer:
                give_gradients(0, mine, others)
                optimizer.step()
                plain.step()
            else:
                train(mine, optimizer, plain, others=others)
            told = ""
            try:
                optimizer.state_dict()
            except RuntimeError as error:
                told = str(error)
            found.append((same, worst(mine, others), "consolidate_state_dict" in told))
            optimizer.close()
    return found


def state_by_torchs_checkpoints(rank: int, world: int) -> Any:
    """Move state from one optimizer to another through torch.distributed.checkpoint, and continue
    training."""
    found = []
    for kind in DROPINS:
        net, twin = mlp(), mlp()
        params, others = list(net.parameters()), list(twin.parameters())
        optimizer = kind(params, torch.optim.Adam, lr=0.1)
        plain = torch.optim.Adam(others, lr=0.1)
        train(params, optimizer, plain, others=others)
        for one in (optimizer, plain):  # torch takes no step to create state if there are gradients
            one.zero_grad(set_to_none=True)
        optimizer.consolidate_state_dict(None if kind is ZeroRedundancyOptimizer else -1)
        options = StateDictOptions(full_state_dict=False)
        state = get_optimizer_state_dict(net, optimizer, options=options)
        wanted = get_optimizer_state_dict(twin, plain, options=options)
        same = state["state"].keys() == wanted["state"].keys()
        optimizer.close()
        again = kind(params, torch.optim.Adam, lr=7.0)
        set_optimizer_state_dict(net, again, state, options=options)
        train(params, again, plain, others=others, steps=range(3, 6))
        found.append((same, again.param_groups[0]["lr"], worst(params, others)))
        again.close()
    return found


# ---- Gradients and parameters ----


def sparse_gradients(rank: int, world: int) -> Any:
    """Use the sparse gradients of an embedding, in which rows occur twice, with every option with
    which torch accepts them."""
    found = []
    for kind in (*DROPINS, Optimizer):
        for optim, options in (
            (torch.optim.SGD, {"lr": 0.1}),
            (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
            (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
            (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
            (torch.optim.Adagrad, {"lr": 0.1, "eps": 0.0, "initial_accumulator_value": 0.5}),
            (torch.optim.SparseAdam, {"lr": 0.1}),
        ):
            if kind is Optimizer and optim is torch.optim.SparseAdam:
                continue
            torch.manual_seed(0)
            mine = nn.Embedding(700, 3, sparse=True)
            other = nn.Embedding.from_pretrained(mine.weight.clone(), freeze=False, sparse=True)
            optimizer = kind(mine.parameters(), optim, **options)
            plain = optim(other.parameters(), **options)
            for step in range(4):
                rows = torch.tensor([1, 2 + step, 2 + step, 699 - step])
                for embedding, one in ((mine, optimizer), (other, plain)):
                    one.zero_grad()
                    (embedding(rows) ** 2).sum().backward()
                    one.step()
            found.append((kind.__name__, optim.__name__, worst([mine.weight], [other.weight])))
            optimizer.close()
    return found


def sparse_gradients_that_torch_refuses(rank: int, world: int) -> Any:
    found = []
    for kind in (*DROPINS, Optimizer):
        for optim, options in (
            (torch.optim.SGD, {"weight_decay": 0.1}),
            (torch.optim.Adagrad, {"weight_decay": 0.1}),
            (torch.optim.Adam, {}),
            (torch.optim.RMSprop, {}),
        ):
            embedding = nn.Embedding(10, 3, sparse=True)
            before = embedding.weight.detach().clone()
            for make in (kind, optim):
                chosen = [] if make is optim else [optim]
                optimizer = make(embedding.parameters(), *chosen, lr=0.1, **options)
                embedding.weight.grad = None
                told: list[bool] = []
                try:
                    embedding(torch.tensor([1, 2])).sum().backward()
                    optimizer.step()
                    told = [False]
                except RuntimeError as error:
                    told = [True, make is optim or isinstance(error, ValueError)]
                found.append((all(told), kind is Optimizer or worst([embedding.weight], [before])))
    return found


FROZEN = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)


def frozen_of_any_dtype(rank: int, world: int) -> Any:
    """Frozen parameters, such as a quantized base with adapters, do not change. The numbers in the
    state include them. Ranks whose frozen parameters differ raise an exception."""
    found = []
    for kind in DROPINS:
        for optim in (torch.optim.Adam, torch.optim.ASGD):
            bases = [nn.Parameter(torch.ones(6, 4).to(one), requires_grad=False) for one in FROZEN]
            gaps = torch.ones(6, 8, dtype=torch.uint8)[:, ::2]
            bases.append(nn.Parameter(gaps, requires_grad=False))
            adapters = parameters(1, ((8, 2), (2, 8)))
            others = copies(adapters)
            optimizer = kind([*bases, *adapters], optim, lr=0.1)
            plain = optim(others, lr=0.1)
            train(adapters, optimizer, plain, others=others)
            optimizer.consolidate_state_dict(None if kind is ZeroRedundancyOptimizer else -1)
            numbers = list(optimizer.state_dict()["state"])
            kept = all(bool((base.float() == 1).all()) for base in bases)
            optimizer.load_state_dict(optimizer.state_dict())
            train(adapters, optimizer, plain, others=others, steps=range(3, 6))
            told = ""
            try:
                shape = (6, 4) if rank == 0 else (4, 6)
                base = nn.Parameter(torch.ones(shape, dtype=torch.uint8), requires_grad=False)
                kind([base, *adapters], optim, lr=0.1)
            except Exception as error:
                told = str(error)
            found.append((kept, numbers, worst(adapters, others), told))
            optimizer.close()
    return found


def sharded_module_over_frozen_bytes(rank: int, world: int) -> Any:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            base = torch.randint(-4, 4, (8, 8), dtype=torch.int8)
            self.base = nn.Parameter(base, requires_grad=False)
            self.adapter = nn.Parameter(torch.randn(8, 8) / 8)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs @ (self.base.float() + self.adapter)

    net, twin = Adapted(), Adapted()
    optimizer = OSS(net.parameters(), torch.optim.SGD, lr=0.1)
    plain = torch.optim.SGD([twin.adapter], lr=0.1)
    model = ShardedDataParallel(net, optimizer)
    generator = torch.Generator().manual_seed(7)
    for _ in range(3):
        inputs = torch.randn(4, 8, generator=generator)
        optimizer.zero_grad()
        plain.zero_grad()
        model(inputs).sum().backward()
        twin(inputs).sum().backward()
        optimizer.step()
        plain.step()
    same = worst([net.adapter], [twin.adapter])
    optimizer.close()
    return same, bits([net.base]) == bits([twin.base])


def changed_between_steps(rank: int, world: int) -> Any:
    """Call model.double() and change to channels-last during training with momentum."""
    found = []
    for kind in DROPINS:
        for optim, options in (
            (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
            (torch.optim.ASGD, {"lr": 0.1}),
        ):
            for view in (False, True) if kind is ZeroRedundancyOptimizer else (False,):
                torch.manual_seed(1)
                net = nn.Sequential(nn.Conv2d(3, 40, 3), nn.Conv2d(40, 2, 3))
                params = list(net.parameters())
                others = copies(params)
                chosen = {"parameters_as_bucket_view": True} if view else {}
                optimizer = kind(params, optim, **chosen, **options)
                plain = optim(others, **options)
                train(params, optimizer, plain, others=others, steps=range(2))
                net.to(memory_format=torch.channels_last)
                train(params, optimizer, plain, others=others, steps=range(2, 4))
                formats = params[0].is_contiguous(memory_format=torch.channels_last)
                difference = worst(params, others)
                net.double()
                give_gradients(4, params)
                optimizer.step()
                found.append((formats, difference, str(params[0].dtype), everywhere(params)))
                optimizer.close()
    return found


def twice_in_a_list(rank: int, world: int) -> Any:
    found = []
    for kind in DROPINS:
        for given in (lambda p, q: [p, p, q], lambda p, q: [{"params": iter([p, p, q])}]):
            params, others = parameters(1, ((3,), (4,))), parameters(1, ((3,), (4,)))
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                optimizer = kind(given(*params), torch.optim.SGD, lr=0.1)
                late = nn.Parameter(torch.ones(2))
                optimizer.add_param_group({"params": [late, late]})
            plain = torch.optim.SGD(others, lr=0.1)
            train(params, optimizer, plain, others=others)
            words = [str(one.message) for one in told if "more than once" in str(one.message)]
            count = len(optimizer.param_groups[0]["params"])
            found.append((worst(params, others), len(words), count))
            optimizer.close()
    return found


# ---- Construction ----


def classes_by_partial(rank: int, world: int) -> Any:
    found = []
    for kind in (*DROPINS, Optimizer):
        params = parameters(1)
        others = copies(params)
        made = functools.partial(functools.partial(torch.optim.Adam, eps=0.1), lr=7.0)
        optimizer, plain = kind(params, made, lr=0.1), made(others, lr=0.1)
        give_gradients(0, params, others)
        optimizer.step()
        plain.step()
        refused = ""
        try:
            kind(params, functools.partial(torch.optim.Adam, params), lr=0.1)
        except TypeError as error:
            refused = str(error)
        found.append((worst(params, others), optimizer.param_groups[0]["eps"], bool(refused)))
        optimizer.close()
    return found


def schedules_by_defaults(rank: int, world: int) -> Any:
    """OneCycleLR reads momentum or betas from `defaults`."""
    found = []
    for kind in (*DROPINS, Optimizer):
        for optim, name in ((torch.optim.Adam, "betas"), (torch.optim.ASGD, "alpha")):
            if kind is Optimizer and optim is torch.optim.ASGD:
                continue
            params = parameters(1)
            others = copies(params)
            optimizer, plain = kind(params, optim, lr=0.1), optim(others, lr=0.1)
            cycles = name == "betas"
            schedules = [
                torch.optim.lr_scheduler.OneCycleLR(
                    one, 0.1, total_steps=6, cycle_momentum=cycles
                )
                for one in (optimizer, plain)
            ]
            for step in range(5):
                give_gradients(step, params, others)
                for one, schedule in zip((optimizer, plain), schedules):
                    one.step()
                    schedule.step()
            found.append((worst(params, others), optimizer.defaults == plain.defaults))
            optimizer.close()
    return found


def adaptive_scale(rank: int, world: int) -> Any:
    """Put AdaScale of fairscale around OSS in a sharded module, with two backward passes per step.
    With several ranks, AdaScale reads gradients that only their owners have, and fails with
    fairscale's classes as well."""
    found: list[Any] = []
    for kind, sharded in ((OSS, ShardedDataParallel), (FairOSS, FairSharded)):
        net = mlp()
        inside = kind(net.parameters(), torch.optim.SGD, lr=0.1)
        optimizer = AdaScale(inside, world_size=1, num_gradients_to_accumulate=2)
        model = sharded(net, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            for micro in range(2):
                inputs, targets = batch(2 * step + micro)
                (nn.functional.mse_loss(model(inputs), targets) / 2).backward()
            optimizer.step()
        values = torch.cat([param.detach().flatten() for param in net.parameters()])
        found.append((values.tolist(), optimizer.gain()))
    (mine, gain), (others, gained) = found
    return mine, others, gain, gained


CASES = (
    clipped_between_unscale_and_step,
    scaled_without_gradients_on_a_rank,
    owned_state,
    groups_of_the_program,
    matrices_before_the_first_step,
    begun_apart,
    begun_apart_in_modules,
    state_before_the_first_step,
    state_by_torchs_checkpoints,
    sparse_gradients,
    frozen_of_any_dtype,
    sharded_module_over_frozen_bytes,
    changed_between_steps,
    twice_in_a_list,
    classes_by_partial,
    schedules_by_defaults,
)


class DropIns(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_groups_are_the_programs_own(self) -> None:
        for found in self.of(groups_of_the_program):
            self.assertEqual(found, [(True, True, True)] * len(DROPINS))

    def test_classes_that_look_at_shapes_have_a_state_before_the_first_step(self) -> None:
        for found in self.of(matrices_before_the_first_step):
            self.assertEqual(found, [{}] * len(DROPINS))

    def test_ranks_that_begin_with_different_parameters_train_as_the_originals(self) -> None:
        for found in self.of(begun_apart):
            for name, difference, same in found:
                self.assertLess(difference, 1, name)
                self.assertTrue(same, name)
        for difference, same in self.of(begun_apart_in_modules):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_gradients_may_be_clipped_between_unscale_and_step(self) -> None:
        for found in self.of(clipped_between_unscale_and_step):
            for may, difference, mine, others, same in found:
                self.assertTrue(may)
                self.assertLess(difference, 1)
                self.assertEqual((mine, others, same), (3, 3, True))

    def test_a_rank_without_gradients_for_the_scaler_is_told_to_all(self) -> None:
        for _, rank, told in self.of_ranks(scaled_without_gradients_on_a_rank):
            words = "finds no gradients on this rank" if rank == 0 else "rank 0 refused"
            for sentence, values in zip(told[::2], told[1::2]):
                self.assertIn(words, sentence)
                self.assertEqual(values, "[0.5]")

    def test_what_a_rank_owns_can_be_read(self) -> None:
        for found in self.of(owned_state):
            for before, equal, elements, rates, same in found:
                self.assertEqual((before, equal, rates, same), (0, True, [0.1, 0.5], True))
                self.assertEqual(elements, 2000 + 50 + 1 + 3000 + 42)

    def test_state_before_the_first_step_is_what_there_is(self) -> None:
        for found in self.of(state_before_the_first_step):
            for same, difference, told in found:
                self.assertTrue(same)
                self.assertLess(difference, 1)
                self.assertTrue(told)

    def test_state_goes_through_torchs_distributed_checkpoint(self) -> None:
        for found in self.of(state_by_torchs_checkpoints):
            for same, rate, difference in found:
                self.assertTrue(same)
                self.assertEqual(rate, 0.1)
                self.assertLess(difference, 1)

    def test_sparse_gradients_train_where_torch_takes_them(self) -> None:
        for found in self.of(sparse_gradients):
            for kind, optim, difference in found:
                self.assertLess(difference, 1, f"{kind} {optim}")

    def test_frozen_parameters_may_be_of_any_dtype(self) -> None:
        for world, rank, found in self.of_ranks(frozen_of_any_dtype):
            for kept, numbers, difference, told in found:
                self.assertTrue(kept)
                self.assertEqual(numbers, [len(FROZEN) + 1, len(FROZEN) + 2])
                self.assertLess(difference, 1)
                self.assertEqual("uint8" in told, world > 1, told)

    def test_a_sharded_module_may_have_frozen_bytes(self) -> None:
        for difference, same in self.of(sharded_module_over_frozen_bytes):
            self.assertLess(difference, 1)
            self.assertTrue(same)

    def test_dtypes_and_memory_formats_may_change_between_steps(self) -> None:
        for found in self.of(changed_between_steps):
            for formats, difference, dtype, same in found:
                self.assertTrue(formats)
                self.assertLess(difference, 1)
                self.assertEqual((dtype, same), ("torch.float64", True))

    def test_a_parameter_twice_in_a_list_counts_once_with_a_warning(self) -> None:
        for found in self.of(twice_in_a_list):
            for difference, words, params in found:
                self.assertLess(difference, 1)
                self.assertEqual((words, params), (2, 2))

    def test_a_class_may_be_a_partial_with_options(self) -> None:
        for found in self.of(classes_by_partial):
            for difference, eps, refused in found:
                self.assertLess(difference, 1)
                self.assertEqual((eps, refused), (0.1, True))

    def test_schedulers_find_the_options_that_the_class_has(self) -> None:
        for found in self.of(schedules_by_defaults):
            for difference, same in found:
                self.assertLess(difference, 1)
                self.assertTrue(same)


class OneRankAlone(InAllWorlds):
    worlds, cases = (1,), (sparse_gradients_that_torch_refuses, adaptive_scale)

    def test_a_sharded_module_takes_an_optimizer_within_adascale(self) -> None:
        for values, wanted, gain, gained in self.of(adaptive_scale):
            for mine, others in zip(values, wanted):
                self.assertAlmostEqual(mine, others, places=6)
            self.assertAlmostEqual(gain, gained, places=6)
            self.assertGreater(abs(gain - 1), 0.01)

    def test_sparse_gradients_are_an_error_where_torch_has_one(self) -> None:
        for found in self.of(sparse_gradients_that_torch_refuses):
            for refused, difference in found:
                self.assertTrue(refused)
                self.assertLess(difference, 2)
