# SPDX-License-Identifier: Apache-2.0
"""The optimizer in libzero that libzero.torch.Optimizer uses. It supports every option, and
gradients in arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch

from .. import Comm, Group
from ._core import Core
from ._rules import Choice, arguments_of
from ._tensors import Bound
from .typing import Reduction


@dataclass(frozen=True)
class Wishes:
    """The choices of the program. `options` are for libzero.Optimizer, and `arenas` is "",
    "per_rank" or "shared"."""

    choice: Choice
    options: Mapping[str, Any]
    arenas: str
    overlap: bool
    reduction: Reduction


class NativeCore(Core):
    """Supports every option of libzero, and gradients in arenas."""

    def __init__(self, comm: Comm, wishes: Wishes) -> None:
        super().__init__(comm, wishes.choice.update, **wishes.options)
        self.places: dict[torch.Tensor, torch.Tensor] = {}  # in arenas of this rank
        # Parameters whose memory may hold values that libzero did not write.
        self.moved: set[int] = set()

    def follow_memory(self) -> None:
        """Move parameters that belong in an arena back to the arena, because libzero may access
        memory past their end."""
        for number in self.moved_now():
            one = self.bound[number]
            self.moved.add(number)
            place = self.places.get(one.param)
            if place is not None:
                place.copy_(one.view())
                one.param.data = one.out_of_order(place)
        super().follow_memory()

    def add_bound(
        self,
        bound: Sequence[Bound],
        homes: Sequence[Optional[torch.Tensor]],
        settings: Mapping[str, float],
        fixed: Mapping[str, Any],
    ) -> Group:
        told = [
            replace(
                one.register(),
                frozen=not one.trained,
                padded=one.param in self.places,
                grad=None if home is None else one.in_order(home),
            )
            for one, home in zip(bound, homes)
        ]
        options: dict[str, Any] = {**settings, **arguments_of(fixed)}
        group = self.optimizer.register(told, **options)
        self.bound += bound
        self._trained += [not param.frozen for param in told]
        return group

    def changed(self) -> bool:
        """Return whether there are changes to take over. They cannot be passed to libzero while
        gradients are announced. Raises the errors of Bound.moved."""
        return self.trained() != self._trained or bool(self.moved_now())
