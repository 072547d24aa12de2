# SPDX-License-Identifier: Apache-2.0
"""Parameters and gradients in arenas, laid out so that libzero copies neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional, Union

import torch

from .. import Comm, CustomOptimizer, partition_plan
from .._abi import MEMORIES
from .._buffers import ArenaMemory
from ._tensors import Bound


class Homes:
    """Where parameters and gradients are from now on: parameters in one copy for all ranks of a
    host if `shared`, else in one a rank. Collective. The arenas live as long as tensors in them
    do, also behind this optimizer.

    `data` has each parameter's place, in libzero's order of dimensions; `grads` has, for each, a
    tensor of its shape and memory format, or None: integers have no gradient, and without
    `with_grads` none has a place. `undo` gives parameters their memory of before back.
    """

    def __init__(
        self,
        comm: Comm,
        rule: Union[str, CustomOptimizer],
        bound: Sequence[Bound],
        options: Mapping[str, Any],
        *,
        shared: bool = False,
        with_grads: bool = True,
    ) -> None:
        """`options`: those of partition_plan."""
        shapes = [tuple(one.view().shape) for one in bound]
        told = [replace(one.register(), data=None, shape=size) for one, size in zip(bound, shapes)]
        plan = partition_plan(told, comm.world, rule, **options)
        data = _arena(comm, plan.arena_bytes, "shared" if shared else "per_rank")
        own = _arena(comm, plan.grad_arena_bytes, "per_rank") if with_grads else None
        self._before = [(one, one.param.data) for one in bound]
        self.data: list[torch.Tensor] = []
        self.grads: list[Optional[torch.Tensor]] = []
        for one, size, offset, grad_offset in zip(bound, shapes, plan.offsets, plan.grad_offsets):
            new = _tensor(data, offset, size, one)
            # What ranks share, one of them writes. No other reads it before the seal.
            if not shared or comm.rank == 0:
                new.copy_(one.view())
            self.data.append(new)
            one.param.data = one.out_of_order(new)
            one.address, one.strides = one.param.data_ptr(), one.param.stride()
            grad = _tensor(own, grad_offset, size, one) if own and one.trainable else None
            self.grads.append(None if grad is None else one.out_of_order(grad))

    def undo(self) -> None:
        for one, data in self._before:
            one.param.data = data
            one.address, one.strides = data.data_ptr(), data.stride()


def _arena(comm: Comm, size: int, kind: str) -> ArenaMemory:
    return comm._arena_memory(max(size, 64), MEMORIES[kind])


def _tensor(arena: ArenaMemory, offset: int, shape: tuple[int, ...], one: Bound) -> torch.Tensor:
    """A tensor with a storage of its own, so that saving one parameter does not save all."""
    dtype = one.view().dtype
    # numpy has no bfloat16, and old torches know no uint16: any other type of 16 bits will do.
    name = "float16" if dtype == torch.bfloat16 else str(dtype).rpartition(".")[2]
    array = arena.view(offset, shape, name)
    if one.device.type == "cpu":
        return torch.from_numpy(array).view(dtype)
    return torch.as_tensor(array, device=one.device).view(dtype)
