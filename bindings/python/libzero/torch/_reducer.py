# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way from the backward of every rank to the ranks that own them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Callable, Optional

import torch

from .. import ZeroError
from .._abi import ERR_STATE
from ._core import Core
from .oss import OSS


class Reducer:
    """The parameters of some OSS, numbered over all of them in order. A backward announces each
    gradient as it comes, and its end brings their mean to the owners: .grad is the mean on the
    owner and None on other ranks. Whatever a program does to it there, a step takes it as it is.

    On an owner whose mean was not cleared, a backward adds to the mean times the number of ranks,
    so that the next mean is of all that was ever added.
    """

    def __init__(
        self, optimizers: Sequence[OSS], wire_dtype: Optional[str], bucket_bytes: int
    ) -> None:
        """Collective. ValueError: a parameter is in two optimizers; else as Core.add."""
        self.optimizers = list(optimizers)
        self.wire_dtype = wire_dtype
        self.closed = False
        self._shards = [optimizer._sharded() for optimizer in optimizers]
        self.params = params_of(optimizers)
        if len(set(self.params)) != len(self.params):
            raise ValueError("a parameter is in two of the optimizers; each belongs to one")
        self._comm = self._shards[0].comm
        self._world = self._comm.world
        owners = [owner for shard in self._shards for owner in shard.core.owners()]
        options: dict[str, Any] = {"bucket_bytes": bucket_bytes}
        if wire_dtype is not None:
            # A power of two loses no digits; the sum itself is in float32.
            options["predivide_factor"] = float(1 << (self._world - 1).bit_length())
            options["wire_dtype"] = wire_dtype
        self._core = Core(self._comm, "sgd", "manual", **options)
        try:
            names = [str(number) for number in range(len(self.params))]
            # Without momentum there is no state, whatever is trained: gradients say what there is.
            self._core.add(self.params, names, {}, trained=[True] * len(names), owners=owners)
            self._core.seal()
        except BaseException:
            self._core.close()
            raise
        self._owned = set(self._core.owned())
        self._means = [optimizer._means for optimizer in optimizers for _ in params_of([optimizer])]
        self._announced: set[int] = set()
        self._task: Optional[int] = None  # the backward whose end reduces
        self._hooks: dict[int, list[Any]] = {}
        self.accumulating = False
        self.waiting = False  # a forward was made, and nothing was reduced since
        for optimizer in optimizers:
            optimizer._reducers = [one for one in optimizer._reducers if one() is not None]
            optimizer._reducers.append(weakref.ref(self))

    def current(self) -> bool:
        """Whether the optimizers have the shards and parameters that they had."""
        if self.closed or [optimizer._sharded() for optimizer in self.optimizers] != self._shards:
            return False
        return len(params_of(self.optimizers)) == len(self.params)

    # ---- Hooks ----

    def attach(self) -> None:
        """Listen to what is trained now. RuntimeError: a gradient that needs a gradient."""
        for number, param in enumerate(self.params):
            _refuse_graph(param)
            if param.requires_grad and number not in self._hooks:
                tensor: Any = param
                self._hooks[number] = [
                    tensor.register_hook(_weak(self, "_before", number)),
                    tensor.register_post_accumulate_grad_hook(_weak(self, "_after", number)),
                ]

    def begin(self) -> None:
        """A forward whose gradients are to be reduced. ValueError as Core.follow_memory."""
        self._forget()  # what a backward that failed has announced
        self._core.follow_memory()
        self._task = None
        self.waiting = True

    def _before(self, number: int) -> None:
        """A gradient is about to be added to .grad."""
        if number in self._announced:
            # A backward within this one, or after one that failed: it was not the last, after all.
            self._forget()
        param = self.params[number]
        if param in self._means[number]:
            self._means[number].discard(param)
            if param.grad is not None:
                with torch.no_grad():
                    param.grad.mul_(self._world)

    def _after(self, number: int) -> None:
        """It is added."""
        _refuse_graph(self.params[number])
        if self.accumulating:
            return
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._end(task))
        if self._world > 1:
            gradient = self._core.bound[number].gradient()
            self._core.optimizer.grad_ready(number, gradient, stream=self._core.stream)
            self._announced.add(number)

    def _end(self, task: int) -> None:
        # A backward within another one has taken what the outer one had announced.
        if task == self._task:
            self.reduce()

    def _forget(self) -> None:
        if self._announced:
            self._announced.clear()
            self._core.optimizer.drop_grads()

    # ---- Reduction ----

    def settle(self) -> None:
        """Reduce if a forward was made whose backward did not: it reached no parameter here, but on
        other ranks it may have. Collective with them."""
        if self.waiting:
            self.reduce()

    def reduce(self) -> None:
        """Bring the mean of all gradients to their owners. Collective. TypeError and ValueError as
        Bound.gradient."""
        self.waiting = False
        self._task = None
        if self._world == 1:
            return
        gradients = [
            None if number in self._announced or bound.param in means else bound.gradient()
            for number, (bound, means) in enumerate(zip(self._core.bound, self._means))
        ]
        has_any = bool(self._announced) or any(gradient is not None for gradient in gradients)
        try:
            if not self._announced:
                self._core.follow_memory()
            self._core.optimizer.reduce_grads(gradients, "mean", stream=self._core.stream)
        except BaseException as error:
            with suppress(ZeroError):
                self._forget()
            if isinstance(error, ZeroError) and error.code == ERR_STATE and not has_any:
                return  # and no other rank has, either
            raise
        self._announced.clear()
        try:
            with torch.no_grad():
                for number in range(len(self.params)):
                    self._deliver(number)
        finally:
            self._core.optimizer.drop_grads()

    def _deliver(self, number: int) -> None:
        param = self.params[number]
        if param.numel() == 0:
            return  # nobody's
        if number not in self._owned:
            param.grad = None
            return
        mean = self._core.reduced(number)
        if mean is None:
            return
        if param in self._means[number] and param.grad is not None:
            mean += param.grad
        param.grad = mean
        self._means[number].add(param)

    def take_over(self, before: Reducer) -> None:
        """Go on where `before`, of the same optimizers, stops."""
        self.accumulating = before.accumulating
        self.waiting, before.waiting = before.waiting, False

    def close(self) -> None:
        for hooks in self._hooks.values():
            for hook in hooks:
                hook.remove()
        self._hooks.clear()
        self.closed = True
        self._core.close()


