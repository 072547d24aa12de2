# SPDX-License-Identifier: Apache-2.0
"""Checks the argument of load_state_dict. Errors name each number and tensor that cannot be
loaded."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._account import NUMBER, Account, account
from ._rules import CLASSES, FIXED, OWN_RULE, Rule, RuleOf, own_options
from ._shard import Groups, options_of
from ._state import MASTER, MOST_STEPS, Entries, Entry, needed
from ._wrappers import bare


def mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is {type(value).__name__}, not a dictionary")
    return value


def check_form(state_dict: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError if the dictionary does not have the form that state_dict() of
    an optimizer returns."""
    for name in ("state", "param_groups"):
        if name not in state_dict:
            raise ValueError(
                f"the state has no {name!r}; load the result of an optimizer's state_dict()"
            )
    mapping(state_dict["state"], "'state' of the state")
    groups = state_dict["param_groups"]
    if not isinstance(groups, (list, tuple)):
        raise TypeError(f"'param_groups' of the state is {type(groups).__name__}, not a list")
    for number, group in enumerate(groups):
        if "params" not in mapping(group, f"group {number} of the state"):
            raise ValueError(f"group {number} of the state has no 'params'")


def renumbered(state_dict: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the state by position in the groups, whatever the numbers of parameters in the groups
    of the file are. Raises ValueError for state that does not belong to any parameter, and
    TypeError for state that is not a dictionary."""
    called = [number for group in state_dict["param_groups"] for number in group["params"]]
    places = {number: place for place, number in enumerate(called)}
    state = state_dict["state"]
    strange = [number for number in state if number not in places]
    if strange:
        raise ValueError(f"there is state for parameter {strange[0]!r}, which is in no group")
    for number, entry in state.items():
        if entry is not None:
            mapping(entry, f"state of parameter {number}")
    return {places[number]: entry or {} for number, entry in state.items()}


def loaded_groups(
    own: Groups, saved: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the groups of an optimizer with the options of a file. Keys that are not options, such
    as the keys of schedulers, are kept. Raises ValueError if the groups differ, if names are in
    another order, if options are missing, or if options belong to another class."""
    if len(saved) != len(own):
        raise ValueError(f"the state has {len(saved)} parameter groups, this optimizer {len(own)}")
    for number, (mine, other) in enumerate(zip(own, saved)):
        if len(mine["params"]) != len(other["params"]):
            raise ValueError(
                f"group {number} has {len(other['params'])} parameters in the state, and "
                f"{len(mine['params'])} in this optimizer"
            )
    found = Account()
    found.others += [*_other_rules(own, saved), *_other_places(own, saved)]
    for number, (mine, other) in enumerate(zip(own, saved)):
        options = own_options(mine) or defaults
        known = {*options, *_all_options()}
        # Newer versions of torch have more flags. A flag that an older file lacks keeps its value.
        flags = {one for one, value in options.items() if value is None or isinstance(value, bool)}
        has, holds, may = (
            {f"group {number}.{name}": NUMBER for name in names}
            for names in (known & other.keys(), options, flags)
        )
        found.add(account(has, holds, may=may))
    _raise_for(found)
    return [{**mine, **copy.deepcopy(options_of(other))} for mine, other in zip(own, saved)]


def _other_rules(own: Groups, saved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the groups that follow different rules on both sides, or have another type of state.
    A group of another program has no such type."""
    return [
        f"group {number} has the {key} {other.get(key)!r}, not {mine.get(key)!r}"
        for number, (mine, other) in enumerate(zip(own, saved))
        for key in FIXED
        if mine.get(key) != other.get(key) and (key == OWN_RULE or key in other)
    ]


def _all_options() -> set[str]:
    """Return the options of all classes for which libzero has a rule."""
    return {name for one in CLASSES.values() for name in one([{"params": []}]).defaults}


def _other_places(own: Groups, saved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of parameters that both sides have, but at different positions."""
    mine, theirs = _places(own), _places(saved)
    return [
        f"{name!r} is parameter {place}, not {mine[name]}"
        for name, place in theirs.items()
        if mine.get(name, place) != place
    ]


def _places(groups: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    names = [
        name
        for group in groups
        for name in group.get("param_names") or [None] * len(group["params"])
    ]
    return {bare(name): place for place, name in enumerate(names) if name}


def _raise_for(found: Account) -> None:
    text = found.text()
    if text:
        raise ValueError(f"the state does not fit this optimizer: {text}")


def entries_of(
    rule_of: RuleOf, groups: Sequence[Mapping[str, Any]], state: Mapping[int, Mapping[str, Any]]
) -> Entries:
    """Check the "state" of a torch.optim file against `groups`, which have the options of the file,
    and return it. The caller's dictionary is not changed. Raises ValueError if state is missing,
    has another shape or does not belong to the rule, or if a step is not a count. Raises TypeError
    if a value is not a tensor."""
    rows = [(param, group, name) for group in groups for param, name in _named(group)]
    entries: Entries = {}
    account_of_all = Account()
    for number, given in state.items():
        param, group, name = rows[number]
        rule = rule_of(group)
        found = {slot: value for slot, value in (given or {}).items() if value is not None}
        if found:
            what = f"state of parameter {number}"
            entry = {slot: _value(rule, slot, value, what) for slot, value in found.items()}
            account_of_all.add(_account_of(rule, group, param, name or str(number), entry))
            entries[number] = {
                slot: value for slot, value in entry.items() if slot != "step" or rule.scalars
            }
    _raise_for(account_of_all)
    return entries


def check_like(
    state: Mapping[str, Mapping[str, Any]], made: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise ValueError if the state of a parameter lacks an entry that the optimizer class has
    `made` for it in a step, or has it in another shape. Additional state is allowed."""
    found = Account()
    for name, known in made.items():
        holds = {f"{name}.{key}": _kind(value) for key, value in known.items()}
        wanted = {key: kind for key, kind in holds.items() if kind is not None}
        given = {f"{name}.{key}": _kind(value) for key, value in state[name].items()}
        has = {key: kind for key, kind in given.items() if key in wanted and kind is not None}
        found.add(account(has, wanted))
    _raise_for(found)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape) or NUMBER
    if value is None or isinstance(value, (int, float)):
        return None if value is None else NUMBER
    return type(value).__name__


def _named(group: Mapping[str, Any]) -> list[tuple[torch.Tensor, str]]:
    names = group.get("param_names") or [""] * len(group["params"])
    return list(zip(group["params"], names))


def _account_of(
    rule: Rule, group: Mapping[str, Any], param: torch.Tensor, name: str, entry: Entry
) -> Account:
    shape = tuple(param.shape)
    numbers = {"step", "mu_product"}
    slots = [*rule.slots, *rule.optional, MASTER]
    holds: dict[str, Any] = {f"{name}.{slot}": shape for slot in slots}
    holds.update({f"{name}.{slot}": NUMBER for slot in ("step", *rule.scalars)})
    has = {
        f"{name}.{slot}": NUMBER if slot in numbers else tuple(value.shape)
        for slot, value in entry.items()
    }
    must = {f"{name}.{slot}" for slot in needed(rule, group)}
    return account(has, holds, may=holds.keys() - must)


def _value(rule: Rule, slot: str, value: Any, what: str) -> torch.Tensor:
    if slot in ("step", "mu_product"):
        return _number_of(value, slot, what)
    return _tensor_of(value, slot, what)


def _number_of(value: Any, name: str, what: str) -> torch.Tensor:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{what}: {name} is not a number") from None
    if name == "step" and not (number >= 0 and number.is_integer()):
        raise ValueError(f"{what}: step is {number}, which is not a number of steps")
    if name == "step" and int(value) > MOST_STEPS:
        raise ValueError(f"{what}: step is {int(value)}, and libzero counts to {MOST_STEPS}")
    return torch.tensor(number, dtype=torch.float64)


def _tensor_of(value: Any, name: str, what: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{what}: {name} is a {type(value).__name__}, not a tensor")
    kind = "complex" if value.is_complex() else str(value.layout).rpartition(".")[2]
    if value.is_meta or kind != "strided":
        raise TypeError(
            f"{what}: {name} is {'meta' if value.is_meta else kind}, not real and dense"
        )
    return value.detach()
