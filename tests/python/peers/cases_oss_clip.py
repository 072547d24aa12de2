# SPDX-License-Identifier: Apache-2.0
"""Cases of OSS.clip_grad_norm: the norm, and the clipped gradients, which a step with a rate of 1
shows."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Optional

import torch
import torch.distributed as dist
from torch import nn

from .case import ByRank, Case, Numbers, add
from .models import Gradient, firsts, give, parameters
from .sides import Side

NO_LIMIT = 1e9


def norm_of(params: list[nn.Parameter], limit: float, p: float) -> float:
    return float(torch.nn.utils.clip_grad_norm_(params, limit, p))


def pair_gradients(pair: int) -> tuple[Sequence[float], float]:
    scale = 10.0**pair
    return (3 * scale, 4 * scale), 12 * scale


def norms_of_pairs(p: float, clipping: tuple[int, ...], side: Side, rank: int) -> Optional[Numbers]:
    """Ranks 0 and 1 form a group, and so do 2 and 3. The norms are 13 and 130, or 12 and 120 for p
    = infinity."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = rank // 2
    params = parameters(2, 1)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=1.0, group=groups[pair])
    give(params, *pair_gradients(pair))
    return [float(optimizer.clip_grad_norm(NO_LIMIT, p))] if pair in clipping else None


def right_norms_of_pairs(p: float, clipping: tuple[int, ...]) -> ByRank:
    norms = {}
    for pair in clipping:
        params = parameters(2, 1)
        give(params, *pair_gradients(pair))
        norms[2 * pair] = norms[2 * pair + 1] = [norm_of(params, NO_LIMIT, p)]
    return norms


def late_gradient(side: Side, rank: int) -> Numbers:
    params = parameters(1, 1)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=1.0)
    give(params, 20.0, None)
    optimizer.clip_grad_norm(NO_LIMIT)
    give(params, 20.0)
    norm = float(optimizer.clip_grad_norm(1.0))
    optimizer.step()
    return [norm, math.hypot(*(1 - first for first in firsts(params)))]


def right_late_gradient() -> Numbers:
    params = parameters(1, 1)
    give(params, 20.0)
    return [
        norm_of(params, 1.0, 2.0),
        math.hypot(*firsts([param.grad for param in params if param.grad is not None])),
    ]


def clipped(
    dtype: torch.dtype,
    sizes: Sequence[int],
    gradients: Sequence[Gradient],
    limit: float,
    side: Side,
    rank: int,
) -> Numbers:
    """Return the norm, and how far a step with a rate of 1 moves the first element."""
    params = parameters(*sizes, dtype=dtype)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=1.0)
    give(params, *gradients)
    norm = float(optimizer.clip_grad_norm(limit))
    optimizer.step()
    return [norm, 1 - firsts(params)[0]]


def right_clipped(
    dtype: torch.dtype, sizes: Sequence[int], gradients: Sequence[Gradient], limit: float
) -> Numbers:
    """Compute the result in fp64, from gradients that are rounded to that dtype."""
    rounded = parameters(*sizes, dtype=dtype)
    give(rounded, *gradients)
    params = parameters(*sizes, dtype=torch.float64)
    for param, other in zip(params, rounded):
        param.grad = None if other.grad is None else other.grad.double()
    norm = norm_of(params, limit, 2.0)
    return [norm, firsts([param.grad for param in params if param.grad is not None])[0]]


PLACES = range(4)


def nan_gradients(place: int) -> list[float]:
    gradients = [3.0, 4.0, 0.0, 0.0]
    gradients[place] = math.nan
    return gradients


def norms_with_nan(side: Side, rank: int) -> Numbers:
    params = parameters(1, 1, 1, 1)
    optimizer = side.OSS(params, optim=torch.optim.SGD, lr=1.0)
    norms = []
    for place in PLACES:
        give(params, *nan_gradients(place))
        norms.append(float(optimizer.clip_grad_norm(NO_LIMIT, math.inf)))
    return norms


def right_norms_with_nan() -> Numbers:
    params = parameters(1, 1, 1, 1)
    norms = []
    for place in PLACES:
        give(params, *nan_gradients(place))
        norms.append(norm_of(params, NO_LIMIT, math.inf))
    return norms


def add_pairs(name: str, what: str, p: float, clipping: tuple[int, ...]) -> None:
    add(
        Case(
            name,
            "OSS clip",
            what,
            ("OSS",),
            4,
            functools.partial(norms_of_pairs, p, clipping),
            functools.partial(right_norms_of_pairs, p, clipping),
        )
    )


def add_clipped(
    name: str,
    what: str,
    dtype: torch.dtype,
    sizes: Sequence[int],
    gradients: Sequence[Gradient],
    limit: float,
    tolerance: float,
) -> None:
    add(
        Case(
            name,
            "OSS clip",
            what,
            ("OSS",),
            2,
            functools.partial(clipped, dtype, sizes, gradients, limit),
            functools.partial(right_clipped, dtype, sizes, gradients, limit),
            tolerance=tolerance,
        )
    )


add_pairs("oss-clip-pairs", "two groups of two ranks, norms 13 and 130", 2.0, (0, 1))
add_pairs("oss-clip-pairs-inf", "the same, p = infinity", math.inf, (0, 1))
add_pairs("oss-clip-one-pair", "only the first group clips", 2.0, (0,))
add(
    Case(
        "oss-clip-late-gradient",
        "OSS clip",
        "gradients of 20, one of them absent in the first call, clipped to 1: norms before and after",
        ("OSS",),
        2,
        late_gradient,
        right_late_gradient,
        tolerance=1e-4,
    )
)
add_clipped(
    "oss-clip-fp16",
    "fp16, 700 elements of 10, clipped to 26: norm, gradient after",
    torch.float16,
    (700, 1),
    (10.0, 0.0),
    26.0,
    0.01,
)
add_clipped(
    "oss-clip-fp16-5000",
    "fp16, 250,000 elements of 10, clipped to 50: the same",
    torch.float16,
    (250_000, 1),
    (10.0, 0.0),
    50.0,
    0.01,
)
add_clipped(
    "oss-clip-bf16",
    "bf16, two tensors, clipped to 1: the same",
    torch.bfloat16,
    (3, 3),
    (1.0859375,) * 2,
    1.0,
    0.002,
)
add_clipped(
    "oss-clip-fp16-empty-rank",
    "fp16, a rank without parameters: the same",
    torch.float16,
    (4,),
    (1.0,),
    1.0,
    0.001,
)
add_clipped(
    "oss-clip-fp64", "fp64, two gradients of 2: the same", torch.float64, (1, 1), (2.0,), 1.0, 1e-5
)
add(
    Case(
        "oss-clip-nan-inf",
        "OSS clip",
        "p = infinity, gradients 3, 4, 0, 0, each in turn NaN: four norms",
        ("OSS",),
        2,
        norms_with_nan,
        right_norms_with_nan,
    )
)
