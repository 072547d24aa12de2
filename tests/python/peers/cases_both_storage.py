# SPDX-License-Identifier: Apache-2.0
"""Cases of OSS and ZeroRedundancyOptimizer: parameters that are frozen or strided, or whose storage
is replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .case import ByRank, Case, Numbers, add
from .models import firsts, give, parameters, plain_steps
from .sides import Side

KINDS = {"oss": "OSS", "zro": "ZRO", "zro-view": "ZRO, bucket view"}
NEEDS = {
    "oss": ("OSS",),
    "zro": ("ZeroRedundancyOptimizer",),
    "zro-view": ("ZeroRedundancyOptimizer",),
}


def sharded(
    side: Side, kind: str, params: Any, rule: Any = torch.optim.SGD, **settings: Any
) -> Any:
    if kind == "oss":
        return side.OSS(params, optim=rule, **settings)
    return side.ZeroRedundancyOptimizer(
        params, optimizer_class=rule, parameters_as_bucket_view=kind == "zro-view", **settings
    )


def by_data(params: list[nn.Parameter]) -> None:
    for param in params:
        param.data = param.data.clone()


def by_vector(params: list[nn.Parameter]) -> None:
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(params).detach(), params)


def by_cast(params: list[nn.Parameter]) -> None:
    nn.ParameterList(params).double().float()


def swapped(
    kind: str, swap: Callable[[list[nn.Parameter]], None], side: Side, rank: int
) -> Numbers:
    params = parameters(2, 2)
    optimizer = sharded(side, kind, params, lr=0.1)
    swap(params)
    for _ in range(2):
        give(params, 1.0)
        optimizer.step()
    return firsts(params)


def right_swapped() -> Numbers:
    return plain_steps(parameters(2, 2), [(1.0,)] * 2, lr=0.1)


def frozen(params: list[nn.Parameter], optimizer: Any) -> Numbers:
    """Take a step with momentum, freeze the first parameter with gradients of zero, and take two
    more steps."""
    for gradient in (1.0, 0.0, 0.0):
        give(params, gradient)
        optimizer.step()
        params[0].requires_grad_(False)
        if hasattr(optimizer, "refresh_trainable"):
            optimizer.refresh_trainable()
    return firsts(params)


def frozen_with_momentum(kind: str, side: Side, rank: int) -> Numbers:
    params = parameters(2, 2)
    return frozen(params, sharded(side, kind, params, lr=0.1, momentum=0.9))


def right_frozen_with_momentum() -> Numbers:
    params = parameters(2, 2)
    return frozen(params, torch.optim.SGD(params, lr=0.1, momentum=0.9))


def thawed_without_refresh(kind: str, side: Side, rank: int) -> Numbers:
    params = parameters(2, 2)
    params[0].requires_grad_(False)
    optimizer = sharded(side, kind, params, lr=0.1)
    params[0].requires_grad_(True)
    for _ in range(2):
        give(params, 1.0)
        optimizer.step()
    return firsts(params)


def strided_parameter(beside: float) -> tuple[torch.Tensor, nn.Parameter]:
    """Return every second column of a 4 by 6 matrix, and its memory."""
    memory = torch.full((4, 6), beside)
    memory[:, ::2] = 1.0
    return memory, nn.Parameter(memory[:, ::2])


def of_strided(memory: torch.Tensor, param: nn.Parameter) -> Numbers:
    """Return the first element of the first and of the last row, and the element next to the
    first."""
    return [float(param[0, 0]), float(param[3, 0]), float(memory[0, 1])]


def strided(kind: str, side: Side, rank: int) -> Numbers:
    memory, param = strided_parameter(5.0 + rank)
    optimizer = sharded(side, kind, [param], lr=0.1)
    give([param], [1.0] * 12)
    optimizer.step()
    return of_strided(memory, param)


def right_strided() -> ByRank:
    values = {}
    for rank in range(2):
        memory, param = strided_parameter(5.0 + rank)
        give([param], [1.0] * 12)
        torch.optim.SGD([param], lr=0.1).step()
        values[rank] = of_strided(memory, param)
    return values


def add_for(
    kind: str, name: str, what: str, train: Callable[..., Numbers], right: Callable[[], Any]
) -> None:
    add(Case(f"{kind}-{name}", KINDS[kind], what, NEEDS[kind], 2, train, right))


SWAPS = {
    "data": ("`.data =`", by_data),
    "vector": ("`vector_to_parameters`", by_vector),
    "cast": ("cast to fp64 and back", by_cast),
}
for swap_name, (swap_text, swap_by) in SWAPS.items():
    for each in KINDS if swap_by is by_data else ("oss", "zro-view"):
        add_for(
            each,
            f"swap-{swap_name}",
            f"new storage by {swap_text}, two steps",
            functools.partial(swapped, each, swap_by),
            right_swapped,
        )
for each in KINDS:
    add_for(
        each,
        "frozen-momentum",
        "frozen with momentum, zero gradient: it and another",
        functools.partial(frozen_with_momentum, each),
        right_frozen_with_momentum,
    )
add_for(
    "oss",
    "thawed",
    "thawed without a refresh, two steps",
    functools.partial(thawed_without_refresh, "oss"),
    right_swapped,
)
add_for(
    "zro",
    "strided",
    "every second column of 4 by 6, on gloo: first row, last row, neighbor",
    functools.partial(strided, "zro"),
    right_strided,
)
