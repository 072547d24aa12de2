# SPDX-License-Identifier: Apache-2.0
"""Passes gradients from autograd to libzero, and announces them during the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional

import torch

from ._core import Core


class Gradients:
    """The hooks on the parameters of one optimizer, and the gradients that the hooks have
    announced.

    libzero may read an announced gradient at any time until a step uses it. If a program changes an
    announced gradient, in a second backward pass or in place, the announcements are withdrawn and
    the sums are computed again. The sums on other ranks are then also computed again, even if their
    programs have not changed a gradient.
    """

    def __init__(self, core: Core, *, overlap: bool) -> None:
        self._core = core
        self.overlap = overlap
        self._synchronizing = True
        self._homes: list[Optional[torch.Tensor]] = []
        self._hooks: list[Any] = []
        # The announced gradients, each with the value of its version counter at that time.
        self._announced: dict[int, tuple[torch.Tensor, int]] = {}
        self._reduced: Optional[list[tuple[Optional[torch.Tensor], int]]] = None
        weakref.finalize(self, _remove, self._hooks).atexit = False

    def watch(self, homes: Sequence[Optional[torch.Tensor]]) -> None:
        """Follow the parameters that were added last. `homes` is Homes.grads, or a list in which
        every entry is None."""
        first = len(self._homes)
        self._homes += homes
        self._hooks += [None] * len(homes)
        self.follow_trained(first)

    def follow_trained(self, first: int = 0) -> None:
        """Install hooks on parameters that require a gradient by now. Other parameters cannot have
        hooks in torch."""
        for number in range(first, len(self._hooks)):
            param = self._core.bound[number].param
            if self._hooks[number] is None and param.requires_grad:
                register: Any = param.register_post_accumulate_grad_hook
                self._hooks[number] = register(_hook(weakref.ref(self), number))

    def _arrived(self, number: int) -> None:
        param = self._core.bound[number].param
        self.follow_reduced()
        if number in self._announced:
            self.take_back()
        self._bring_home(number)
        if not (self._synchronizing and self.overlap and param.requires_grad):
            return
        grad = param.grad
        assert grad is not None
        if grad is self._homes[number]:
            self._core.optimizer.grad_ready(number, stream=self._core.stream)
        else:
            self._core.optimizer.grad_ready(number, self._given(number), stream=self._core.stream)
        self._announced[number] = grad, grad._version

    def _bring_home(self, number: int) -> None:
        """Move the gradient to its place in the arena, because autograd creates a new tensor for
        the first gradient after zero_grad()."""
        param, home = self._core.bound[number].param, self._homes[number]
        grad = param.grad
        if home is None or grad is None or grad is home:
            return
        # A gradient that is sparse, has another dtype or is part of a graph is left as it is.
        if grad.layout is torch.strided and grad.dtype == home.dtype and not grad.requires_grad:
            home.copy_(grad)
            param.grad = home

    def _given(self, number: int) -> Optional[torch.Tensor]:
        """Return the gradient for libzero. For a parameter in an arena, the gradient is always the
        tensor in the arena, because libzero may access memory past its end. Raises the errors of
        Bound.gradient."""
        bound, home = self._core.bound[number], self._homes[number]
        if home is None:
            return bound.gradient()
        place = bound.in_order(home)
        if bound.param.grad is home:
            return place
        given = bound.gradient()
        return None if given is None else place.copy_(given)

    def take_back(self) -> None:
        """Withdraw all gradients that have been announced or reduced. Local."""
        self._announced.clear()
        self._reduced = None
        self._core.optimizer.drop_grads()

    @property
    def reduced(self) -> bool:
        return self._reduced is not None

    def note_reduced(self) -> None:
        """Record that the current gradients have been reduced, and that the contents of their
        memory are now undefined."""
        grads = [bound.param.grad for bound in self._core.bound]
        self._reduced = [(grad, 0 if grad is None else grad._version) for grad in grads]

    def follow_reduced(self) -> None:
        """Discard the reduced sums if all gradients have been replaced. Raises RuntimeError if only
        some gradients have been replaced, or if a gradient has been written to, because a sum
        cannot be separated from later additions."""
        if self._reduced is None:
            return
        pairs = list(zip((bound.param.grad for bound in self._core.bound), self._reduced))
        if all(now is then and (now is None or now._version == at) for now, (then, at) in pairs):
            return
        if any(now is not None and now is then for now, (then, _) in pairs):
            raise RuntimeError(
                "a gradient changed after clip_grad_norm() or clip_grad_value(): clip last before "
                "step(), or call zero_grad() before the next backward"
            )
        self.take_back()

    @property
    def announced(self) -> bool:
        return bool(self._announced)

    def collect(self) -> Optional[list[Optional[torch.Tensor]]]:
        """Return the argument of a reduction, which is a list with one gradient per parameter and
        None for each missing gradient. Return None if all gradients have been announced or
        registered. Raises the errors of Bound.gradient."""
        if any(self._changed(number) for number in self._announced):
            self.take_back()
        if all(self._known(number) for number in range(len(self._homes))):
            return None
        return [self._given(number) for number in range(len(self._homes))]

    def _changed(self, number: int) -> bool:
        announced, version = self._announced[number]
        return self._core.bound[number].param.grad is not announced or announced._version != version

    def _known(self, number: int) -> bool:
        if number in self._announced:
            return True
        grad = self._core.bound[number].param.grad
        return grad is not None and grad is self._homes[number]

    def used(self) -> None:
        """Set .grad to None for gradients in the arena. Call this after a step has used the
        gradients, because the arena then no longer contains gradients."""
        self._announced.clear()
        self._reduced = None
        for bound, home in zip(self._core.bound, self._homes):
            if home is not None and bound.param.grad is home:
                bound.param.grad = None

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    def close(self) -> None:
        self._announced.clear()
        _remove(self._hooks)


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        if hook is not None:
            hook.remove()
    hooks.clear()


def _hook(owner: weakref.ref[Gradients], number: int) -> Callable[[torch.Tensor], None]:
    """Return a hook that does not keep the optimizer alive through the model that it trains."""

    def arrived(param: torch.Tensor) -> None:
        gradients = owner()
        if gradients is not None:
            with torch.no_grad():
                gradients._arrived(number)

    return arrived
