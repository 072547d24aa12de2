# SPDX-License-Identifier: Apache-2.0
"""Which of libzero's update rules a class of torch.optim is, and its options in their words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch

from .. import Group


# A class of torch.optim's kind, or functools.partial of one with options by name.
Chosen = Callable[..., torch.optim.Optimizer]


class Rule(NamedTuple):
    """An update rule: its name, the options of torch that are settings of the same name, pairs
    that are two settings, and the numbers that torch's state has one of for each parameter."""

    name: str
    plain: tuple[str, ...]
    pairs: Mapping[str, tuple[str, str]]
    scalars: tuple[str, ...] = ("step",)
    slots: tuple[str, ...] = ()  # that every parameter with state has


_BETAS = {"betas": ("beta1", "beta2")}
_MOMENTS = ("exp_avg", "exp_avg_sq")
_ADAM = ("lr", "eps", "weight_decay", "amsgrad", "maximize")
_EITHER_DECAY = ("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize")

ADAMW = Rule("adamw", _ADAM, _BETAS, slots=_MOMENTS)
# Exactly these classes: a subclass may have a step of its own.
_RULES: dict[type, Rule] = {
    torch.optim.AdamW: ADAMW,
    torch.optim.Adam: Rule("adam", _ADAM, _BETAS, slots=_MOMENTS),
    torch.optim.SGD: Rule(
        "sgd",
        ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
        {},
        scalars=(),
    ),
    torch.optim.RMSprop: Rule(
        "rmsprop",
        ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
        {},
        slots=("square_avg",),
    ),
    torch.optim.Adagrad: Rule(
        "adagrad",
        ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"),
        {},
        slots=("sum",),
    ),
    torch.optim.Adadelta: Rule(
        "adadelta",
        ("lr", "rho", "eps", "weight_decay", "maximize"),
        {},
        slots=("square_avg", "acc_delta"),
    ),
    torch.optim.Adamax: Rule(
        "adamax", ("lr", "eps", "weight_decay", "maximize"), _BETAS, slots=("exp_avg", "exp_inf")
    ),
    torch.optim.NAdam: Rule(
        "nadam", (*_EITHER_DECAY, "momentum_decay"), _BETAS, ("step", "mu_product"), _MOMENTS
    ),
    torch.optim.RAdam: Rule("radam", _EITHER_DECAY, _BETAS, slots=_MOMENTS),
    torch.optim.Rprop: Rule(
        "rprop",
        ("lr", "maximize"),
        {"etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_size_min", "step_size_max")},
        slots=("prev", "step_size"),
    ),
}

# Slots that depend on options: which option, in torch's words.
OPTIONAL_SLOTS: Mapping[str, Mapping[str, str]] = {
    "adamw": {"max_exp_avg_sq": "amsgrad"},
    "adam": {"max_exp_avg_sq": "amsgrad"},
    "sgd": {"momentum_buffer": "momentum"},
    "rmsprop": {"momentum_buffer": "momentum", "grad_avg": "centered"},
}

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
    for option, names in rule.pairs.items():
        first, second = group[option]
        settings[names[0]] = _number(first, option)
        settings[names[1]] = _number(second, option)
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
