# SPDX-License-Identifier: Apache-2.0
"""Which of libzero's update rules a class of torch.optim is, and its options in their words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from .. import CustomOptimizer, Group, rules


# A class of torch.optim's kind, or functools.partial of one with options by name.
Chosen = Callable[..., torch.optim.Optimizer]


@dataclass(frozen=True)
class Rule:
    """An update rule in torch's words: its name, the options of torch that are several settings,
    and the numbers that torch's state has one of for each parameter. All other options are settings
    of the same name."""

    name: str
    several: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scalars: tuple[str, ...] = ("step",)
    custom: Optional[CustomOptimizer] = None

    @property
    def defaults(self) -> Mapping[str, float]:
        """Of its settings."""
        if self.custom is not None:
            return {"lr": 1e-3, "weight_decay": 0.0, **self.custom.settings}
        return rules()[self.name].settings

    @property
    def plain(self) -> list[str]:
        """Settings that are options of the same name."""
        taken = [name for names in self.several.values() for name in names]
        return [name for name in self.defaults if name not in taken]

    @property
    def optional(self) -> dict[str, str]:
        """Slots that are there with an option: which."""
        return {slot: option for slot, option in self._slots().items() if option is not None}

    @property
    def slots(self) -> list[str]:
        """Those that every parameter with state has."""
        return [slot for slot, option in self._slots().items() if option is None]

    def _slots(self) -> Mapping[str, Optional[str]]:
        if self.custom is not None:
            return dict.fromkeys(self.custom.slots)
        return rules()[self.name].slots


BETAS = {"betas": ("beta1", "beta2")}
ADAMW = Rule("adamw", BETAS)
# Exactly these classes: a subclass may have a step of its own.
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

# Slots that do not start with zeros: the option that they start with, in torch's words.
STARTS: Mapping[str, str] = {"sum": "initial_accumulator_value", "step_size": "lr"}


def class_of(
    given: Any, options: Mapping[str, Any]
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class and options that a program chose, also by functools.partial of a class. TypeError
    for anything else."""
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
    """The rule by which libzero updates parameters as `optimizer_class` would, all groups with
    their options; or None, and why only the class itself can."""
    found = _RULES.get(optimizer_class)
    if found is None:
        return None, f"{optimizer_class.__name__} is none of torch.optim's that libzero has"
    chosen = found
    for number, group in enumerate(groups):
        if group.get("differentiable"):
            return None, f"group {number} is differentiable"
        mine = found
        if found.name == "adam" and group.get("decoupled_weight_decay"):
            mine = ADAMW
        if number > 0 and mine is not chosen:
            return None, f"decoupled_weight_decay of group {number} is not that of group 0"
        chosen = mine
    for param in params:
        if param.is_complex():
            return None, "there are complex parameters"
    return chosen, ""


def takes_sparse(rule: Rule, group: Mapping[str, Any]) -> bool:
    """Whether torch's class takes sparse gradients with these options; its update is that of the
    dense gradient then. Adagrad's is not where 0 is divided by 0."""
    if group.get("weight_decay"):
        return False
    divides = group.get("eps") or group.get("initial_accumulator_value")
    return rule.name == "sgd" or (rule.name == "adagrad" and bool(divides))


def settings_of(rule: Rule, group: Mapping[str, Any]) -> dict[str, float]:
    """The settings of libzero that the options of `group` are. TypeError for what is no number."""
    settings = {name: _number(group[name], name) for name in rule.plain if name in group}
    for option, names in rule.several.items():
        settings.update(zip(names, (_number(value, option) for value in group[option])))
    return settings


def tell_changed(
    rule: Rule,
    registered: Sequence[Optional[Group]],
    told: Sequence[dict[str, float]],
    groups: Sequence[Mapping[str, Any]],
) -> None:
    """Tell libzero what the options of `groups` are by now, for example by a scheduler. `told` is what
    it knows. TypeError as settings_of, ArgumentError for what is out of range."""
    for group, known, options in zip(registered, told, groups):
        for name, value in settings_of(rule, options).items():
            if known[name] != value:
                if group is not None:
                    group[name] = value
                known[name] = value


def _number(value: Any, option: str) -> float:
    try:
        return float(value)  # a bool, or a tensor of one element, too
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{option} is {value!r}, which is no number") from None
