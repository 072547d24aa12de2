# SPDX-License-Identifier: Apache-2.0
"""A case: something that one of the originals gets wrong, as a function of the classes to try it
with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Optional, Union

from .sides import Side

Numbers = list[float]
ByRank = dict[int, Numbers]


@dataclass(frozen=True)
class Refusal:
    """What is right where no training can be: an error, whose sentence matches `names`."""

    text: str
    names: str = ""


@dataclass(frozen=True)
class Case:
    """`train` runs on each rank, after the process group is there, and returns what the rank has in
    the end; None on a rank that has no part. `right` runs in one process without any group, and
    returns the numbers of every rank, or of each one. Ranks in `lost` end or stop on purpose, so
    nothing is expected of them."""

    name: str
    where: str
    what: str
    needs: tuple[str, ...]
    world: int
    train: Callable[[Side, int], Optional[Numbers]]
    right: Union[Callable[[], Union[Numbers, ByRank]], Refusal]
    tolerance: float = 1e-6
    at_most: bool = False  # fewer than what is right is right too: counts of work
    deadline_s: float = 12.0  # the original hangs if it takes longer
    group_timeout_s: float = (
        15.0  # longer, so that it is seen to hang; libzero may name the rank it waited for
    )
    patched: str = ""  # what the original would refuse, and had to be kept from refusing
    lost: frozenset[int] = field(default_factory=frozenset)


CASES: list[Case] = []


def add(case: Case) -> None:
    if any(other.name == case.name for other in CASES):
        raise ValueError(f"two cases are called {case.name}")
    CASES.append(case)
