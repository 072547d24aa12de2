# SPDX-License-Identifier: Apache-2.0
"""Cases of ranks that register different parameters, and of ranks that are lost. The right result
is an error that names the rank."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .case import Case, Numbers, Refusal, add
from .cases_both_storage import KINDS, NEEDS, sharded
from .models import firsts, give, parameters, plain_steps
from .sides import Side

TOLD = Refusal("an error naming a rank, everywhere", r"[Rr]ank \d")
LOST = Refusal("an error naming rank 1, no second wait", r"[Rr]ank 1\b")
GROUP_TIMEOUT_S = 3.0
Registered = Callable[[int], Any]


def of_shapes(
    *by_rank: list[tuple[int, ...]], dtypes: tuple[torch.dtype, ...] = (torch.float32,) * 2
) -> Registered:
    """Return a function that creates a rank's parameters, filled with the rank's number plus 1."""
    return lambda rank: [
        nn.Parameter(torch.full(shape, rank + 1.0, dtype=dtypes[rank])) for shape in by_rank[rank]
    ]


def named(rank: int) -> list[tuple[str, nn.Parameter]]:
    """Return two parameters of equal size. Rank 1 exchanges their names."""
    both = [
        ("first", nn.Parameter(torch.full((4,), 1.0))),
        ("second", nn.Parameter(torch.full((4,), 2.0))),
    ]
    return both[::-1] if rank else both


def registered(kind: str, make: Registered, side: Side, rank: int) -> Numbers:
    """Return the first and last element of each tensor after a step with a rate of 0.1."""
    given = make(rank)
    params = [entry[1] if isinstance(entry, tuple) else entry for entry in given]
    optimizer = sharded(side, kind, given, lr=0.1)
    give(params, 1.0)
    optimizer.step()
    return [float(param.detach().flatten()[place]) for param in params for place in (0, -1)]


def lose_rank_1(kind: str, how: signal.Signals, side: Side, rank: int) -> Numbers:
    params = of_shapes([(2,), (2,)], [(2,), (2,)])(0)
    optimizer = sharded(side, kind, params, lr=0.1)
    give(params, 1.0)
    optimizer.step()
    if rank == 1:
        os.kill(os.getpid(), how)
    give(params, 1.0)
    try:
        optimizer.step()
    except Exception:
        again = time.monotonic()
        with contextlib.suppress(Exception):
            optimizer.step()
        if time.monotonic() - again > GROUP_TIMEOUT_S / 2:
            raise RuntimeError("the next step waits for another timeout") from None
        raise
    return [float(param.detach()[0]) for param in params]


def values_after_loss(kind: str, side: Side, rank: int) -> Numbers:
    """Return the values of the other ranks after a step that fails because rank 2 was killed before
    it."""
    params = parameters(2, 2, 2)
    optimizer = sharded(side, kind, params, lr=0.1)
    give(params, 1.0)
    optimizer.step()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with contextlib.suppress(Exception):
        optimizer.step()
    return firsts(params)


def add_registered(
    name: str, what: str, make: Registered, kinds: tuple[str, ...] = ("oss", "zro")
) -> None:
    for kind in kinds:
        add(
            Case(
                f"{kind}-registers-{name}",
                KINDS[kind],
                what,
                NEEDS[kind],
                2,
                functools.partial(registered, kind, make),
                TOLD,
            )
        )


def add_lost(kind: str, name: str, what: str, how: signal.Signals) -> None:
    add(
        Case(
            f"{kind}-{name}",
            KINDS[kind],
            what,
            NEEDS[kind],
            2,
            functools.partial(lose_rank_1, kind, how),
            LOST,
            group_timeout_s=GROUP_TIMEOUT_S,
            lost=frozenset({1}),
        )
    )


add_registered(
    "shorter", "the owner's tensor has 2 elements, the other rank's 4", of_shapes([(2,)], [(4,)])
)
add_registered(
    "longer", "the owner's tensor has 4 elements, the other rank's 2", of_shapes([(4,)], [(2,)])
)
add_registered("shape", "(2, 3) on one rank, (3, 2) on the other", of_shapes([(2, 3)], [(3, 2)]))
add_registered(
    "dtype",
    "fp32 on one rank, fp64 on the other",
    of_shapes([(4,)], [(4,)], dtypes=(torch.float32, torch.float64)),
)
add_registered("more", "one more tensor on rank 1", of_shapes([(4,)], [(4,), (2,)]))
add_registered("order", "named parameters of equal size, reversed on rank 1", named, ("oss",))
for each in ("oss", "zro"):
    add_lost(each, "rank-killed", "rank 1 is killed before step 2", signal.SIGKILL)
    add_lost(
        each,
        "rank-stopped",
        "rank 1 is stopped before step 2, group timeout 3 s",
        signal.SIGSTOP,
    )
    add(
        Case(
            f"{each}-rank-killed-values",
            KINDS[each],
            "rank 2 of three is killed before step 2: others' values",
            NEEDS[each],
            3,
            functools.partial(values_after_loss, each),
            lambda: plain_steps(parameters(2, 2, 2), [(1.0,)], lr=0.1),
            lost=frozenset({2}),
        )
    )
