# SPDX-License-Identifier: Apache-2.0
"""Defines a case: something that one of the originals does wrong, as a function of the classes to
test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional, Union

from .sides import Side

Numbers = list[float]
ByRank = dict[int, Numbers]


@dataclass(frozen=True)
class Refusal:
    """The right result if training is impossible: an error whose message matches `names`."""

    text: str
    names: str = ""


@dataclass(frozen=True)
class Case:
    """`train` runs on each rank after the process group has been created. It returns the final
    values of the rank, or None if the rank does not take part. `right` runs in one process without
    a group, and returns the values of every rank, or one list for all ranks. Ranks in `lost` end or
    stop on purpose, so they return nothing."""

    name: str
    where: str
    what: str
    needs: tuple[str, ...]
    world: int
    train: Callable[[Side, int], Optional[Numbers]]
    right: Union[Callable[[], Union[Numbers, ByRank]], Refusal]
    tolerance: float = 1e-6
    at_most: bool = False  # counts of work may also be lower than the right value
    deadline_s: float = 12.0  # the original hangs if it takes longer
    group_timeout_s: float = (
        15.0  # longer, to show the hang; libzero may name the rank it waited for
    )
    patched: str = ""  # what the original would reject without a patch
    lost: frozenset[int] = field(default_factory=frozenset)


CASES: list[Case] = []


def add(case: Case) -> None:
    if any(other.name == case.name for other in CASES):
        raise ValueError(f"two cases are called {case.name}")
    CASES.append(case)
