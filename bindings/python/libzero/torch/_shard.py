# SPDX-License-Identifier: Apache-2.0
"""This rank's share of a training: what is behind the optimizers of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Optional

import torch

from .. import Comm
from ._agree import agreed
from ._core import Core

Groups = Sequence[dict[str, Any]]
Closure = Optional[Callable[[], Any]]


def names_of(group: Mapping[str, Any], first: int, taken: Container[str] = ()) -> list[str]:
    """What libzero calls the parameters of a group: their names, with their numbers where one of
    another group is `taken` already, or their numbers alone, which count from `first` on."""
    count = len(group["params"])
    named = group.get("param_names") or [str(first + place) for place in range(count)]
    return [
        f"{name} (parameter {first + place})" if name in taken else name
        for place, name in enumerate(named)
    ]


def options_of(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def copy_options(source: Groups, target: Groups) -> None:
    for mine, other in zip(source, target):
        other.update(options_of(mine))


def loss_of(comm: Comm, closure: Closure) -> Any:
    """What `closure` returned, this rank's loss; None without one. Where it raises on one rank all
    raise, and none waits in what comes next. Collective where there is one: all ranks pass one."""
    if closure is None:
        return None
    told = "the closure of rank {rank} raised, and its error says why; no step was made"
    with agreed(comm, "", told), torch.enable_grad():
        return closure()


class Shard(ABC):
    """Parameters in groups, as torch.optim has them, whose state is sharded over `comm`.

    `optim` is a torch optimizer of the class that the program chose: it checks options and knows
    their defaults.
    """

    optim: torch.optim.Optimizer

    def __init__(self, comm: Comm) -> None:
        self.comm = comm

    @property
    @abstractmethod
    def core(self) -> Core: ...

    @abstractmethod
    def compare_group(self, group: dict[str, Any]) -> None:
        """Raise, on all ranks where one has to, what keeps `group` from being added, and fill in the
        options that it leaves at their default. Collective; nothing is added."""

    @abstractmethod
    def add_group(self, group: dict[str, Any]) -> None:
        """Add parameters that compare_group let through. Collective."""

    @abstractmethod
    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        """Update by the options of `groups` as they are now; what the closure returned. Collective.
        `hand` is for uneven inputs."""

    @abstractmethod
    def owned(self, groups: Groups) -> Any:
        """`param_groups` and `state` of what this rank owns. Local."""

    @abstractmethod
    def initial_state(self, groups: Groups) -> Optional[dict[int, dict[str, Any]]]:
        """What gather_state would return before the first step; None if this rank alone cannot
        tell. Local."""

    @abstractmethod
    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        """The whole state by number of parameter, on rank `to` or on all; elsewhere {}. Collective."""

    @abstractmethod
    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        """Check a new state, with `groups` having the options to go on with; what is returned
        replaces all state by it, and is collective. Nothing has changed if either raises."""

    def close(self) -> None:
        self.core.close()


class Hand:
    """One step among ranks of which some have no more inputs: `contributes` on the one rank whose
    gradients, already averaged, are taken, and what is trained there."""

    def __init__(self, contributes: bool, trained: Sequence[bool]) -> None:
        self.contributes = contributes
        self.trained = trained
