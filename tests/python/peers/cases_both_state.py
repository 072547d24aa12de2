# SPDX-License-Identifier: Apache-2.0
"""Cases of OSS and ZeroRedundancyOptimizer: gathered state and loaded state."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import resource
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .case import Case, Numbers, add
from .cases_both_storage import KINDS, NEEDS, sharded
from .models import firsts, give, parameters
from .sides import Side

State = dict[str, Any]
Rule = Any
BOTH = ("oss", "zro")
ADAM = {"lr": 0.1}
MOMENTUM = {"lr": 0.1, "momentum": 0.9}
LARGE = 1 << 21  # elements, which are 8 MiB in fp32
MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc
MIB = 1 << 20


def plain(params: list[nn.Parameter], rule: Rule, **settings: Any) -> Any:
    return rule(params, **settings)


def of_kind(side: Side, kind: str) -> Callable[..., Any]:
    return lambda params, rule, **settings: sharded(side, kind, params, rule, **settings)


def step(optimizer: Any, params: list[nn.Parameter], gradient: float = 1.0) -> None:
    give(params, gradient)
    optimizer.step()


def consolidated(optimizer: Any) -> None:
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer.consolidate_state_dict()


def counters(state: State) -> Numbers:
    return [float(entry["step"]) for entry in state["state"].values()]


def snapshot(make: Callable[..., Any], keep: Callable[[State], State]) -> Numbers:
    """Return Adam's counters in the state of step 1, read after step 3."""
    params = parameters(2, 2)
    optimizer = make(params, torch.optim.Adam, lr=0.1)
    step(optimizer, params)
    consolidated(optimizer)
    if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        state: State = {"state": {}}
    else:
        state = keep(optimizer.state_dict())
    step(optimizer, params)
    step(optimizer, params)
    return counters(state)


def after_group(make: Callable[..., Any]) -> Numbers:
    """Take two steps, consolidate after the first one, and add a group. Return the parameters and
    Adam's counters."""
    params = parameters(2, 2)
    optimizer = make(params, torch.optim.Adam, lr=0.1)
    step(optimizer, params)
    consolidated(optimizer)
    step(optimizer, params)
    optimizer.add_param_group({"params": parameters(1)})
    if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return []
    state = optimizer.state_dict()
    return [float(sum(len(group["params"]) for group in state["param_groups"])), *counters(state)]


def on_rank_0(
    train: Callable[[Callable[..., Any]], Numbers], kind: str, side: Side, rank: int
) -> Numbers | None:
    numbers = train(of_kind(side, kind))
    return numbers if rank == 0 else None


def saved_in(dtype: torch.dtype, rule: Rule, settings: dict[str, float], steps: int = 3) -> State:
    """Return the state of a plain optimizer after some steps on parameters of this dtype."""
    params = parameters(2, 2, dtype=dtype)
    optimizer = rule(params, **settings)
    for _ in range(steps):
        descend(optimizer, params)
    return copy.deepcopy(optimizer.state_dict())


def descend(optimizer: Any, params: list[nn.Parameter]) -> None:
    """Take a step for half the sum of squares."""
    for param in params:
        param.grad = param.detach().clone()
    optimizer.step()


def loaded_from(
    dtype: torch.dtype, rule: Rule, settings: dict[str, float], make: Callable[..., Any]
) -> Numbers:
    """Return fp32 parameters after loading state of another dtype and taking 5 steps."""
    state = saved_in(dtype, rule, settings)
    params = parameters(2, 2)
    optimizer = make(params, rule, **settings)
    optimizer.load_state_dict(state)
    for _ in range(5):
        descend(optimizer, params)
    return firsts(params)


def loaded_without_state(make: Callable[..., Any]) -> Numbers:
    """Build up a momentum of 10, load the state of an optimizer without steps, and take a step from
    1."""
    params = parameters(2, 2)
    optimizer = make(params, torch.optim.SGD, lr=0.1, momentum=0.9)
    step(optimizer, params, 10.0)
    optimizer.load_state_dict(saved_in(torch.float32, torch.optim.SGD, MOMENTUM, steps=0))
    with torch.no_grad():
        for param in params:
            param.fill_(1.0)
    step(optimizer, params)
    return firsts(params)


