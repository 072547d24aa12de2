# SPDX-License-Identifier: Apache-2.0
"""Represents the contents of a checkpoint as the state_dicts of a model and an optimizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, cast

import torch

from ..typing import RuleName
from ._rules import OWN_RULE, STATE_DTYPE, Choice, Rule, choose, put_settings
from ._state import MASTER, scalar_of
from ._streams import DESCRIPTION, Description, RefusedError

MODEL, OPTIMIZER = "model", "optimizer"
CUSTOM = "custom:"
GROUP_RULE = "optimizer"  # in the description of a group that has its own rule
_REST = ("optimizer", "slots", "step", "skipped", "options")

Document = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A tensor in a file. It has a shape, a dtype, and a place in the file if that is known. Its
    contiguous bytes are read in parts, on request."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    place: Any
    parts: Callable[[], Iterable[torch.Tensor]]

    def __repr__(self) -> str:
        return f"a tensor of shape {list(self.shape)}"

    def number(self) -> float:
        """Return the exact value of a tensor with one element. The result is an int if the tensor
        has an integer dtype."""
        value: float = next(iter(self.parts())).flatten()[0].item()
        return value


def document_of(
    description: Description, tensor: Callable[[str], Any], *, by_name: bool
) -> Document:
    """Return the dictionaries, with `tensor(name)` for each tensor of the stream. If `by_name` is
    set, the keys of the optimizer's parameters are names, as in torch.distributed.checkpoint.
    Otherwise they are numbers."""
    held = [*description["parameters"], *description["buffers"]]
    state: dict[Any, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for index, settings in enumerate(description["groups"]):
        own = settings.get(GROUP_RULE)
        if isinstance(own, str) and own.startswith(CUSTOM):
            raise RefusedError(
                f"group {index} of the checkpoint follows {own!r} beside {description['optimizer']!r}: "
                "no file of torch can tell which function that is; keep the checkpoint"
            )
        rule_name = own if isinstance(own, str) else description["optimizer"]
        rule = None if rule_name.startswith(CUSTOM) else choice_of(rule_name).rule
        options = _options_of(rule_name, settings)
        if rule_name is own:
            options[OWN_RULE] = own
        if STATE_DTYPE in settings:
            options[STATE_DTYPE] = settings[STATE_DTYPE]
        mine = [param for param in description["parameters"] if param["group"] == index]
        names = [param["name"] for param in mine]
        numbers = range(number, number := number + len(mine))
        keys: Sequence[Any] = names if by_name else numbers
        for key, param in zip(keys, mine):
            # Before its first step, a class of torch would not add its own state to a master weight.
            if set(param["state"]) - {MASTER} or (param["state"] and param["step"] > 0):
                state[key] = {
                    **_scalars_of(rule, param),
                    **{slot: tensor(f"{param['name']}.{slot}") for slot in param["state"]},
                }
        named = {} if by_name else {"param_names": names}
        groups.append({**options, "params": list(keys), **named})
    return {
        MODEL: {one["name"]: tensor(one["name"]) for one in held},
        OPTIMIZER: {"state": state, "param_groups": groups},
        DESCRIPTION: _rest_of(description),
    }


def choice_of(rule_name: str) -> Choice:
    return choose(cast(RuleName, rule_name), {})


def _rest_of(description: Description) -> str:
    """Return the values that have no place in torch's dictionaries. They are in a single string,
    because torch.distributed.checkpoint would save each number of a dictionary separately."""
    rest: dict[str, Any] = {key: description[key] for key in _REST if key in description}
    rest["steps"] = {param["name"]: param["step"] for param in description["parameters"]}
    return json.dumps(rest)


def _options_of(rule_name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: float(value) for name, value in settings.items() if name not in (GROUP_RULE, STATE_DTYPE)}
    if rule_name.startswith(CUSTOM):
        return numbers
    choice = choice_of(rule_name)
    options = {
        name: value for name, value in choice.template.param_groups[0].items() if name != "params"
    }
    put_settings(choice.rule, options, {**choice.rule.defaults, **numbers})
    return options


def _scalars_of(rule: Optional[Rule], param: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    names = ("step",) if rule is None else rule.scalars
    return {name: scalar_of(param.get(name, 1.0), name) for name in names}
