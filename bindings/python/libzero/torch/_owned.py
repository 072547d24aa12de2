# SPDX-License-Identifier: Apache-2.0
"""What one rank owns of a sharded optimizer, with the look of an optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from . import _state
from ._core import Core
from ._rules import Rule
from ._shard import Groups, options_of


class Owned:
    """To be read: all of it is copies, made when it is asked for. Changes go into the sharded
    optimizer's own param_groups, and its load_state_dict()."""

    def __init__(self, core: Core, rule: Rule, groups: Groups) -> None:
        self._groups = groups
        self.state = OwnedState(core, rule, groups)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups with the parameters of which this rank owns elements, and options as they are."""
        mine = set(self.state)
        return [
            {**options_of(group), "params": [param for param in group["params"] if param in mine]}
            for group in self._groups
        ]

    def __repr__(self) -> str:
        return f"<what this rank owns: {len(self.state)} parameters>"


class OwnedState(Mapping[torch.Tensor, dict[str, torch.Tensor]]):
    """By parameter of which this rank owns elements, its state by torch's names; {} before its first
    step, and for parameters of others. A tensor has the parameter's shape, or one dimension where
    the rank owns a part, with the elements of that part in order of memory."""

    def __init__(self, core: Core, rule: Rule, groups: Groups) -> None:
        self._core = core
        self._rule = rule
        self._group_of: Sequence[Mapping[str, Any]] = [
            group for group in groups for _ in group["params"]
        ]
        self._numbers = {one.param: number for number, one in enumerate(core.bound)}
        self._owned = core.owned() if core.bound else []

    def __getitem__(self, param: torch.Tensor) -> dict[str, torch.Tensor]:
        number = self._numbers[param]
        if number not in self._owned:
            return {}
        return _state.owned(self._core, self._rule, self._group_of[number], number)

    def __contains__(self, param: object) -> bool:
        return self._numbers.get(param) in self._owned  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self._core.bound[number].param for number in self._owned)

    def __len__(self) -> int:
        return len(self._owned)
