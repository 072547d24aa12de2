# SPDX-License-Identifier: Apache-2.0
"""Cases of ZeroRedundancyOptimizer: groups that are added later, and uneven inputs in Join with
DistributedDataParallel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from .case import Case, Numbers, add
from .cases_both_storage import sharded
from .models import Weights, firsts, give, parameters, plain_steps
from .sides import Side

NEEDS = ("ZeroRedundancyOptimizer",)
RULES: dict[str, tuple[Any, dict[str, float], float]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, 1e-6),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, 1e-6),
    "adam": (torch.optim.Adam, {"lr": 0.1}, 1e-5),
}


def thawed_in_added_group(side: Side, rank: int) -> Numbers:
    params, late = parameters(2, 2), parameters(2)
    optimizer = sharded(side, "zro-view", params, lr=0.1)
    late[0].requires_grad_(False)
    optimizer.add_param_group({"params": late})
    late[0].requires_grad_(True)
    for _ in range(2):
        give(params + late, 1.0)
        optimizer.step()
    return firsts(params + late)


def right_thawed_in_added_group() -> Numbers:
    return plain_steps(parameters(2, 2, 2), [(1.0,)] * 2, lr=0.1)


def other_dtype_added(side: Side, rank: int) -> Numbers:
    """Return how far 1.0001 is above 1, in units of 0.0001, after an fp16 group has been added."""
    params = parameters(1, value=1.0001)
    optimizer = sharded(side, "zro-view", params, lr=0.1)
    optimizer.add_param_group({"params": parameters(1, 1, dtype=torch.float16)})
    return [(firsts(params)[0] - 1) * 1e4]


def batches_of(rank: int, count: int) -> list[tuple[float, float]]:
    return [(1.0 + rank + 0.5 * batch, 2.0 - rank - 0.25 * batch) for batch in range(count)]


def uneven(
    counts: Sequence[int], rule: str, optimizer_first: bool, side: Side, rank: int
) -> Numbers:
    model = Weights(4, 4)
    kind, settings, _ = RULES[rule]
    wrapped = DistributedDataParallel(model)
    optimizer = sharded(side, "zro", model.parameters(), kind, **settings)
    with Join([optimizer, wrapped] if optimizer_first else [wrapped, optimizer]):
        for factors in batches_of(rank, counts[rank]):
            optimizer.zero_grad()
            wrapped(factors).backward()
            optimizer.step()
    return model.firsts()


def right_uneven(counts: Sequence[int], rule: str) -> Numbers:
    """A rank without inputs adds zeros, and the sum is divided by the initial number of ranks."""
    world, (kind, settings, _) = len(counts), RULES[rule]
    inputs = [batches_of(rank, count) for rank, count in enumerate(counts)]
    means = [
        [sum(own[batch][place] for own in inputs if batch < len(own)) / world for place in (0, 1)]
        for batch in range(max(counts))
    ]
    return plain_steps(parameters(4, 4), means, kind, **settings)


def add_uneven(counts: Sequence[int], rule: str, optimizer_first: bool = False) -> None:
    text = " and ".join(map(str, counts))
    order = ", `Join([optimizer, ddp])`" if optimizer_first else ""
    add(
        Case(
            f"zro-join-{'-'.join(map(str, counts))}-{rule}{'-turned' if optimizer_first else ''}",
            "ZRO, Join",
            f"{text} batches, {rule}{order}",
            NEEDS,
            len(counts),
            functools.partial(uneven, tuple(counts), rule, optimizer_first),
            functools.partial(right_uneven, tuple(counts), rule),
            tolerance=RULES[rule][2],
        )
    )


add(
    Case(
        "zro-view-added-thawed",
        "ZRO, bucket view",
        "a late group's tensor thawed, two steps",
        NEEDS,
        2,
        thawed_in_added_group,
        right_thawed_in_added_group,
    )
)
add(
    Case(
        "zro-view-added-dtype",
        "ZRO, bucket view",
        "after a late fp16 group: 1.0001 - 1, in units of 0.0001",
        NEEDS,
        2,
        other_dtype_added,
        lambda: [(firsts(parameters(1, value=1.0001))[0] - 1) * 1e4],
        tolerance=1e-3,
    )
)
for each in RULES:
    add_uneven((3, 6), each)
add_uneven((0, 3), "sgd")
add_uneven((2, 4, 5), "sgd")
add_uneven((2, 4, 5), "adam")
for each in ("sgd", "adam"):
    add_uneven((3, 6), each, optimizer_first=True)
