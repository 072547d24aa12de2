# SPDX-License-Identifier: Apache-2.0
"""Describes the update rules of libzero, and their options, with the names of torch.optim."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Union, cast

import torch

from .. import CustomOptimizer, Group, rules
from .._custom import defaults_of
from .._params import OPTIONS
from .._rule_info import rule_name
from .._values import unknown
from ..typing import RuleName

# A class like those in torch.optim, or a functools.partial of such a class with keyword arguments.
Chosen = Callable[..., torch.optim.Optimizer]
# A class from torch.optim or its name, the name of another rule from rules(), or a CustomOptimizer.
# Names may be in upper or lower case.
Named = Union[RuleName, type[torch.optim.Optimizer], CustomOptimizer]


@dataclass(frozen=True)
class Rule:
    """An update rule, described with torch's names. `several` contains the torch options that stand
    for several settings each. `scalars` names the numbers that torch's state has once per
    parameter. All other options are settings of the same name."""

    name: str
    several: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scalars: tuple[str, ...] = ("step",)
    custom: Optional[CustomOptimizer] = None

    @property
    def defaults(self) -> Mapping[str, float]:
        """Return the default values of the rule's settings."""
        return defaults_of(self.custom or self.name)

    @property
    def plain(self) -> list[str]:
        """Return the names of the settings that are torch options of the same name."""
        taken = [name for names in self.several.values() for name in names]
        return [name for name in self.defaults if name not in taken]

    @property
    def optional(self) -> dict[str, str]:
        """Return the slots that depend on an option, each with the name of that option."""
        return {slot: option for slot, option in self._slots().items() if option is not None}

    @property
    def slots(self) -> list[str]:
        """Return the slots that every parameter with state has."""
        return [slot for slot, option in self._slots().items() if option is None]

    def _slots(self) -> Mapping[str, Optional[str]]:
        if self.custom is not None:
            return dict.fromkeys(self.custom.slots)
        return rules()[self.name].slots


BETAS = {"betas": ("beta1", "beta2")}
ADAMW = Rule("adamw", BETAS)
# Only these exact classes are listed, because a subclass may define its own step.
_RULES: dict[type, Rule] = {
    torch.optim.AdamW: ADAMW,
    torch.optim.Adam: Rule("adam", BETAS),
    torch.optim.SGD: Rule("sgd", scalars=()),
    torch.optim.RMSprop: Rule("rmsprop"),
    torch.optim.Adagrad: Rule("adagrad"),
    torch.optim.Adadelta: Rule("adadelta"),
    torch.optim.Adamax: Rule("adamax", BETAS),
    torch.optim.NAdam: Rule("nadam", BETAS, ("step", "mu_product")),
    torch.optim.RAdam: Rule("radam", BETAS),
    torch.optim.Rprop: Rule(
        "rprop",
        {"etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_size_min", "step_size_max")},
    ),
}
CLASSES = {cls.__name__.lower(): cls for cls in _RULES}
# The key with the name of a group's own rule, for groups of Optimizer.
OWN_RULE = "rule"
# The key with the type of a group's state, which checkpoints also use.
STATE_DTYPE = "state_dtype"
# The keys of groups of Optimizer that cannot change.
FIXED = (OWN_RULE, STATE_DTYPE)

# Slots whose initial values are not zeros, each with the torch option that gives the initial value.
STARTS: Mapping[str, str] = {"sum": "initial_accumulator_value", "step_size": "lr"}


