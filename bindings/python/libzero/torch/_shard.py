# SPDX-License-Identifier: Apache-2.0
"""Parameters in groups, as programs pass them, and what any sharded state of them can do."""

from __future__ import annotations

import contextlib
import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

import torch

from .. import Comm
from ._core import Core
from ._group import agreed

Params = Iterable[Any]
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
    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        """What gather_state would return after a step of zeros that moved nothing, of all parameters
        or of one: the place for a state that is loaded. Local."""

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


def listed_params(params: Params, what: str) -> list[Any]:
    """Parameters as a list of tensors, of (name, tensor), or of groups, for the optimizer `what`.
    TypeError and ValueError for anything else, RuntimeError for names that this torch cannot take."""
    if isinstance(params, torch.Tensor):
        raise TypeError(f"params is a tensor; {what} takes an iterable of tensors or of groups")
    try:
        listed = list(params)
    except TypeError:
        raise TypeError(
            f"params is a {type(params).__name__}; {what} takes an iterable of tensors or of groups"
        ) from None
    if not listed:
        raise ValueError(f"{what} got no parameters")
    kinds = {_kind(one) for one in listed}
    if len(kinds) > 1 or "" in kinds:
        odd = next((one for one in listed if not _kind(one)), listed[-1])
        raise TypeError(
            f"params has a {type(odd).__name__} in it; {what} takes tensors, or groups, not both"
        )
    for number, group in enumerate(listed):
        if isinstance(group, dict) and "params" not in group:
            raise ValueError(f"group {number} has no 'params'")
    if "group" in kinds:
        listed = [each_once(group) for group in listed]
    else:
        listed = _each_once(listed)
    return listed if _takes_names() else [_without_names(one) for one in listed]


@contextlib.contextmanager
def unless_refused(groups: Iterable[Any]) -> Iterator[None]:
    """torch puts defaults into the program's own groups. Where the block raises, they hold what they
    held before it."""
    before = [(group, dict(group)) for group in groups if isinstance(group, dict)]
    try:
        yield
    except BaseException:
        for group, held in before:
            group.clear()
            group.update(held)
        raise


def each_once(group: dict[str, Any]) -> dict[str, Any]:
    """The group, whose list has each of its parameters once then, and a warning where one is there
    again. The program's own dictionary, as torch keeps it: what is set in it later counts."""
    inside = group["params"] if isinstance(group, dict) and "params" in group else set()
    if isinstance(inside, (torch.Tensor, set)) or not isinstance(inside, Iterable):
        return group  # as torch takes it, or refuses it
    group["params"] = _each_once(list(inside))
    return group


def _each_once(params: list[Any]) -> list[Any]:
    tensors = [one[1] if _kind(one) == "named" else one for one in params]
    kept = list({id(tensor): one for tensor, one in reversed(list(zip(tensors, params)))}.values())
    if len(kept) < len(params):
        warnings.warn(
            "a parameter is more than once in a group, where torch would update it as often; "
            "libzero updates it once",
            stacklevel=4,
        )
    return kept[::-1]


def _kind(one: object) -> str:
    if isinstance(one, torch.Tensor):
        return "tensor"
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], torch.Tensor):
        return "named"
    return "group" if isinstance(one, dict) else ""


@functools.cache
def _takes_names() -> bool:
    try:
        torch.optim.SGD([("weight", torch.zeros(1))], lr=0.1)
    except TypeError:
        return False
    return True


def _without_names(one: Any) -> Any:
    """`one` of a list of tensors or groups; a generator in a group is a list behind that."""
    inside = one["params"] if isinstance(one, dict) else [one]
    params = [inside] if isinstance(inside, torch.Tensor) else list(inside)
    if any(_kind(param) == "named" for param in params):
        raise RuntimeError(
            f"names of parameters need torch 2.6 or later, and this is {torch.__version__}; pass "
            "model.parameters()"
        )
    return {**one, "params": params} if isinstance(one, dict) else one
