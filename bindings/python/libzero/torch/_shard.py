# SPDX-License-Identifier: Apache-2.0
"""Handles the parameters and groups that programs pass, and defines the operations that every kind
of shard has."""

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
    """Return the names that the parameters of a group have in libzero. If a parameter has a name,
    this is its name in libzero. If another group has already `taken` that name, the number of the
    parameter is appended. Parameters without names are called by their numbers, which begin with
    `first`."""
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
    """Return the result of `closure`, which is the loss of this rank, or None without a closure. If
    the closure raises an exception on one rank, all ranks raise an exception, so that no rank waits
    in the next call. With a closure, this is collective, and all ranks must pass a closure."""
    if closure is None:
        return None
    told = "the closure of rank {rank} raised (see its error); no step was made"
    with agreed(comm, "", told), torch.enable_grad():
        return closure()


class Shard(ABC):
    """Groups of parameters, like the groups of torch.optim. Their state is sharded over `comm`.

    `optim` is a torch optimizer of the class that the program chose. It checks options and has
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
        """Raise an exception on all ranks if any rank cannot add `group`. Otherwise fill in the
        default options. No parameters are added. Collective."""

    @abstractmethod
    def add_group(self, group: dict[str, Any]) -> None:
        """Add parameters that compare_group accepted. Collective."""

    @abstractmethod
    def step(
        self, groups: Groups, closure: Closure, arguments: Mapping[str, Any], hand: Optional[Hand]
    ) -> Any:
        """Update parameters with the current options of `groups`, and return the result of the
        closure. `hand` is for uneven inputs. Collective."""

    @abstractmethod
    def owned(self, groups: Groups) -> Any:
        """Return `param_groups` and `state` of the elements that this rank owns. Local."""

    @abstractmethod
    def initial_state(self, groups: Groups) -> Optional[dict[int, dict[str, Any]]]:
        """Return the result that gather_state has before the first step, or None if this rank
        cannot compute it alone. Local."""

    @abstractmethod
    def expected_state(
        self, groups: Groups, only: Optional[torch.Tensor] = None
    ) -> dict[int, dict[str, Any]]:
        """Return the result that gather_state would have after a step with zero gradients that
        changed no values. It covers all parameters, or one if `only` is given. A program reads a
        loaded state into the result. Local."""

    @abstractmethod
    def gather_state(self, groups: Groups, to: Optional[int]) -> dict[int, dict[str, Any]]:
        """Return the whole state, keyed by the numbers of parameters, on rank `to`, or on all ranks
        if `to` is None. All other ranks return {}. Collective."""

    @abstractmethod
    def prepare_load(
        self, groups: Groups, state: Mapping[int, Mapping[str, Any]]
    ) -> Callable[[], None]:
        """Check a new state, and return a function that replaces all state with it. `groups` have
        the options with which training will continue. The returned function is collective. If this
        call or the function raises an exception, nothing has changed."""

    def close(self) -> None:
        self.core.close()


class Hand:
    """This rank's part in a step in which some ranks have run out of inputs. `contributes` is set
    on only one rank. That rank provides the averaged gradients, and chooses the parameters to
    train."""

    def __init__(self, contributes: bool, trained: Sequence[bool]) -> None:
        self.contributes = contributes
        self.trained = trained


def listed_params(params: Params, what: str) -> list[Any]:
    """Return the parameters for the optimizer `what` as a list of tensors, of (name, tensor), or of
    groups. Raises TypeError or ValueError for anything else, and RuntimeError if this version of
    torch does not support names."""
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
            f"params contains a {type(odd).__name__}; {what} takes tensors, or groups, not both"
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
    """Restore groups if the block raises an exception, because torch writes defaults into the
    dictionaries of the program."""
    before = [(group, dict(group)) for group in groups if isinstance(group, dict)]
    try:
        yield
    except BaseException:
        for group, held in before:
            group.clear()
            group.update(held)
        raise


def each_once(group: dict[str, Any]) -> dict[str, Any]:
    """Remove repeated parameters from the list in the group, with a warning. Returns the dictionary
    of the program itself. Because torch also keeps that dictionary, later changes to it take
    effect."""
    inside = group["params"] if isinstance(group, dict) and "params" in group else set()
    if isinstance(inside, (torch.Tensor, set)) or not isinstance(inside, Iterable):
        return group  # torch accepts or rejects it
    group["params"] = _each_once(list(inside))
    return group


def _each_once(params: list[Any]) -> list[Any]:
    tensors = [one[1] if _kind(one) == "named" else one for one in params]
    kept = list({id(tensor): one for tensor, one in reversed(list(zip(tensors, params)))}.values())
    if len(kept) < len(params):
        warnings.warn(
            "a parameter is in a group more than once; torch would update it that many times, but "
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
    """Check that an entry of a list of tensors or groups has no names, and return it. A generator
    in a group is replaced with a list."""
    inside = one["params"] if isinstance(one, dict) else [one]
    params = [inside] if isinstance(inside, torch.Tensor) else list(inside)
    if any(_kind(param) == "named" for param in params):
        raise RuntimeError(
            f"parameter names need torch 2.6 or later, but this is {torch.__version__}; pass "
            "model.parameters()"
        )
    return {**one, "params": params} if isinstance(one, dict) else one
