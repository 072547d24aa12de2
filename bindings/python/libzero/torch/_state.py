# SPDX-License-Identifier: Apache-2.0
"""Converts optimizer state between libzero and the dictionaries of torch.optim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import torch

from ._core import Core
from ._rules import STARTS, Rule, RuleOf
from ._shard import Groups, options_of
from ._tensors import Bound

MASTER = "master"
MOST_STEPS = 2**53  # libzero's limit, which is also the limit of exact integers in float64
_EXACT_IN_FLOAT32 = 2**24
# The state of one parameter: its tensors by torch's names, and its numbers as zero-dimensional
# tensors.
Entry = dict[str, torch.Tensor]
# The entries by the number of the parameter over all groups. Parameters without state are omitted.
Entries = dict[int, Entry]


def gather(
    core: Core, rule_of: RuleOf, groups: Sequence[Mapping[str, Any]], to: Optional[int]
) -> Entries:
    """Return the whole state on rank `to`, or on all ranks if `to` is None. All other ranks return
    {}. Tensors have the shapes of their parameters, and are on the CPU. They are float64 for
    float64 parameters, and float32 for all others. One tensor is sent at a time. Collective."""
    entries: Entries = {}
    here = to is None or to == core.comm.rank
    group_of = [group for group in groups for _ in group["params"]]
    for number, bound in enumerate(core.bound):
        entry: Entry = {}
        for name in core.optimizer.state_names(number):
            array = core.optimizer.state_gather(number, name, to)
            if array is not None:
                entry[name] = bound.out_of_order(torch.from_numpy(array))
        if here:
            _complete(core, rule_of, group_of[number], number, entry, bound.shape)
        if entry:
            entries[number] = entry
    return entries


def owned(core: Core, rule_of: RuleOf, group: Mapping[str, Any], number: int) -> Entry:
    """Return the state of the part of a parameter that this rank owns. Tensors have the shape of
    the parameter if this rank owns all of it. Otherwise they have one dimension, with elements in
    memory order. Local."""
    bound = core.bound[number]
    ranges = [part for part in core.optimizer.owned_ranges() if part.param == number]
    count = sum(part.count for part in ranges)
    whole = count == bound.param.numel()
    entry: Entry = {}
    for name in core.optimizer.state_names(number):
        parts = [
            torch.from_numpy(core.optimizer.state_get(number, name, part.first, part.count))
            for part in ranges
        ]
        values = torch.cat(parts)
        entry[name] = bound.out_of_order(values.view(bound.view().shape)) if whole else values
    _complete(core, rule_of, group, number, entry, bound.shape if whole else (count,))
    return entry


def initial(core: Core, rule_of: RuleOf, groups: Sequence[Mapping[str, Any]]) -> Entries:
    """Return the whole state before the first step. Local."""
    entries: Entries = {}
    group_of = [group for group in groups for _ in group["params"]]
    for number, bound in enumerate(core.bound):
        rule = rule_of(group_of[number])
        if _starts_with_state(rule, bound):
            entries[number] = _initial(rule, group_of[number], bound, bound.shape)
    return entries


def expected(
    core: Core,
    rule_of: RuleOf,
    groups: Sequence[Mapping[str, Any]],
    only: Optional[torch.Tensor] = None,
) -> Entries:
    """Return the state that trained parameters will have after their first step, with its initial
    values. If `only` is given, return the state of this parameter alone. A program reads a loaded
    state into the result. Local."""
    entries: Entries = {}
    group_of = [group for group in groups for _ in group["params"]]
    for number, bound in enumerate(core.bound):
        chosen = only is None or bound.param is only
        if not (chosen and bound.trainable and bound.param.requires_grad):
            continue
        group = group_of[number]
        entry = _initial(rule_of(group), group, bound, bound.shape, stepped=True)
        if MASTER in core.optimizer.state_names(number):
            entry[MASTER] = bound.param.detach().to("cpu", torch.float32, copy=True)
        # The loaded value is copied into this tensor, and may be a count that float32 cannot
        # represent.
        entries[number] = {
            name: value.double() if name == "step" else value for name, value in entry.items()
        }
    return entries


def _starts_with_state(rule: Rule, bound: Bound) -> bool:
    """Return whether torch's class, like Adagrad, creates state before the first step."""
    return rule.name == "adagrad" and bound.trainable