def refused_load(make: Callable[..., Any]) -> Numbers:
    """Build up a momentum of 1, attempt to load a momentum of 50 with wrong groups, and take
    another step."""
    params = parameters(2, 2)
    optimizer = make(params, torch.optim.SGD, lr=0.1, momentum=0.9)
    step(optimizer, params)
    state = saved_in(torch.float32, torch.optim.SGD, MOMENTUM)
    for entry in state["state"].values():
        entry["momentum_buffer"].fill_(50.0)
    state["param_groups"].append(dict(copy.deepcopy(state["param_groups"][0]), params=[2]))
    try:
        optimizer.load_state_dict(state)
    except Exception:  # each library may choose the class
        step(optimizer, params)
        return firsts(params)
    raise RuntimeError("a state of two groups was loaded into one")


def callers_dict(make: Callable[..., Any]) -> Numbers:
    """Return how many entries a dictionary has for each parameter after it was loaded."""
    state = saved_in(torch.float32, torch.optim.Adam, ADAM)
    make(parameters(2, 2), torch.optim.Adam, lr=0.1).load_state_dict(state)
    return [float(len(entry or {})) for entry in state["state"].values()]


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def memory_of_load(make: Callable[..., Any]) -> Numbers:
    """Return the growth of memory, in units of the momentum of a large tensor, after fp64 state has
    been loaded and dropped."""
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MIB)  # so that freed memory is returned
    params = parameters(LARGE, LARGE)
    optimizer = make(params, torch.optim.SGD, lr=0.1, momentum=0.9)
    step(optimizer, params)
    before = resident_bytes()
    state: State = {
        "param_groups": copy.deepcopy(
            plain(params, torch.optim.SGD, lr=0.1, momentum=0.9).state_dict()["param_groups"]
        ),
        "state": {
            index: {"momentum_buffer": torch.ones(LARGE, dtype=torch.float64)} for index in (0, 1)
        },
    }
    optimizer.load_state_dict(state)
    state.clear()
    return [float(round((resident_bytes() - before) / (4 * LARGE)))]


def on_all_ranks(
    train: Callable[[Callable[..., Any]], Numbers], kind: str, side: Side, rank: int
) -> Numbers:
    return train(of_kind(side, kind))


LOADS: dict[str, tuple[str, torch.dtype, Rule, dict[str, float]]] = {
    "adam-bf16": ("Adam's state in bf16", torch.bfloat16, torch.optim.Adam, ADAM),
    "adam-fp64": ("Adam's state in fp64", torch.float64, torch.optim.Adam, ADAM),
    "momentum-bf16": ("momentum in bf16", torch.bfloat16, torch.optim.SGD, MOMENTUM),
    "momentum-fp64": ("momentum in fp64", torch.float64, torch.optim.SGD, MOMENTUM),
}


def add_both(
    name: str,
    what: str,
    train: Callable[[Callable[..., Any]], Numbers],
    right: Callable[[], Numbers],
    rank_0: bool = False,
    at_most: bool = False,
) -> None:
    for kind in BOTH:
        run = functools.partial(on_rank_0 if rank_0 else on_all_ranks, train, kind)
        add(Case(f"{kind}-{name}", KINDS[kind], what, NEEDS[kind], 2, run, right, at_most=at_most))


add_both(
    "snapshot",
    "Adam's counters in step 1's state after step 3",
    functools.partial(snapshot, keep=lambda state: state),
    functools.partial(snapshot, plain, copy.deepcopy),
    rank_0=True,
)
add_both(
    "state-after-group",
    "two steps, the first consolidated, a new group: saved parameters and counters",
    after_group,
    functools.partial(after_group, plain),
    rank_0=True,
)
for load_name, (load_text, dtype, rule, rule_settings) in LOADS.items():
    load = functools.partial(loaded_from, dtype, rule, rule_settings)
    add_both(
        f"load-{load_name}",
        f"{load_text} loaded for fp32, five steps",
        load,
        functools.partial(load, plain),
    )
add_both(
    "load-without-state",
    "momentum 10, a state without momentum loaded, a step",
    loaded_without_state,
    functools.partial(loaded_without_state, plain),
)
add_both(
    "load-refused",
    "momentum 1, a state with 50 refused for its groups, another step",
    refused_load,
    functools.partial(refused_load, plain),
)
add_both(
    "load-callers-dict",
    "entries left per parameter in the loaded dict",
    callers_dict,
    functools.partial(callers_dict, plain),
)
add_both(
    "load-memory",
    "fp64 momentum loaded: memory growth, in momenta",
    memory_of_load,
    functools.partial(memory_of_load, plain),
    at_most=True,
)
