# SPDX-License-Identifier: Apache-2.0
"""Update rules that libzero.torch.Optimizer takes, and their options in torch's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Union

import torch

from .. import CustomOptimizer, rules
from ._rules import CLASSES, Rule, class_of, rule_of

# A class of torch.optim or its name in lower case, another of rules(), or a rule of one's own.
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


def _own(name: str) -> tuple[Rule, dict[str, Any]]:
    """A rule that torch has no class for, and its options."""
    info = rules()[name]
    betas = [setting for setting in info.settings if setting.startswith("beta")]
    rule = Rule(name, {"betas": betas} if betas else {})
    options: dict[str, Any] = {option: info.settings[option] for option in rule.plain}
    options.update({option: bool(options[option]) for option in options if info.ranges[option] == "0 or 1"})
    if betas:
        options["betas"] = tuple(info.settings[setting] for setting in betas)
    return rule, options


def choose(optimizer: Named, settings: Mapping[str, Any]) -> Choice:
    """TypeError and ValueError for what libzero has no rule for, and for options that the rule
    lacks or that torch's class refuses."""
    if isinstance(optimizer, CustomOptimizer):
        rule = Rule("custom", custom=optimizer)
        return Choice(rule, optimizer, _options("this rule", rule.defaults, settings))
    if isinstance(optimizer, str):
        if optimizer not in rules():
            raise ValueError(f"optimizer {optimizer!r} is unknown; there are {', '.join(rules())}")
        if optimizer not in CLASSES:
            rule, defaults = _own(optimizer)
            return Choice(rule, optimizer, _options(optimizer, defaults, settings))
        optimizer = CLASSES[optimizer]
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