def _complete(
    core: Core,
    rule_of: RuleOf,
    group: Mapping[str, Any],
    number: int,
    entry: Entry,
    shape: Sequence[int],
) -> None:
    """Add the entries of torch's state that the tensors of libzero do not contain. The entry "step"
    comes first."""
    rule = rule_of(group)
    if not entry.keys() - {MASTER}:
        # torch's classes do not create state in an entry that already has a master weight.
        if entry or _starts_with_state(rule, core.bound[number]):
            entry.update(_initial(rule, group, core.bound[number], shape))
    else:
        for name in rule.scalars:
            entry[name] = scalar_of(core.optimizer.state_get_scalar(number, name), name)
    if "step" in entry:
        rest = {name: entry.pop(name) for name in list(entry) if name != "step"}
        entry.update(rest)


def needed(rule: Rule, group: Mapping[str, Any], *, stepped: bool = False) -> list[str]:
    """Return the entries that the state of every parameter has. Among torch's classes, only SGD
    works without its slot, which its first step creates."""
    optional = {} if rule.name == "sgd" and not stepped else rule.optional
    chosen = [name for name, option in optional.items() if group.get(option)]
    return [*rule.scalars, *rule.slots, *chosen]


def _initial(
    rule: Rule,
    group: Mapping[str, Any],
    bound: Bound,
    shape: Sequence[int],
    *,
    stepped: bool = False,
) -> Entry:
    """Return the state of a parameter that has never been updated, as the class creates it in the
    first step. If `stepped` is set, include the entries that exist after that step."""
    dtype = torch.float64 if bound.dtype == torch.float64 else torch.float32
    entry: Entry = {}
    for name in needed(rule, group, stepped=stepped):
        if name in rule.scalars:
            entry[name] = scalar_of(1.0 if name == "mu_product" else 0.0, name)
        else:
            start = float(group[STARTS[name]]) if name in STARTS else 0.0
            entry[name] = torch.full(tuple(shape), start, dtype=dtype)
    return entry


def scalar_of(value: float, name: str) -> torch.Tensor:
    # A count is float32 as in torch, unless float32 would round it. NAdam's product keeps all
    # digits, because the next step multiplies it.
    short = name == "step" and value <= _EXACT_IN_FLOAT32
    return torch.tensor(value, dtype=torch.float32 if short else torch.float64)


def put(
    core: Core, rule_of: RuleOf, groups: Groups, entries: Entries, *, keep_values: bool = False
) -> None:
    """Put this state, which is the same on every rank, into a sealed core without state. Local. The
    next collective call detects differences between ranks. With `keep_values`, parameters keep
    their values. Otherwise libzero also writes master weights to the owned elements of
    parameters."""
    group_of = [group for group in groups for _ in group["params"]]
    for number, entry in entries.items():
        bound = core.bound[number]
        scalars = rule_of(group_of[number]).scalars
        dtype = torch.float64 if bound.dtype == torch.float64 else torch.float32
        values = bound.in_order(bound.param.data)
        held = values.clone() if keep_values and MASTER in entry else None
        for name, value in entry.items():
            if name in scalars:
                core.optimizer.state_set_scalar(number, name, float(value))
            elif name != MASTER or MASTER in core.optimizer.state_names(number):
                ordered = bound.in_order(value.to("cpu", dtype)).contiguous()
                core.optimizer.state_set(number, name, ordered.numpy())
        if held is not None:
            values.copy_(held)


