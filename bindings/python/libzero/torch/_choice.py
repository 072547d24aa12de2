# SPDX-License-Identifier: Apache-2.0
"""Update rules that libzero.torch.Optimizer takes, and their options in torch's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Union

import torch

from .. import CustomOptimizer
from ._rules import Rule, class_of, rule_of

# A class of torch.optim or its name in lower case, "lion", "lamb", "lars", or a rule of one's own.
Named = Union[str, type[torch.optim.Optimizer], CustomOptimizer]


class Choice(NamedTuple):
    """`rule` has torch's words, `update` is what libzero takes, `template` an optimizer without
    parameters that has every option."""

    rule: Rule
    update: Union[str, CustomOptimizer]
    template: torch.optim.Optimizer

    def check(self, group: Mapping[str, Any]) -> None:
        """ValueError for options of one group that make torch's class another rule."""
        if isinstance(self.template, RuleOptions):
            return
        found, reason = rule_of(type(self.template), [group], group["params"])
        if found is not self.rule:
            raise ValueError(
                f"a group cannot be updated by {self.rule.name}: "
                f"{reason or 'its decoupled_weight_decay is another'}"
            )


class RuleOptions(torch.optim.Optimizer):
    """Options of a rule that torch has no class for."""


_CLASSES = {
    cls.__name__.lower(): cls
    for cls in (
        torch.optim.AdamW,
        torch.optim.Adam,
        torch.optim.SGD,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Rprop,
    )
}
_BETAS = {"betas": ("beta1", "beta2")}
# Rules of libzero's own: their defaults are those of zero.h.
_OWN: dict[str, tuple[Rule, dict[str, Any]]] = {
    "lion": (
        Rule("lion", ("lr", "weight_decay", "maximize"), _BETAS, slots=("exp_avg",)),
        {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False},
    ),
    "lamb": (
        Rule(
            "lamb",
            ("lr", "eps", "weight_decay", "always_adapt", "maximize"),
            _BETAS,
            slots=("exp_avg", "exp_avg_sq"),
        ),
        {
            "lr": 1e-3,
            "betas": (0.9, 0.999),
            "eps": 1e-6,
            "weight_decay": 0.01,
            "always_adapt": False,
            "maximize": False,
        },
    ),
    "lars": (
        Rule(
            "lars",
            (
                "lr",
                "momentum",
                "weight_decay",
                "nesterov",
                "trust_coefficient",
                "eps",
                "always_adapt",
                "maximize",
            ),
            {},
        ),
        {
            "lr": 1.0,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "nesterov": False,
            "trust_coefficient": 1e-3,
            "eps": 1e-8,
            "always_adapt": False,
            "maximize": False,
        },
    ),
}


def choose(optimizer: Named, settings: Mapping[str, Any]) -> Choice:
    """TypeError and ValueError for what libzero has no rule for, and for options that the rule
    lacks or that torch's class refuses."""
    if isinstance(optimizer, CustomOptimizer):
        defaults = {"lr": 1e-3, "weight_decay": 0.0, **optimizer.settings}
        rule = Rule("custom", tuple(defaults), {}, slots=tuple(optimizer.slots))
        return Choice(rule, optimizer, _options("this rule", defaults, settings))
    if isinstance(optimizer, str):
        if optimizer in _OWN:
            rule, defaults = _OWN[optimizer]
            return Choice(rule, optimizer, _options(optimizer, defaults, settings))
        if optimizer not in _CLASSES:
            known = ", ".join((*_CLASSES, *_OWN))
            raise ValueError(f"optimizer {optimizer!r} is unknown; there are {known}")
        optimizer = _CLASSES[optimizer]
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


def _options(
    what: str, defaults: Mapping[str, Any], settings: Mapping[str, Any]
) -> torch.optim.Optimizer:
    unknown = [name for name in settings if name not in defaults]
    if unknown:
        raise TypeError(f"{what} has no option {', '.join(unknown)}; it has {', '.join(defaults)}")
    return RuleOptions([{"params": []}], {**defaults, **settings})
