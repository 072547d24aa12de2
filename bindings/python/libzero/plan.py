# SPDX-License-Identifier: Apache-2.0
"""Who would own what, without any rank; and memory laid out so that nothing is copied."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Union

from . import _abi, _params
from ._abi import lib
from ._buffers import ArenaMemory, Shape
from ._params import Param
from .comm import Comm

OWNER_SPLIT = _abi.OWNER_SPLIT

# Name to shape, or Params with a shape.
Shapes = Union[Mapping[str, Shape], Iterable[Param]]


@dataclass(frozen=True)
class Plan:
    """Byte offset and owner of each parameter (OWNER_SPLIT: several ranks), owned elements of each
    rank, the size of an arena with that layout, and the state bytes of the busiest rank."""

    offsets: tuple[int, ...]
    owners: tuple[int, ...]
    elements: tuple[int, ...]
    arena_bytes: int
    state_bytes: int


def partition_plan(
    shapes: Shapes,
    world: int,
    optimizer: str = "adamw",
    partition: str = "even",
    *,
    bucket_bytes: int = 0,
    **settings: float,
) -> Plan:
    """What an Optimizer of these arguments would do with parameters of these shapes."""
    prepared = [_params.prepare(param) for param in _shaped(shapes)]
    offsets = (c.c_int64 * len(prepared))()
    owners = (c.c_int32 * len(prepared))()
    world = _abi.int32(world, "world")
    elements = (c.c_int64 * max(world, 0))()
    plan = _abi.create(_abi.Plan)
    plan.offsets, plan.owners, plan.elements = offsets, owners, elements
    options = _params.c_options(
        optimizer=optimizer, partition=partition, bucket_bytes=bucket_bytes, settings=settings
    )
    lib().zero_partition_plan(
        _params.c_params(prepared), len(prepared), world, c.byref(options), c.byref(plan)
    )
    return Plan(tuple(offsets), tuple(owners), tuple(elements), plan.arena_bytes, plan.state_bytes)


@dataclass(frozen=True)
class Allocation:
    """Arrays in arenas, by name, and the Params to register them with."""

    data: dict[str, Any]
    grads: dict[str, Any]
    params: list[Param]


def allocate(
    comm: Comm,
    shapes: Shapes,
    optimizer: str = "adamw",
    partition: str = "even",
    *,
    bucket_bytes: int = 0,
) -> Allocation:
    """Parameters in a shared arena and gradients in one a rank, laid out as an Optimizer with these
    arguments wants them: every comm reduces and updates them in place. Parameters start as zeros;
    one rank writes them, then Optimizer.broadcast_params tells the others. Collective.

        memory = allocate(comm, {"w": (784, 10), "b": (10,)})
        optimizer.register(memory.params)
    """
    given = _shaped(shapes)
    plan = partition_plan(given, comm.world, optimizer, partition, bucket_bytes=bucket_bytes)
    size = max(plan.arena_bytes, 64)
    shared = ArenaMemory(comm._handle.open(), size, _abi.MEMORIES["shared"])
    own = ArenaMemory(comm._handle.open(), size, _abi.MEMORIES["per_rank"])
    data, grads, params = {}, {}, []
    for param, offset in zip(given, plan.offsets):
        shape = _params.prepare(param).shape
        data[param.name] = shared.view(offset, shape, "float32")
        grads[param.name] = own.view(offset, shape, "float32")
        params.append(replace(param, data=data[param.name], grad=grads[param.name], padded=True))
    return Allocation(data, grads, params)


def _shaped(shapes: Shapes) -> list[Param]:
    if isinstance(shapes, Mapping):
        return [Param(name, shape=shape) for name, shape in shapes.items()]
    return list(shapes)