class Owned:
    """The param_groups and state of the elements that this rank owns. They are copies, made on
    request, and only for reading. To make changes, use the param_groups and load_state_dict() of
    the sharded optimizer."""

    def __init__(self, core: Core, rule_of: RuleOf, groups: Groups) -> None:
        self._groups = groups
        self.state = OwnedState(core, rule_of, groups)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups, with their current options and the parameters of which this rank owns
        elements."""
        mine = set(self.state)
        return [
            {**options_of(group), "params": [param for param in group["params"] if param in mine]}
            for group in self._groups
        ]

    def __repr__(self) -> str:
        return f"<this rank's state of {len(self.state)} parameters>"


class OwnedState(Mapping[torch.Tensor, dict[str, torch.Tensor]]):
    """The state of each parameter of which this rank owns elements, with torch's names. The state
    is {} before the parameter's first step, and for parameters that other ranks own. A tensor has
    the shape of the parameter if this rank owns all of it. Otherwise, the tensor has one dimension,
    with the elements of the owned part in memory order."""

    def __init__(self, core: Core, rule_of: RuleOf, groups: Groups) -> None:
        self._core = core
        self._rule_of = rule_of
        self._group_of: Sequence[Mapping[str, Any]] = [
            group for group in groups for _ in group["params"]
        ]
        self._numbers = {one.param: number for number, one in enumerate(core.bound)}
        self._owned = core.owned() if core.bound else []

    def __getitem__(self, param: torch.Tensor) -> dict[str, torch.Tensor]:
        number = self._numbers[param]
        if number not in self._owned:
            return {}
        return owned(self._core, self._rule_of, self._group_of[number], number)

    def __contains__(self, param: object) -> bool:
        return self._numbers.get(param) in self._owned  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self._core.bound[number].param for number in self._owned)

    def __len__(self) -> int:
        return len(self._owned)


def follow_masters(core: Core, share_dtype: str) -> None:
    """Take over values that a program has written into parameters as their master weights. An
    element counts as written if it is neither the master weight nor the rounded master weight. This
    allows a program to load a model and its optimizer in either order. Collective. If a parameter
    cannot represent a master weight, all ranks raise ValueError before anything has changed."""
    masters: dict[int, torch.Tensor] = {}
    count = len(core.bound)
    written, large = False, count
    for number in core.owned():
        bound = core.bound[number]
        if MASTER in core.optimizer.state_names(number):
            held = bound.view().to("cpu")
            master = torch.from_numpy(core.optimizer.state_get(number, MASTER)).view(held.shape)
            dtype = shown_dtype(bound, share_dtype)
            taken = masters[number] = master_of(held, master, dtype)
            written = written or not torch.equal(taken, master)
            if bool((taken.to(dtype).isinf() & taken.isfinite()).any()):
                large = min(large, number)
    # One exchange reports the first parameter that is too large, or else whether any value was
    # written.
    found = count + 1 - large if large < count else int(written) - 1
    told = int(core.comm.all_reduce(found, "max"))
    if told > 0:
        raise ValueError(
            f"parameter {core.bound[count + 1 - told].name} has values that {share_dtype} has not: "
            "create the optimizer without broadcast_fp16"
        )
    if told < 0:
        return
    for number in range(count):
        if MASTER in core.optimizer.state_names(number):
            mine = masters.get(number)
            core.optimizer.state_set(number, MASTER, None if mine is None else mine.numpy())
    core.optimizer.share_params(keep_masters=True, stream=core.stream)
    core.wrote(number for number, one in enumerate(core.bound) if one.trainable)


def master_of(held: torch.Tensor, master: torch.Tensor, shown: torch.dtype) -> torch.Tensor:
    """Return the master weights for the values that a parameter holds. An element of `master` is
    kept if the parameter holds its value, or its value rounded to the dtype `shown`."""
    other = (master.to(shown) != held) & (master != held)
    return torch.where(other, held.to(master.dtype), master)


def shown_dtype(bound: Bound, share_dtype: Optional[str]) -> torch.dtype:
    """Return the dtype to which the master weights of a parameter are rounded."""
    if bound.dtype != torch.float32 or share_dtype is None:
        return bound.dtype
    shared: torch.dtype = getattr(torch, share_dtype)
    return shared