def reducer_of(optimizers: Sequence[OSS], wire_dtype: Optional[str], bucket_bytes: int) -> Reducer:
    """The one that these optimizers have, for another model, or a new one, listening. Collective if
    it is new. ValueError: one of them is in a ShardedDataParallel with others, or with another
    wire_dtype."""
    for optimizer in optimizers:
        for reference in optimizer._reducers:
            found = reference()
            if found is None or not found.current():
                continue
            if found.optimizers != list(optimizers) or found.wire_dtype != wire_dtype:
                raise ValueError(
                    "an OSS is in a ShardedDataParallel with other optimizers or another "
                    "reduce_fp16; models that share one share all of that"
                )
            found.attach()
            return found
    made = Reducer(optimizers, wire_dtype, bucket_bytes)
    made.attach()
    return made


def params_of(optimizers: Sequence[OSS]) -> list[torch.Tensor]:
    return [
        param
        for optimizer in optimizers
        for group in optimizer.param_groups
        for param in group["params"]
    ]


def _refuse_graph(param: torch.Tensor) -> None:
    if param.grad is not None and param.grad.requires_grad:
        raise RuntimeError(
            "a gradient needs a gradient itself, as after backward(create_graph=True); "
            "ShardedDataParallel reduces gradients without a graph"
        )


def _weak(reducer: Reducer, method: str, number: int) -> Callable[[Any], None]:
    """A hook that does not keep the reducer alive, and does nothing once it is gone."""
    reference = weakref.ref(reducer)

    def hook(_: Any) -> None:
        found = reference()
        if found is not None:
            getattr(found, method)(number)

    return hook
