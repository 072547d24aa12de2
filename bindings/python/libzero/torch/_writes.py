# SPDX-License-Identifier: Apache-2.0
"""Detects writes to parameters that have master weights. A step would otherwise undo these
writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Optional, TypeVar

import torch

from .. import MismatchError, PeerError, ZeroError
from ._core import Core
from ._state import MASTER, master_of, shown_dtype
from ._tensors import Bound

_version = attrgetter("_version")
_T = TypeVar("_T")


class Writes:
    """Finds the parameters with master weights that have been written since libzero last wrote
    them. It uses the version counters of tensors, which count every write except writes through
    .data.

    Each rank copies the values that were written to the elements that it owns to their master
    weights. All ranks must report the same parameters. If a rank has seen a write that another rank
    has not seen, libzero refuses the next collective call on all ranks. All ranks then compare all
    parameters, and make the call again.
    """

    def __init__(self, core: Core, options: Mapping[str, Any]) -> None:
        """libzero.Optimizer describes `options`."""
        self._core = core
        self._options = options
        self._numbers: list[int] = []
        self._params: list[torch.Tensor] = []
        self._seen: list[Optional[int]] = []

    def watch(self, first: int) -> None:
        """Follow the sealed parameters from number `first`."""
        for number, bound in enumerate(self._core.bound[first:], first):
            if self._has_master(bound):
                self._numbers.append(number)
                self._params.append(bound.param)
                self._seen.append(bound.param._version)

    def _has_master(self, bound: Bound) -> bool:
        """Return whether the parameter may have a master weight that a write does not reach. A
        remainder only holds the low-order bits of the parameter. A written value therefore
        determines the master weight up to half a unit in the last place."""
        kept = self._options.get("master")
        if kept == "none" or not bound.trainable:
            return False
        if bound.dtype == torch.float32:
            return self._options.get("share_dtype") is not None
        halves = bound.dtype in (torch.bfloat16, torch.float16)
        return halves and not (kept == "remainder" and bound.dtype == torch.bfloat16)

    def note(self) -> None:
        """Record that libzero has written these parameters."""
        self._seen = list(map(_version, self._params))

    def doubt(self, numbers: Iterable[int]) -> None:
        """Mark parameters for comparison, because their master weights came from elsewhere."""
        doubted = set(numbers)
        for place, number in enumerate(self._numbers):
            if number in doubted:
                self._seen[place] = None

    def found(self) -> list[int]:
        """Return the numbers of the parameters that have been written. Local."""
        if list(map(_version, self._params)) == self._seen:
            return []
        rows = zip(self._numbers, self._params, self._seen)
        return [number for number, param, seen in rows if param._version != seen]

    def take(self, numbers: Sequence[int]) -> None:
        """Copy the values of these parameters to their master weights, except values that are equal
        to the rounded master weight. Call this only while libzero has no gradients. Local."""
        optimizer = self._core.optimizer
        followed = set(self._numbers)
        wanted = [
            one for one in numbers if one in followed and MASTER in optimizer.state_names(one)
        ]
        for part in optimizer.owned_ranges() if wanted else ():
            if part.param in wanted:
                self._take(self._core.bound[part.param], part)
        owned = set(self._core.owned()) if wanted else ()
        for number in wanted:
            if number not in owned:
                optimizer.state_set(number, MASTER)

    def _take(self, bound: Bound, part: Any) -> None:
        optimizer = self._core.optimizer
        held = bound.view().view(-1)[part.first : part.first + part.count].to("cpu")
        master = torch.from_numpy(optimizer.state_get(part.param, MASTER, part.first, part.count))
        shown = shown_dtype(bound, self._options.get("share_dtype"))
        taken = master_of(held, master.view(held.shape), shown)
        optimizer.state_set(part.param, MASTER, taken.numpy(), part.first)

    def take_all(self) -> None:
        self.take([one for one in self._numbers if self._core.bound[one].trainable])

    def refuse_late(self) -> None:
        """Raise RuntimeError if parameters have been written or moved since their gradients were
        reduced, because a step would undo this. Local."""
        late = sorted({*self.found(), *self._core.moved_now()})
        if late:
            raise RuntimeError(
                f"parameter {self._core.bound[late[0]].name} was written after clip_grad_norm() or "
                "clip_grad_value(): write before them or after step(), or call zero_grad() before "
                "the next backward"
            )

    def agreeing(self, call: Callable[[], _T], drop: Callable[[], object]) -> _T:
        """Run `call`, which all ranks run. If some ranks have seen writes that other ranks have not
        seen, run `drop`, and then run `call` again without gradients."""
        try:
            return call()
        except ZeroError as error:
            if not self._seen_by_some(error):
                raise
        drop()
        self.take_all()
        try:
            return call()
        except ZeroError as error:
            if not self._seen_by_some(error):
                raise
            raise RuntimeError(
                "a parameter with a master was written while another rank is in join(), which "
                f"cannot take part: write before any rank joins ({error})"
            ) from error

    def _seen_by_some(self, error: ZeroError) -> bool:
        """Return whether the call failed on all ranks because they reported different parameters.
        The error code shows only that arguments differ. The text names the difference."""
        refused = isinstance(error, (MismatchError, PeerError))
        return refused and bool(self._numbers) and "state set of parameter" in error.message
