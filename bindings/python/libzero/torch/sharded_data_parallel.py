# SPDX-License-Identifier: Apache-2.0
"""ShardedDataParallel, with the arguments and methods of fairscale's."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional, Union

import torch
import torch.distributed as dist

from ._broadcast import copy_from_first
from ._group import process_group as group_or_default
from ._reducer import Reducer, params_of, reducer_of
from .oss import OSS, oss_within

_logger = logging.getLogger("libzero")
_LEAST_BUCKET_BYTES = 4096


class ShardedDataParallel(torch.nn.Module):
    """In place of fairscale.nn.data_parallel.ShardedDataParallel: change the import.

        optimizer = OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1)
        model = ShardedDataParallel(model, optimizer)

    Each backward brings the mean of every rank's gradients to the ranks that own the parameters:
    .grad is that mean on the owner, and None elsewhere, so clip with OSS.clip_grad_norm and scale
    losses with ShardedGradScaler. A parameter that got no gradient on any rank has none; one that
    got some on other ranks alone counts as zeros here. Gradients that are not cleared add up, over
    any number of backwards. A rank whose backward reaches no parameter joins the others in its next
    step, clip or unscale_.

    `module`: on one device, the CPU or this rank's GPU; all ranks have the same. `sharded_optimizer`:
    libzero.torch.OSS, or a list of them, over the ranks of `process_group`. `broadcast_buffers`:
    from rank 0 at the start of each forward outside of no_sync(). `sync_models_at_startup`: copy
    parameters and buffers from rank 0 now. `reduce_buffer_size`: the elements that travel at once,
    0 for libzero's default. `reduce_fp16`: round gradients to float16 on their way; sums are in
    float32. `warn_on_trainable_params_changed`: log it. `auto_refresh_trainable` has no effect:
    requires_grad is looked at in each forward.

    The constructor, forward, the end of a backward and reduce() are collective over the group.
    TypeError and ValueError: optimizers that are none, have another group or share a parameter.
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
            raise TypeError(f"module is {type(module).__name__}, no torch.nn.Module")
        self.module = module
        self.process_group = group_or_default(process_group)
        self._optimizers = _optimizers_of(sharded_optimizer, self.process_group)
        if reduce_buffer_size < 0:
            raise ValueError(f"reduce_buffer_size is {reduce_buffer_size}; 0 is libzero's default")
        self._broadcast_buffers = broadcast_buffers
        self._warns = warn_on_trainable_params_changed
        self._wire_dtype = "float16" if reduce_fp16 else None
        elements = min(reduce_buffer_size, sum(one.numel() for one in params_of(self._optimizers)))
        self._bucket_bytes = max(4 * elements, _LEAST_BUCKET_BYTES) if elements else 0
        devices = {param.device for param in module.parameters()}
        self.is_multi_device_module = len(devices) > 1
        self.device_type = next(iter(devices), torch.device("cpu")).type
        if sync_models_at_startup:
            copy_from_first([*module.parameters(), *module.buffers()], self.process_group)
        self._reducer = self._new_reducer()
        self._trained = self._trained_now()

    def _new_reducer(self) -> Reducer:
        return reducer_of(self._optimizers, self._wire_dtype, self._bucket_bytes)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's forward. Looks first whether parameters were frozen, added or moved."""
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
        if not before.closed:  # by another model with these optimizers
            self._reducer.take_over(before)
            before.close()
        self._trained = self._trained_now()

    def _trained_now(self) -> list[bool]:
        return [param.requires_grad for param in self._reducer.params]

    def refresh_trainable(self) -> None:
        """Look at requires_grad now, as each forward does. Local. RuntimeError: a gradient needs a
        gradient itself."""
        for optimizer in self._optimizers:
            optimizer.refresh_trainable()
        self._reducer.attach()
        self._trained = self._trained_now()

    def reduce(self) -> None:
        """Reduce what backwards within no_sync() have added up. Not needed otherwise. RuntimeError
        if no forward was made since the last reduction."""
        if not self._reducer.waiting:
            raise RuntimeError("nothing to reduce: no forward was made since the last reduction")
        self._reducer.reduce()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients add up here, on every rank its own, and buffers are not copied; the next
        backward outside reduces all of it. An exception ends it as well."""
        before, self._reducer.accumulating = self._reducer.accumulating, True
        try:
            yield
        finally:
            self._reducer.accumulating = before

    def sync_buffers(self, blocking: bool = False) -> None:
        """Copy the module's buffers from rank 0; done on return, `blocking` or not. Collective."""
        copy_from_first(self.module.buffers(), self.process_group)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zero the gradients of module and optimizers, or set them to None."""
        super().zero_grad(set_to_none)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none)

    def __getattr__(self, name: str) -> Any:
        """What this has not, the module may have."""
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