def class_of(
    given: Any, options: Mapping[str, Any]
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the class and the options that a program chose. The program passes a class or a
    functools.partial of a class; anything else raises TypeError."""
    merged = dict(options)
    if isinstance(given, functools.partial) and not given.args:
        given, merged = given.func, {**given.keywords, **merged}
    if not (isinstance(given, type) and issubclass(given, torch.optim.Optimizer)):
        raise TypeError(
            f"optimizer_class is {given!r}, not a torch.optim.Optimizer, nor functools.partial of one "
            "with options by name"
        )
    return given, merged


def rule_of(
    optimizer_class: type[torch.optim.Optimizer],
    groups: Iterable[Mapping[str, Any]],
    params: Iterable[torch.Tensor],
) -> tuple[Optional[Rule], str]:
    """Return the rule of libzero that makes the same updates as `optimizer_class`, for all groups
    with their options. If libzero has no such rule, return None and the reason."""
    found = _RULES.get(optimizer_class)
    if found is None:
        name = optimizer_class.__name__
        return None, f"{name} is not one of the torch.optim classes that libzero implements"
    chosen = found
    for number, group in enumerate(groups):
        if group.get("differentiable"):
            return None, f"group {number} is differentiable"
        mine = found
        if found.name == "adam" and group.get("decoupled_weight_decay"):
            mine = ADAMW
        if number > 0 and mine is not chosen:
            return None, f"decoupled_weight_decay of group {number} differs from group 0's"
        chosen = mine
    for param in params:
        if param.is_complex():
            return None, "there are complex parameters"
    return chosen, ""


# Returns the rule of a group.
RuleOf = Callable[[Mapping[str, Any]], Rule]


def takes_sparse(rule: Rule, group: Mapping[str, Any]) -> bool:
    """Return whether torch's class accepts sparse gradients with these options, and then makes the
    same update as for the dense gradient. The update of Adagrad differs if 0 is divided by 0."""
    if group.get("weight_decay"):
        return False
    divides = group.get("eps") or group.get("initial_accumulator_value")
    return rule.name == "sgd" or (rule.name == "adagrad" and bool(divides))


def settings_of(rule: Rule, group: Mapping[str, Any]) -> dict[str, float]:
    """Return libzero's settings for the options of `group`. Raises TypeError for a value that is
    not a number."""
    settings = {name: _number(group[name], name) for name in rule.plain if name in group}
    for option, names in rule.several.items():
        if len(group[option]) != len(names):
            raise TypeError(f"{option} has {len(group[option])} numbers, not {len(names)}")
        settings.update(zip(names, (_number(value, option) for value in group[option])))
    return settings


def tell_changed(
    rule_of_group: RuleOf,
    registered: Sequence[Optional[Group]],
    told: Sequence[dict[str, float]],
    groups: Sequence[Mapping[str, Any]],
) -> None:
    """Pass changed options in `groups` to libzero, for example after a scheduler step. `told`
    contains the settings that libzero has. Raises the errors of settings_of, and ArgumentError for
    a value out of range."""
    for group, known, options in zip(registered, told, groups):
        for name, value in settings_of(rule_of_group(options), options).items():
            if known[name] != value:
                if group is not None:
                    group[name] = value
                known[name] = value


def put_settings(rule: Rule, options: dict[str, Any], settings: Mapping[str, float]) -> None:
    """Copy all settings from libzero to the options of a group."""
    for name in rule.plain:
        if name in options:
            _assign(options, name, settings[name])
    for option, names in rule.several.items():
        options[option] = tuple(settings[name] for name in names)


def _assign(options: dict[str, Any], name: str, value: float) -> None:
    """Assign a value without changing the type of the option. A flag remains a flag, and a tensor
    remains a tensor."""
    current = options[name]
    if isinstance(current, torch.Tensor):
        current.fill_(value)
    elif isinstance(current, bool):
        options[name] = bool(value)
    elif float(current) != value:
        options[name] = value


def _number(value: Any, option: str) -> float:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)  # this also accepts a bool and a tensor with one element
    except OverflowError:
        raise TypeError(f"{option} is an integer beyond {sys.float_info.max}, the largest float64") from None
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{option} is {value!r}, which is not a number") from None


class Choice(NamedTuple):
    """The rule that a program chose. `rule` describes it with torch's names, `update` is the
    argument for libzero.Optimizer, and `template` is an optimizer without parameters that has every
    option."""

    rule: Rule
    update: Union[str, CustomOptimizer]
    template: torch.optim.Optimizer

    def rule_of(self, group: Mapping[str, Any]) -> Rule:
        """Return the rule of a group, which is its own if it names one."""
        name = group.get(OWN_RULE)
        return self.rule if name is None else choose_named(name).rule

    def check(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if the options of a group turn torch's class into another rule."""
        name = group.get(OWN_RULE)
        chosen = self if name is None else choose_named(name)
        if isinstance(chosen.template, RuleOptions):
            return
        found, reason = rule_of(type(chosen.template), [group], group["params"])
        if found is not chosen.rule:
            raise ValueError(
                f"a group cannot be updated by {chosen.rule.name}: "
                f"{reason or 'its decoupled_weight_decay differs'}"
            )


class RuleOptions(torch.optim.Optimizer):
    """The options of a rule for which torch has no class."""


def _own(name: str) -> tuple[Rule, dict[str, Any]]:
    """Return a rule for which torch has no class, and the options of the rule."""
    info = rules()[name]
    betas = [setting for setting in info.settings if re.fullmatch(r"beta\d", setting)]
    rule = Rule(name, {"betas": betas} if betas else {})
    options: dict[str, Any] = {option: info.settings[option] for option in rule.plain}
    options.update({option: bool(options[option]) for option in options if info.ranges[option] == "0 or 1"})
    if betas:
        options["betas"] = tuple(info.settings[setting] for setting in betas)
    return rule, options


def choose(optimizer: Named, settings: Mapping[str, Any]) -> Choice:
    """Return the rule that a program chose. Raises TypeError or ValueError for a class for which
    libzero has no rule, for options that the rule does not have, and for values that torch's class
    refuses."""
    if isinstance(optimizer, CustomOptimizer):
        rule = Rule("custom", custom=optimizer)
        return Choice(rule, optimizer, _options("this rule", rule.defaults, settings))
    if isinstance(optimizer, str):
        name = rule_name(optimizer)
        if name not in CLASSES:
            rule, defaults = _own(name)
            return Choice(rule, cast(RuleName, name), _options(name, defaults, settings))
        optimizer = CLASSES[name]
    try:
        chosen, options = class_of(optimizer, settings)
    except TypeError:
        raise TypeError(
            f"optimizer is {optimizer!r}, not a name, a class of torch.optim or a CustomOptimizer"
        ) from None
    template = chosen([{"params": []}], **options)
    found, reason = rule_of(chosen, template.param_groups, ())
    if found is None:
        raise ValueError(f"{reason}; ZeroRedundancyOptimizer shards optimizers of any class")
    return Choice(found, found.name, template)


@functools.lru_cache(maxsize=None)
def choose_named(name: str) -> Choice:
    """Return the choice of a rule by its name, with default options."""
    return choose(cast(RuleName, rule_name(name)), {})


def fixed_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a group that cannot change, or None for a missing key."""
    return {key: group.get(key) for key in FIXED}


def arguments_of(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return these keys as arguments of Optimizer.register."""
    given = {"optimizer": fixed.get(OWN_RULE), "state_dtype": fixed.get(STATE_DTYPE)}
    return {name: value for name, value in given.items() if value is not None}


def with_own_options(group: Any) -> Any:
    """Return a group that names its own rule with the default options of that rule. Raises
    ValueError for an unknown name."""
    if not isinstance(group, dict) or group.get(OWN_RULE) is None:
        return group
    return {**own_options(group), **group, OWN_RULE: choose_named(group[OWN_RULE]).rule.name}


def drop_other_options(
    group: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Remove the options that torch has added to a group which names its own rule, because they
    belong to the rule of the optimizer."""
    own = own_options(group)
    for name in defaults:
        if own and name not in own and name not in given:
            group.pop(name, None)


def own_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default options of the rule that a group names. Returns {} for other groups."""
    name = group.get(OWN_RULE)
    return {} if name is None else {**choose_named(name).template.defaults}


def _options(
    what: str, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> torch.optim.Optimizer:
    for name in settings:
        if name not in defaults:
            raise TypeError(unknown(name, f"{what}: option", defaults, OPTIONS))
    return RuleOptions([{"params": []}], {**defaults, **settings})
