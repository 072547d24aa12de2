# SPDX-License-Identifier: Apache-2.0
"""Parameters as programs pass them to an optimizer."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import Any

import torch

Params = Iterable[Any]


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
