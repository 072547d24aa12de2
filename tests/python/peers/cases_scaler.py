# SPDX-License-Identifier: Apache-2.0
"""Cases of ShardedGradScaler on the CPU: the effect of an overflow of one rank on the step and the
scale of all ranks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from .case import Case, Numbers, add
from .models import firsts, give, parameters
from .sides import Side

NEEDS = ("OSS", "ShardedGradScaler")
SCALE = 1024.0
MORE = 3  # steps of ranks that are no longer at the same step
PATCHED = "CUDA faked"
Gradients = Callable[[int], tuple[float, ...]]


def run(
    scaler: Any,
    optimizers: list[Any],
    params: list[list[torch.nn.Parameter]],
    gradient: float,
    more: int = 0,
) -> Numbers:
    """Take a step with a rate of 0.1 for each optimizer, and `more` steps with finite gradients.
    Return the first element of each parameter, and the scale."""
    for one in [gradient] + [1.0] * more:
        scaler.scale(torch.ones(()))
        for optimizer, owned in zip(optimizers, params):
            give(owned, one * scaler.get_scale())
            scaler.step(optimizer)
        scaler.update()
    return [firsts(owned)[0] for owned in params] + [float(scaler.get_scale())]


def sharded_run(
    patched: bool, count: int, overflows: tuple[int, ...], side: Side, rank: int
) -> Numbers:
    params = [parameters(1, 1) for _ in range(count)]
    optimizers = [side.OSS(owned, optim=torch.optim.SGD, lr=0.1) for owned in params]
    scaler = (side.patched_scaler if patched else side.ShardedGradScaler)(init_scale=SCALE)
    return run(scaler, optimizers, params, math.inf if rank in overflows else 1.0)


def right_run(count: int, overflows: tuple[int, ...], more: int = 0) -> Numbers:
    """Take the step in one process whose gradient is the mean, which is infinite if one rank's
    gradient is infinite."""
    params = [parameters(1, 1) for _ in range(count)]
    optimizers = [torch.optim.SGD(owned, lr=0.1) for owned in params]
    return run(
        torch.amp.GradScaler("cpu", init_scale=SCALE),
        optimizers,
        params,
        math.inf if overflows else 1.0,
        more,
    )


def with_plain_scaler(side: Side, rank: int) -> Numbers:
    """As after ShardedDataParallel, only the rank that owns the parameter has the overflow."""
    params = [parameters(1, 1)]
    optimizer = side.OSS(params[0], optim=torch.optim.SGD, lr=0.1)
    return run(
        torch.amp.GradScaler("cpu", init_scale=SCALE),
        [optimizer],
        params,
        math.inf if rank == 0 else 1.0,
        MORE,
    )


def add_scaler(name: str, what: str, count: int, overflows: tuple[int, ...], patched: bool) -> None:
    add(
        Case(
            f"scaler-{name}",
            "ShardedGradScaler",
            what,
            NEEDS,
            2,
            functools.partial(sharded_run, patched, count, overflows),
            functools.partial(right_run, count, overflows),
            patched=PATCHED if patched else "",
        )
    )


add_scaler("off", "infinite gradients on both of two ranks: parameter and scale", 1, (0, 1), False)
add_scaler("one-rank", "infinite gradients on rank 0 of two: parameter and scale", 1, (0,), True)
add_scaler(
    "two-optimizers",
    "two optimizers, infinite gradients on both ranks: parameters and scale",
    2,
    (0, 1),
    True,
)
add(
    Case(
        "scaler-plain",
        "OSS with torch's GradScaler",
        "infinite gradients on rank 0 of two, and 3 more steps: parameter and scale",
        ("OSS",),
        2,
        with_plain_scaler,
        functools.partial(right_run, 1, (0,), MORE),
    )
)
