# SPDX-License-Identifier: Apache-2.0
"""ShardedDataParallel, with the arguments and methods of fairscale's class."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Callable, Optional, Union

import torch
import torch.distributed as dist

from .. import ZeroError
from .._zero_h import ERR_STATE
from ._core import Core
from ._group import copy_from_first, process_group as group_or_default
from .oss import OSS, oss_within

_logger = logging.getLogger("libzero")
_LEAST_BUCKET_BYTES = 4096


class ShardedDataParallel(torch.nn.Module):
    """A replacement for fairscale.nn.data_parallel.ShardedDataParallel. To use it, change the
    import.

        optimizer = OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1)
        model = ShardedDataParallel(model, optimizer)

    Each backward pass reduces the gradients of all ranks to their mean on the ranks that own the
    parameters. On the owner of a parameter, .grad is this mean. On other ranks, .grad is None.
    Therefore, clip with OSS.clip_grad_norm, and scale losses with ShardedGradScaler. If no rank has
    a gradient for a parameter, .grad remains None. If only some ranks have a gradient, the missing
    gradients count as zeros. Gradients that are not cleared accumulate over any number of backward
    passes. If the backward pass of a rank reaches no parameter, that rank takes part in the
    reduction in its next step, clip or unscale_.

    `module` is on one device, which is the CPU or this rank's GPU. It must be the same on all
    ranks. `sharded_optimizer` is a libzero.torch.OSS or a list of them, over the ranks of
    `process_group`. With `broadcast_buffers`, each forward pass outside no_sync() first copies
    buffers from rank 0. With `sync_models_at_startup`, the constructor copies parameters and
    buffers from rank 0. `reduce_buffer_size` is the number of elements in one transfer, and 0
    selects libzero's default. With `reduce_fp16`, gradients are rounded to float16 for the
    transfer, and summed in float32. With `warn_on_trainable_params_changed`, a change of
    requires_grad is logged. `auto_refresh_trainable` has no effect, because each forward pass reads
    requires_grad.

    The constructor, forward, the end of a backward pass, and reduce() are collective over the
    group. Raises TypeError or ValueError if `sharded_optimizer` contains an object that is not an
    OSS, if an optimizer has another group, or if a parameter is in two optimizers.

    >>> module = torch.nn.Linear(4, 3)
    >>> optimizer = OSS(module.parameters(), optim=torch.optim.SGD, lr=0.1)
    >>> model = ShardedDataParallel(module, optimizer)
    """

    def __init__(
        self,
        module: torch.nn.Module,
        sharded_optimizer: Union[OSS, Sequence[OSS]],
        process_group: Optional[dist.ProcessGroup] = None,
        broadcast_buffers: bool = True,
        sync_models_at_startup: bool = True,
        reduce_buffer_size: int = 2**23,
        auto_refresh_trainable: bool = True,
        reduce_fp16: bool = False,
        warn_on_trainable_params_changed: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is {type(module).__name__}, not a torch.nn.Module")
        self.module = module
        self.process_group = group_or_default(process_group)
        self._optimizers = _optimizers_of(sharded_optimizer, self.process_group)
        if reduce_buffer_size < 0:
            raise ValueError(f"reduce_buffer_size is {reduce_buffer_size}; 0 is libzero's default")
        self._broadcast_buffers = broadcast_buffers
        self._warns = warn_on_trainable_params_changed
        self._wire_dtype = "float16" if reduce_fp16 else None
        elements = min(reduce_buffer_size, sum(one.numel() for one in _params_of(self._optimizers)))
        self._bucket_bytes = max(4 * elements, _LEAST_BUCKET_BYTES) if elements else 0
        devices = {param.device for param in module.parameters()}
        self.is_multi_device_module = len(devices) > 1
        self.device_type = next(iter(devices), torch.device("cpu")).type
        if sync_models_at_startup:
            copy_from_first([*module.parameters(), *module.buffers()], self.process_group)
        self._reducer = self._new_reducer()
        self._trained = self._trained_now()

    def _new_reducer(self) -> _Reducer:
        return _reducer_of(self._optimizers, self._wire_dtype, self._bucket_bytes)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Check whether parameters have been frozen, added or moved, and then run the forward pass
        of the module.

        >>> model(torch.ones(2, 4)).sum().backward()
        """
        self._follow()
        if self._broadcast_buffers and not self._reducer.accumulating:
            self.sync_buffers()
        if self.training and torch.is_grad_enabled():
            self._reducer.begin()
        return self.module(*inputs, **kwargs)

    def _follow(self) -> None:
        for optimizer in self._optimizers:
            optimizer._follow_change()
        if not self._reducer.current():
            self._rebuild()
        elif self._trained != self._trained_now():
            if self._warns:
                _logger.warning("ShardedDataParallel: requires_grad of parameters has changed")
            self.refresh_trainable()

    def _rebuild(self) -> None:
        before, self._reducer = self._reducer, self._new_reducer()
        if not before.closed:  # another model with these optimizers has not closed it
            self._reducer.take_over(before)
            before.close()
        self._trained = self._trained_now()

    def _trained_now(self) -> list[bool]:
        return [param.requires_grad for param in self._reducer.params]

    def refresh_trainable(self) -> None:
        """Read requires_grad now. Each forward pass also does this. Local. Raises RuntimeError if a
        gradient itself requires a gradient.

        >>> model.bias.requires_grad = False
        >>> model.refresh_trainable()
        """
        for optimizer in self._optimizers:
            optimizer.refresh_trainable()
        self._reducer.attach()
        self._trained = self._trained_now()

    def reduce(self) -> None:
        """Reduce the gradients that backward passes within no_sync() have accumulated. In all other
        cases, this call is not needed. Raises RuntimeError if there has been no forward pass since
        the last reduction.

        >>> with model.no_sync():
        ...     model(torch.ones(2, 4)).sum().backward()
        >>> model.reduce()
        """
        if not self._reducer.waiting:
            raise RuntimeError(
                "nothing to reduce: there has been no forward pass since the last reduction"
            )
        self._reducer.reduce()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context in which gradients accumulate on this rank only, and buffers are not
        copied. The next backward pass outside the context reduces the accumulated sum. An exception
        also ends the context.

        >>> with model.no_sync():
        ...     model(torch.ones(2, 4)).sum().backward()
        >>> model(torch.ones(2, 4)).sum().backward()
        """
        before, self._reducer.accumulating = self._reducer.accumulating, True
        try:
            yield
        finally:
            self._reducer.accumulating = before

    def sync_buffers(self, blocking: bool = False) -> None:
        """Copy the buffers of the module from rank 0. The copy is complete when this method
        returns, with or without `blocking`. Collective.

        >>> model.sync_buffers()
        """
        copy_from_first(self.module.buffers(), self.process_group)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Set the gradients of the module and the optimizers to zero or to None.

        >>> model.zero_grad(set_to_none=True)
        """
        super().zero_grad(set_to_none)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none)

    def __getattr__(self, name: str) -> Any:
        """Look up missing attributes in the module.

        >>> model.weight.shape
        torch.Size([3, 4])
        """
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def _optimizers_of(given: Union[OSS, Sequence[OSS]], process_group: dist.ProcessGroup) -> list[OSS]:
    listed: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    optimizers = [oss_within(one) for one in listed]
    if not optimizers:
        raise ValueError("sharded_optimizer is an empty list")
    ranks = dist.get_process_group_ranks(process_group)
    for optimizer in optimizers:
        if not isinstance(optimizer, OSS):
            raise TypeError(
                f"sharded_optimizer is a {type(optimizer).__name__}; it takes libzero.torch.OSS"
            )
        theirs = dist.get_process_group_ranks(optimizer.process_group)
        if theirs != ranks:
            raise ValueError(f"OSS has the ranks {theirs} and process_group {ranks}; give both one")
    return optimizers


