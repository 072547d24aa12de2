# SPDX-License-Identifier: Apache-2.0
"""Parameters in the groups that programs pass, and the operations of any sharded state."""

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
    """Return libzero's names of a group's parameters. They are the parameters' own names; if a name
    is already `taken` by another group, its number is appended. Without names they are numbers,
    counted from `first`."""
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
    """Return the result of `closure`, which is this rank's loss; None without a closure. If it
    raises on one rank, all ranks raise, so that no rank waits in the next call. Collective with a
    closure: all ranks pass one."""
    if closure is None:
        return None
    told = "the closure of rank {rank} raised (see its error); no step was made"
    with agreed(comm, "", told), torch.enable_grad():
        return closure()


class Shard(ABC):
    """Groups of parameters, like in torch.optim. Their state is sharded over `comm`.

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
        """Raise on all ranks if any rank cannot add `group`, and fill in the default options.
        Collective. Adds no parameters."""

    @abstractmethod
    def add_group(self, group: dict[str, Any]) -> None:
        """Add parameters that compare_group accepted. Collective."""

    @abstractmethod
    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        """Update with the current options of `groups`, and return the result of the closure.
        Collective. `hand` is for uneven inputs."""

    @abstractmethod
    def owned(self, groups: Groups) -> Any:
        """Return `param_groups` and `state` of the elements that this rank owns. Local."""

    @abstractmethod
    def initial_state(self, groups: Groups) -> Optional[dict[int, dict[str, Any]]]:
        """Return the result of gather_state before the first step; None if this rank cannot know it
        alone. Local."""

    @abstractmethod
    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        """Return the result of gather_state after a step of zeros that changed no values, for all
        parameters or for `only` one. A loaded state is read into it. Local."""

    @abstractmethod
    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        """Return the whole state by number of parameter on rank `to` or on all, and {} elsewhere.
        Collective."""

    @abstractmethod
    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        """Check a new state; `groups` have the options to continue with. The returned function
        replaces all state with it, and is collective. If either raises, nothing has changed."""

    def close(self) -> None:
        self.core.close()


class Hand:
    """One step among ranks of which some have run out of inputs. `contributes` is set on the one
    rank that provides the gradients, already averaged, and the choice of the parameters to
    train."""

    def __init__(self, contributes: bool, trained: Sequence[bool]) -> None:
        self.contributes = contributes
        self.trained = trained


def listed_params(params: Params, what: str) -> list[Any]:
    """Return parameters as a list of tensors, of (name, tensor), or of groups, for the optimizer
    `what`. TypeError and ValueError for anything else; RuntimeError for names that this torch
    version does not support."""
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
    """Restore groups if the block raises. torch puts defaults into the program's own groups."""
    before = [(group, dict(group)) for group in groups if isinstance(group, dict)]
    try:
        yield
    except BaseException:
        for group, held in before:
            group.clear()
            group.update(held)
        raise


def each_once(group: dict[str, Any]) -> dict[str, Any]:
    """Remove repeated parameters from the group's list, with a warning. Returns the program's own
    dictionary, which torch also keeps: later changes of it take effect."""
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
            "a parameter is in a group more than once; torch would update it as often, and "
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
    """Return `one` entry of a list of tensors or groups; a generator in a group is replaced by a
    list."""
    inside = one["params"] if isinstance(one, dict) else [one]
    params = [inside] if isinstance(inside, torch.Tensor) else list(inside)
    if any(_kind(param) == "named" for param in params):
        raise RuntimeError(
            f"names of parameters need torch 2.6 or later, and this is {torch.__version__}; pass "
            "model.parameters()"
        )
    return {**one, "params": params} if isinstance(one, dict) else one
