# SPDX-License-Identifier: Apache-2.0
"""Descriptions of the C library's update rules."""

from __future__ import annotations

import ctypes as c
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from . import _abi, _values, _zero_h
from ._errors import ArgumentError


@dataclass(frozen=True)
class RuleInfo:
    """An update rule of the library.

    number    the value of its ZERO_OPTIMIZER_ constant in zero.h
    settings  the default of each setting by name, with 0 or 1 for flags
    ranges    a description of the values that each setting may take
    slots     the tensors of state by name. Each has the parameter's shape, and exists only if the
              given setting is not 0, or always if that is None
    """

    number: int
    settings: Mapping[str, float]
    ranges: Mapping[str, str]
    slots: Mapping[str, Optional[str]]


@functools.cache
def rules() -> Mapping[str, RuleInfo]:
    """Return every update rule that Optimizer accepts by name.

    >>> rules()["adamw"].settings["beta1"]
    0.9
    >>> rules()["sgd"].slots
    {'momentum_buffer': 'momentum'}
    """
    found: dict[str, RuleInfo] = {}
    rule = _zero_h.Rule(struct_size=c.sizeof(_zero_h.Rule))
    while True:
        try:
            _abi.lib().zero_rule_info(len(found), c.byref(rule))
        except ArgumentError:
            return found
        settings, slots = range(rule.setting_count), range(rule.slot_count)
        names = [rule.setting_names[i].decode() for i in settings]
        needed = (rule.slot_settings[i] for i in slots)
        found[rule.name.decode()] = RuleInfo(
            len(found),
            dict(zip(names, (rule.setting_defaults[i] for i in settings))),
            dict(zip(names, (rule.setting_ranges[i].decode() for i in settings))),
            {rule.slots[i].decode(): name and name.decode() for i, name in zip(slots, needed)},
        )


def rule_name(given: str) -> str:
    """Return the name of the rule that `given` names in upper or lower case, for example "AdamW".
    Raises ValueError for an unknown name."""
    if not isinstance(given, str) or given.lower() not in rules():
        raise ValueError(_values.unknown(given, "optimizer", rules()))
    return given.lower()
