# SPDX-License-Identifier: Apache-2.0
"""Imports checkpoints of other programs. Each of their tensors and numbers is either imported or
named in an error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch

from .. import rules
from ._account import NUMBER, Account, Patterns, account, listed, matches, repeated
from ._documents import CUSTOM, GROUP_RULE, Found, choice_of
from ._layouts import IGNORE, Source, check_dictionary, source_of
from ._numbers import bytes_of, check_finite, exact_step, kind_of, number_of, plain, start_of, step_of
from ._orders import Group, Model, order_names
from ._rules import CLASSES, FIXED, OWN_RULE, STATE_DTYPE, rule_of, settings_of
from ._state import MASTER, needed
from ._streams import CODES, Description, Entry, RefusedError
from ._ties import second_names

# Options of torch's classes that select an implementation and do not change results.
_MANNERS = {"foreach", "capturable", "fused"}
# Keys that schedulers of torch.optim add to groups, and names that programs give to groups.
_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr", "name", "group_name"}
_NAMES = {"params", "param_names", *FIXED}
_FILL = "--fill starts it as the rule does"


class Wanted(NamedTuple):
    """The command-line options that supply information that is missing from a file."""

    rule: Optional[str]
    buffers: Patterns
    order: Optional[str]
    ignore: Patterns
    fill: bool = False


Tensors = list[tuple[Entry, Iterable[Any]]]


class Imported(NamedTuple):
    """The description of a checkpoint, its tensors, and the names of those parts of the file that
    it omits."""

    description: Description
    tensors: Tensors
    left: list[str]


def checkpoint_of(document: Any, wanted: Wanted) -> Imported:
    """Return the checkpoint that the dictionaries describe. Raises RefusedError if the dictionaries
    lack a part of the checkpoint, or have a part that a checkpoint cannot hold."""
    source = source_of(document, wanted.ignore)
    return _Import(source, wanted).all()


class _Import:
    def __init__(self, source: Source, wanted: Wanted) -> None:
        self._model, self._rest, self._wanted = source.model, source.rest, wanted
        self._source = source
        optimizer = source.optimizer or {"state": {}, "param_groups": []}
        try:
            self._state: Mapping[Any, Mapping[str, Any]] = optimizer["state"]
            self._groups = [
                {name: plain(value) for name, value in group.items()}
                for group in optimizer["param_groups"]
            ]
            self._keys = [list(group["params"]) for group in optimizer["param_groups"]]
            for key, state in self._state.items():
                check_dictionary(state, f"the state of its parameter {key!r}")
        except (AttributeError, KeyError, TypeError):
            raise RefusedError(
                f"its {source.prefix!r} is not a state_dict of torch.optim"
            ) from None
        for number, group in enumerate(self._groups):
            unnamed = [option for option in group if not isinstance(option, str)]
            if unnamed:
                raise RefusedError(f"its {source.prefix}.param_groups.{number} has the key {unnamed[0]!r}, not a name")
            for option, names, kinds in (
                ("params", self._keys[number], (int, str)),
                ("param_names", group.get("param_names") or [], str),
            ):
                if not isinstance(names, list) or not all(isinstance(one, kinds) for one in names):
                    key = f"{source.prefix}.param_groups.{number}.{option}"
                    raise RefusedError(f"its {key} is {names!r}, not a list of names or numbers")
        self._tensors: Tensors = []
        self._account = Account()

    def all(self) -> Imported:
        rule = self._rule()
        names = self._names()
        masters = self._masters(names)
        groups: list[Mapping[str, Any]] = [*self._groups] or [{}]
        followed = [self._rule_of_group(rule, group) for group in groups]
        settings = [
            self._settings(one, number, group)
            for number, (one, group) in enumerate(zip(followed, groups))
        ]
        for numbers, one, group in zip(settings, followed, groups):
            if one != rule:
                numbers[GROUP_RULE] = one
            if _has_half_state(group):
                numbers[STATE_DTYPE] = group[STATE_DTYPE]
        parameters = []
        for index, keys in enumerate(self._keys or [names[0]]):
            for key, name in zip(keys, names[index]):
                state = dict(self._state.get(key, {}), **masters.get(name, {}))
                half = _has_half_state(groups[index])
                parameters.append(self._parameter(followed[index], name, index, state, half))
        self._check_left_over(parameters)
        if self._groups:
            self._account.others += second_names(self._model, names, self._wanted.buffers)
        why = self._account.text(ignore=IGNORE, fill=_FILL)
        why = why or self._wanted.ignore.text() or self._wanted.buffers.text()
        if why:
            raise RefusedError(why)
        taken = {param["name"] for param in parameters}
        buffers = [self._tensor(name) for name in self._model if name not in taken]
        step = max((param["step"] for param in parameters), default=0)
        description = {
            "step": step,
            "skipped": 0,
            "options": {},
            **{key: value for key, value in self._rest.items() if key != "steps"},
            "optimizer": rule,
            "groups": settings,
            "parameters": parameters,
            "buffers": buffers,
        }
        return Imported(description, self._tensors, self._told())

    def _told(self) -> list[str]:
        left = [*self._source.left, *self._account.ignored]
        told = [f"not taken: {listed(map(repr, left))}"] if left else []
        if self._account.filled:
            told.append(f"started anew: {listed(map(repr, self._account.filled))}")
        return told

    def _rule(self) -> str:
        written = self._rest.get("optimizer")
        chosen = self._wanted.rule or written
        if chosen is None and not self._groups:
            raise RefusedError(
                "it has no optimizer (or one under an unknown key): --rule adamw begins with "
                "one at step 0"
            )
        if self._rest and not self._groups:
            raise RefusedError("it lacks the optimizer that its 'zero' describes")
        if chosen is None:
            chosen = guess(self._groups)
        if chosen is None:
            raise RefusedError(
                "it does not say which class of torch.optim its optimizer is: give --rule, for example --rule adamw"
            )
        if written not in (None, chosen):
            raise RefusedError(f"its optimizer is {written!r}, not {chosen!r} as --rule says")
        if not str(chosen).startswith(CUSTOM) and chosen not in rules():
            raise RefusedError(f"there is no rule {chosen!r}, but {', '.join(rules())}")
        self._check_classes(chosen)
        return str(chosen)

    def _rule_of_group(self, rule: str, group: Mapping[str, Any]) -> str:
        own = group.get(OWN_RULE)
        if own is not None and own not in rules():
            raise RefusedError(f"there is no rule {own!r}, but {', '.join(rules())}")
        return rule if own is None else str(own)

    def _check_classes(self, chosen: str) -> None:
        """Check that the options of each group select the rule that it follows."""
        decoupled = "decoupled_weight_decay"
        for number, group in enumerate(self._groups):
            rule = self._rule_of_group(chosen, group)
            if rule in ("adam", "adamw") and decoupled in group:
                name = f"{self._source.prefix}.param_groups.{number}.{decoupled}"
                self._account.add(account({name: group[decoupled]}, {name: rule == "adamw"}))
        if chosen not in CLASSES:
            return
        found, why = rule_of(CLASSES[chosen], [{"differentiable": one.get("differentiable")} for one in self._groups], ())
        if found is None:
            raise RefusedError(f"its optimizer: {why}")

    def _names(self) -> list[list[str]]:
        """Return the names of the parameters of each group, in their order."""
        twice = repeated(key for keys in self._keys for key in keys)
        if twice:
            raise RefusedError(f"its optimizer has parameters twice: {listed(map(repr, twice))}")
        groups = [
            Group(keys, group.get("param_names")) for keys, group in zip(self._keys, self._groups)
        ]
        floating = {
            name: found.shape
            for name, found in self._model.items()
            if not matches(name, self._wanted.buffers) and found.dtype.is_floating_point
        }
        source = self._source
        model = Model(self._model, floating, source.ties, source.modules)
        names = order_names(groups, model, self._wanted.order)
        buffers = [one for mine in names for one in mine if matches(one, self._wanted.buffers)]
        if buffers:
            raise RefusedError(
                f"its optimizer has the parameters {listed(map(repr, buffers))} by name, so --buffers cannot make them "
                "buffers"
            )
        return names

    def _masters(self, names: Sequence[Sequence[str]]) -> dict[str, dict[str, Found]]:
        """Return, for each parameter, the tensors that Megatron keeps in addition to the state."""
        masters: dict[str, dict[str, Found]] = {}
        given = self._source.masters
        if not given:
            return masters
        half = [[name for name in mine if self._model[name].dtype.itemsize == 2] for mine in names]
        if [len(mine) for mine in given] != [len(mine) for mine in half]:
            raise RefusedError(
                f"its fp32_from_fp16_params have {[len(mine) for mine in given]} tensors per group, its groups "
                f"{[len(mine) for mine in half]} 16-bit parameters"
            )
        for mine, found in zip(half, given):
            masters.update((name, {MASTER: one}) for name, one in zip(mine, found))
        return masters

    def _settings(self, rule: str, number: int, group: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in group.items() if name not in _NAMES}
        prefix = f"{self._source.prefix}.param_groups.{number}."
        if rule.startswith(CUSTOM):
            numbers = {name: value for name, value in options.items() if isinstance(value, float)}
            check_finite(numbers, number)
            self._count(prefix, options, numbers)
            return numbers
        choice = choice_of(rule)
        template = choice.template.param_groups[0]
        known = {name: value for name, value in template.items() if name != "params"}
        if group:
            has = {name: value for name, value in options.items() if name not in _MANNERS}
            self._count(prefix, has, known, [*_MANNERS, *set_by_torch(choice.template)])
        for option, several in choice.rule.several.items():
            value = options.get(option, known[option])
            if not isinstance(value, (list, tuple)) or len(value) != len(several):
                raise RefusedError(
                    f"its optimizer: {option} of group {number} is {value!r}, not {len(several)} numbers"
                )
        try:
            settings = settings_of(choice.rule, {**template, **group})
        except TypeError as error:
            raise RefusedError(f"its optimizer: group {number}: {error}") from None
        check_finite(settings, number)
        return dict(settings)

    def _count(
        self, prefix: str, has: Mapping[str, Any], holds: Mapping[str, Any], may: Sequence[str] = ()
    ) -> None:
        """Account for the names of options."""
        self._account.add(
            account(
                {prefix + name: NUMBER for name in has if name not in _SCHEDULES or name in holds},
                {prefix + name: NUMBER for name in holds},
                may=[prefix + name for name in may],
                ignore=self._wanted.ignore,
                fill=self._wanted.fill,
            )
        )

    def _tensor(self, name: str) -> dict[str, Any]:
        found = self._model[name]
        if found.dtype not in CODES:
            raise RefusedError(
                f"tensor {name!r} has dtype {found.dtype}, which a checkpoint cannot hold (--ignore {name} drops it)"
            )
        self._tensors.append((Entry(name, found.dtype, found.shape), bytes_of(found, found.dtype)))
        return {"name": name, "dtype": CODES[found.dtype], "shape": found.shape}

    def _parameter(
        self, rule: str, name: str, group: int, state: Mapping[str, Any], half: bool
    ) -> dict[str, Any]:
        param = {**self._tensor(name), "group": group}
        dtype = torch.float64 if param["dtype"] == "F64" else torch.float32
        shape = tuple(param["shape"])
        present = {slot: value for slot, value in state.items() if value is not None}
        if present and not self._model[name].dtype.is_floating_point:
            raise RefusedError(f"its optimizer has state of {name!r}, which is {self._model[name].dtype}")
        steps = self._rest.get("steps", {})
        kept = self._account_state(rule, name, group, present, shape)
        param["step"] = exact_step(steps.get(name, 0), None, name)
        param["state"] = []
        for slot, value in kept.items():
            if slot == "step":
                param[slot] = exact_step(steps.get(name), step_of(value, name), name, value)
            elif slot == "mu_product":
                param[slot] = number_of(value, slot, name)
            else:
                param["state"].append(slot)
                stored = torch.bfloat16 if half and slot != MASTER else dtype
                self._tensors.append(
                    (Entry(f"{name}.{slot}", stored, shape), bytes_of(value, stored))
                )
        return param

    def _account_state(
        self, rule: str, name: str, group: int, present: Mapping[str, Any], shape: tuple[int, ...]
    ) -> dict[str, Any]:
        """Return the state of one parameter for the checkpoint. The state is either complete or
        empty."""
        needed, others, scalars = self._parts(rule, group)
        steps = self._rest.get("steps", {}).get(name)
        started = bool(set(present) - {MASTER}) or bool(steps)
        # torch's Adagrad has state before the first step.
        started = started or (rule == "adagrad" and steps is None and bool(self._groups))
        kinds = {slot: NUMBER if slot in scalars else shape for slot in (*needed, *others)}
        wanted = kinds if started else {MASTER: shape}
        found = account(
            {f"{name}.{slot}": kind_of(value, slot in scalars) for slot, value in present.items()},
            {f"{name}.{slot}": kind for slot, kind in wanted.items()},
            may=[f"{name}.{slot}" for slot in others],
            ignore=self._wanted.ignore,
            fill=self._wanted.fill,
        )
        anew = bool(found.filled)  # with only some of its state, a step could be huge
        if anew:
            found.filled = [f"{name}.{slot}" for slot in needed]
        self._account.add(found)
        kept = {
            slot: value
            for slot, value in present.items()
            if slot in wanted and kind_of(value, slot in scalars) == wanted[slot]
        }
        if anew:
            kept = {slot: value for slot, value in kept.items() if slot == MASTER}
            kept |= {slot: start_of(slot, scalars, self._groups[group], shape) for slot in needed}
        return kept

    def _parts(self, rule: str, group: int) -> tuple[list[str], list[str], tuple[str, ...]]:
        """Return the required parts of a parameter's state, the optional parts, and the parts that
        are numbers."""
        if rule.startswith(CUSTOM):
            return ["step", *self._rest.get("slots", ())], [MASTER], ("step",)
        known = choice_of(rule).rule
        options = {**choice_of(rule).template.param_groups[0], **(self._groups or [{}])[group]}
        slots = needed(known, options)
        optional = [slot for slot in known.optional if slot not in slots]
        return slots, [*optional, MASTER], known.scalars

    def _check_left_over(self, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Account for state and steps that do not belong to any parameter."""
        held = {str(param["name"]): None for param in parameters}
        keys = {key for keys in self._keys for key in keys}
        prefix = self._source.prefix
        state = {f"{prefix}.state.{key}": None for key in self._state if key not in keys}
        steps = {f"zero.steps.{name}": None for name in self._rest.get("steps", {})}
        known = {f"zero.steps.{name}": None for name in held} if steps else {}
        for has, holds in ((state, {}), (steps, known)):
            self._account.add(account(has, holds, ignore=self._wanted.ignore))


def guess(groups: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """Return the rule of torch.optim that has such options, if there is exactly one."""
    manners = {*_MANNERS, *_SCHEDULES, *_NAMES, "maximize", "differentiable"}

    def telling(options: Iterable[str]) -> set[str]:
        return set(options) - manners

    alike = [
        name
        for name in CLASSES
        if telling(choice_of(name).template.param_groups[0]) == telling(groups[0])
    ]
    if sorted(alike) == ["adam", "adamw"]:
        return "adamw" if groups[0]["decoupled_weight_decay"] else "adam"
    return alike[0] if len(alike) == 1 else None


def set_by_torch(template: torch.optim.Optimizer) -> set[str]:
    """Return the options that torch's class adds to a file that lacks them."""
    filled = copy.copy(template)
    filled.__setstate__({"state": {}, "param_groups": [{"params": []}]})
    return set(filled.param_groups[0])


def _has_half_state(group: Mapping[str, Any]) -> bool:
    """Return whether libzero stores the state of a group in bfloat16."""
    return bool(group.get(STATE_DTYPE) == "bfloat16")