class _Reducer:
    """The parameters of several OSS, numbered over all of these optimizers in order. A backward
    pass announces each gradient when it is ready. The end of the backward pass reduces the
    gradients to their mean on the owners. On the owner, .grad is then the mean, and on other ranks
    it is None. A program may change the mean before a step uses it.

    If the mean on an owner has not been cleared, the backward pass adds to the mean multiplied by
    the number of ranks. The next mean then includes all accumulated gradients.
    """

    def __init__(
        self, optimizers: Sequence[OSS], wire_dtype: Optional[str], bucket_bytes: int
    ) -> None:
        """Create the reducer. Collective. Raises ValueError if a parameter is in two optimizers,
        and all errors of Core.add."""
        self.optimizers = list(optimizers)
        self.wire_dtype = wire_dtype
        self.closed = False
        self._shards = [optimizer._sharded() for optimizer in optimizers]
        self.params = _params_of(optimizers)
        if len(set(self.params)) != len(self.params):
            raise ValueError("a parameter is in two of the optimizers; each belongs to one")
        self._comm = self._shards[0].comm
        self._world = self._comm.world
        owners = [owner for shard in self._shards for owner in shard.core.owners()]
        options: dict[str, Any] = {"bucket_bytes": bucket_bytes}
        if wire_dtype is not None:
            # Division by a power of two is exact, and the sum is computed in float32.
            options["predivide_factor"] = float(1 << (self._world - 1).bit_length())
            options["wire_dtype"] = wire_dtype
        self._core = Core(self._comm, "sgd", "manual", **options)
        try:
            names = [str(number) for number in range(len(self.params))]
            # Without momentum there is no state, so all parameters are trained; those without
            # gradients do not change.
            self._core.add(self.params, names, {}, trained=[True] * len(names), owners=owners)
            self._core.seal()
            self._core.take_as_alike()  # until the optimizers take a step
        except BaseException:
            self._core.close()
            raise
        self._owned = set(self._core.owned())
        self._means = [optimizer._means for optimizer in optimizers for _ in _params_of([optimizer])]
        self._announced: set[int] = set()
        self._task: Optional[int] = None  # the backward pass at whose end gradients are reduced
        self._hooks: dict[int, list[Any]] = {}
        self.accumulating = False
        self.waiting = False  # a forward pass has run, and no reduction since
        for optimizer in optimizers:
            optimizer._reducers = [one for one in optimizer._reducers if one() is not None]
            optimizer._reducers.append(weakref.ref(self))

    def current(self) -> bool:
        """Return whether the optimizers still have the shards and parameters that this reducer
        has."""
        if self.closed or [optimizer._sharded() for optimizer in self.optimizers] != self._shards:
            return False
        return len(_params_of(self.optimizers)) == len(self.params)

    # ---- Hooks ----

    def attach(self) -> None:
        """Install hooks on the parameters that are trained now. Raises RuntimeError if a gradient
        requires a gradient."""
        for number, param in enumerate(self.params):
            _refuse_graph(param)
            if param.requires_grad and number not in self._hooks:
                tensor: Any = param
                self._hooks[number] = [
                    tensor.register_hook(_weak(self, "_before", number)),
                    tensor.register_post_accumulate_grad_hook(_weak(self, "_after", number)),
                ]

    def begin(self) -> None:
        """Begin a forward pass whose gradients will be reduced. Raises the errors of
        Core.follow_memory."""
        self._forget()  # announcements of a backward pass that failed
        self._core.follow_memory()
        self._task = None
        self.waiting = True

    def _before(self, number: int) -> None:
        """A hook that is called before a gradient is added to .grad."""
        if number in self._announced:
            # The announcement was not final: this is a nested backward pass, or one after a pass
            # that failed.
            self._forget()
        param = self.params[number]
        if param in self._means[number]:
            self._means[number].discard(param)
            if param.grad is not None:
                with torch.no_grad():
                    param.grad.mul_(self._world)

    def _after(self, number: int) -> None:
        """A hook that is called after a gradient has been added to .grad."""
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
        # A nested backward pass has already reduced what the outer pass had announced before it.
        if task == self._task:
            self.reduce()

    def _forget(self) -> None:
        if self._announced:
            self._announced.clear()
            self._core.optimizer.drop_grads()

    # ---- Reduction ----

    def reduce_waiting(self) -> None:
        """Reduce gradients if there has been a forward pass since the last reduction. Its backward
        pass reached no parameter on this rank, but may have reached parameters on other ranks,
        which are then waiting. Collective with their reduction."""
        if self.waiting:
            self.reduce()

    def reduce(self) -> None:
        """Reduce all gradients to their mean on the owners. Collective. Raises the errors of
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
                return  # no other rank has gradients either
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
            return  # it has no owner
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

    def take_over(self, before: _Reducer) -> None:
        """Take over the state of `before`, a reducer that has the same optimizers."""
        self.accumulating = before.accumulating
        self.waiting, before.waiting = before.waiting, False

    def close(self) -> None:
        for hooks in self._hooks.values():
            for hook in hooks:
                hook.remove()
        self._hooks.clear()
        self.closed = True
        self._core.close()


def _reducer_of(optimizers: Sequence[OSS], wire_dtype: Optional[str], bucket_bytes: int) -> _Reducer:
    """Return the reducer that these optimizers already have for another model, or a new reducer
    with installed hooks. Collective if the reducer is new. Raises ValueError if one of the
    optimizers is already in a ShardedDataParallel with other optimizers, or with another
    wire_dtype."""
    for optimizer in optimizers:
        for reference in optimizer._reducers:
            found: Optional[_Reducer] = reference()
            if found is None or not found.current():
                continue
            if found.optimizers != list(optimizers) or found.wire_dtype != wire_dtype:
                raise ValueError(
                    "an OSS is in a ShardedDataParallel with other optimizers or another "
                    "reduce_fp16; models that share an OSS must share all of these"
                )
            found.attach()
            return found
    made = _Reducer(optimizers, wire_dtype, bucket_bytes)
    made.attach()
    return made


def _params_of(optimizers: Sequence[OSS]) -> list[torch.Tensor]:
    return [
        param
        for optimizer in optimizers
        for group in optimizer.param_groups
        for param in group["params"]
    ]


def _refuse_graph(param: torch.Tensor) -> None:
    if param.grad is not None and param.grad.requires_grad:
        raise RuntimeError(
            "a gradient itself requires a gradient, for example after backward(create_graph=True); "
            "ShardedDataParallel reduces gradients without a graph"
        )


def _weak(reducer: _Reducer, method: str, number: int) -> Callable[[Any], None]:
    """Return a hook that does not keep the reducer alive, and does nothing after the reducer has
    been freed."""
    reference = weakref.ref(reducer)

    def hook(_: Any) -> None:
        found = reference()
        if found is not None:
            getattr(found, method)(number)

    return hook
