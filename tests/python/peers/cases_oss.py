# SPDX-License-Identifier: Apache-2.0
"""Cases of OSS alone: owners after a freeze, and transferred bytes."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from .case import Case, Numbers, add
from .models import firsts, give, parameters, plain_steps
from .sides import Side

AGREEMENT_BYTES = 1024.0  # enough to exchange that there is nothing to do
BF16_UNIT = 512.0  # for values near 70,000
SIZES = (10, 6, 5, 4)


def step_once(optimizer: Any, params: list[nn.Parameter], frozen: int) -> None:
    """Take a step with gradients of 1. The first `frozen` parameters have no gradient."""
    give(params, *[None] * frozen, *[1.0] * (len(params) - frozen))
    optimizer.step()


def group_after_freeze(side: Side, momentum: float) -> tuple[Any, list[nn.Parameter]]:
    params = parameters(*SIZES)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=0.1, momentum=momentum)
    params[0].requires_grad_(False)
    late = parameters(3)
    optimizer.add_param_group({"params": late})
    return optimizer, params + late


def values_after_freeze(side: Side, rank: int) -> Numbers:
    optimizer, params = group_after_freeze(side, 0.0)
    for _ in range(3):
        step_once(optimizer, params, 1)
    return firsts(params)


def right_values_after_freeze() -> Numbers:
    return plain_steps(parameters(*SIZES, 3), [(None, 1.0, 1.0, 1.0, 1.0)] * 3, lr=0.1)


def state_after_freeze(side: Side, rank: int) -> Numbers | None:
    optimizer, params = group_after_freeze(side, 0.9)
    step_once(optimizer, params, 1)
    optimizer.consolidate_state_dict()
    return [float(index) for index in optimizer.state_dict()["state"]] if rank == 0 else None


def right_state_after_freeze() -> Numbers:
    params = parameters(*SIZES, 3)
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    step_once(optimizer, params, 1)
    return [float(index) for index in optimizer.state_dict()["state"]]


def bytes_when_frozen(side: Side, rank: int) -> Numbers:
    params = parameters(1000, 900)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=0.1)
    step_once(optimizer, params, 0)
    for param in params:
        param.requires_grad_(False)
    optimizer.refresh_trainable()
    return [float(side.moved_bytes(lambda: step_once(optimizer, params, len(params))))]


def in_fp16(start: float, rate: float, steps: int, side: Side, rank: int) -> Numbers:
    params = [nn.Parameter(torch.full((1,), start)) for _ in range(2)]
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=rate, broadcast_fp16=True)
    for _ in range(steps):
        step_once(optimizer, params, 0)
    return firsts(params)


def right_in_fp16(start: float, rate: float, steps: int) -> Numbers:
    return plain_steps(parameters(1, 1, value=start), [(1.0,)] * steps, lr=rate)


def width_in_fp16(side: Side, rank: int) -> Numbers:
    params = parameters(1, 1, dtype=torch.float64)
    step_once(side.OSS(params, optim=torch.optim.SGD, lr=0.1, broadcast_fp16=True), params, 0)
    return [float(param.element_size()) for param in params]


def add_in_fp16(
    name: str, what: str, start: float, rate: float, steps: int, tolerance: float
) -> None:
    add(
        Case(
            name,
            "OSS fp16 broadcast",
            what,
            ("OSS",),
            2,
            functools.partial(in_fp16, start, rate, steps),
            functools.partial(right_in_fp16, start, rate, steps),
            tolerance=tolerance,
        )
    )


add(
    Case(
        "oss-group-after-freeze",
        "OSS repartition",
        "sizes 10, 6, 5, 4, the first frozen, then a group of 3: three steps",
        ("OSS",),
        2,
        values_after_freeze,
        right_values_after_freeze,
    )
)
add(
    Case(
        "oss-state-after-freeze",
        "OSS repartition",
        "the same with momentum: parameters with state",
        ("OSS",),
        2,
        state_after_freeze,
        right_state_after_freeze,
    )
)
add(
    Case(
        "oss-bytes-when-frozen",
        "OSS refresh",
        "bytes moved per step with all 1,900 parameters frozen",
        ("OSS",),
        2,
        bytes_when_frozen,
        lambda: [AGREEMENT_BYTES],
        at_most=True,
    )
)
add_in_fp16(
    "oss-fp16-small-steps", "100 steps of 0.0001 from 1, shared in fp16", 1.0, 1e-4, 100, 1e-3
)
add_in_fp16(
    "oss-fp16-large-values", "a step of 1 from 70,000, shared in fp16", 70000.0, 1.0, 1, BF16_UNIT
)
add(
    Case(
        "oss-fp16-width",
        "OSS fp16 broadcast",
        "bytes per element of fp64 parameters shared in fp16",
        ("OSS",),
        2,
        width_in_fp16,
        lambda: [8.0, 8.0],
    )
)
