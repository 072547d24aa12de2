# SPDX-License-Identifier: Apache-2.0
"""Who would own what, without any rank; and memory laid out so that nothing is copied."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from . import _abi, _params, _structs, _values
from ._abi import lib
from ._buffers import ArenaMemory
from ._custom import Rule
from ._params import Param
from .comm import Comm
from .typing import Dtype, FloatingDtype, Master, Partition, Settings, Several, Shape

if TYPE_CHECKING:
    from typing_extensions import Unpack

OWNER_SPLIT = _abi.OWNER_SPLIT

# Name to shape, or Params with a shape.
Shapes = Union[Mapping[str, Shape], Several[Param]]
# One for all, or name to dtype.
Dtypes = Optional[Union[Dtype, Mapping[str, Dtype]]]
GradDtypes = Optional[Union[FloatingDtype, Mapping[str, FloatingDtype]]]


@dataclass(frozen=True)
class Plan:
    """Where parameters lie and who owns them, in order of the parameters.

    offsets           the byte at which each parameter begins in an arena
    owners            each parameter's rank; OWNER_SPLIT (-1) where several own parts of it
    elements          elements that each rank owns
    arena_bytes       size of an arena with that layout
    state_bytes       optimizer state of the busiest rank
    grad_offsets      the same for gradients, whose layout differs where dtypes do
    grad_arena_bytes  size of their arena
    """

    offsets: tuple[int, ...]
    owners: tuple[int, ...]
    elements: tuple[int, ...]
    arena_bytes: int
    state_bytes: int
    grad_offsets: tuple[int, ...]
    grad_arena_bytes: int


def partition_plan(
    shapes: Shapes,
    world: int,
    optimizer: Rule = "adamw",
    partition: Partition = "even",
    *,
    bucket_bytes: int = 0,
    dtype: Dtypes = None,
    grad_dtype: GradDtypes = None,
    master: Master = "float32",
    comm: Comm | None = None,
    instances: int = 0,
    **settings: Unpack[Settings],
) -> Plan:
    """What an Optimizer of these arguments would do with parameters of these shapes, without any
    rank. `shapes`: name to shape, or Params with a shape. `dtype`, one for all or by name, is for
    parameters that do not say theirs (float32), `grad_dtype` for their gradients (that of the
    parameter). The layout is for any comm: if whole tensors have one owner, each owner's part has
    the size of the longest, as what travels has. With `comm`, of `world` ranks, it is for that
    comm, which may need less: on one host nothing travels. ArgumentError: an option or a setting
    out of range.

    >>> plan = partition_plan({"w": (1000, 100), "b": (100,)}, world=4)
    >>> plan.elements, plan.state_bytes
    ((25588, 25360, 24576, 24576), 204800)
    """
    prepared = [_params.prepare(one, gpu=True) for one in _shaped(shapes, dtype, grad_dtype)]
    offsets, grad_offsets = (c.c_int64 * len(prepared))(), (c.c_int64 * len(prepared))()
    owners = (c.c_int32 * len(prepared))()
    world = _values.int32(world, "world")
    elements = (c.c_int64 * max(world, 0))()
    plan = _abi.create(_structs.Plan)
    plan.offsets, plan.grad_offsets = offsets, grad_offsets
    plan.owners, plan.elements = owners, elements
    if comm is not None:
        plan.comm = comm._handle.open()
    options = _params.c_options(
        optimizer=optimizer,
        partition=partition,
        bucket_bytes=bucket_bytes,
        master=master,
        instances=instances,
        settings=settings,
    )
    lib().zero_partition_plan(
        _params.c_params(prepared), len(prepared), world, c.byref(options), c.byref(plan)
    )
    return Plan(
        tuple(offsets),
        tuple(owners),
        tuple(elements),
        plan.arena_bytes,
        plan.state_bytes,
        tuple(grad_offsets),
        plan.grad_arena_bytes,
    )


@dataclass(frozen=True)
class Allocation:
    """Arrays in arenas, `data` and `grads` by name, in the shapes that were given, and `params`,
    the Params to register them with."""

    data: dict[str, Any]
    grads: dict[str, Any]
    params: list[Param]


def allocate(
    comm: Comm,
    shapes: Shapes,
    optimizer: Rule = "adamw",
    partition: Partition = "even",
    *,
    bucket_bytes: int = 0,
    dtype: Dtypes = None,
    grad_dtype: GradDtypes = None,
    instances: int = 0,
) -> Allocation:
    """Parameters in a shared arena, or with several instances in one a rank, and gradients in one a
    rank, laid out as an Optimizer with these arguments wants them: this comm reduces and updates
    them in place. Parameters start as zeros; one rank writes them, then Optimizer.broadcast_params
    tells the others. Collective.

        memory = allocate(comm, {"w": (784, 10), "b": (10,)}, dtype="bfloat16")
        optimizer.register(memory.params)

    `dtype` and `grad_dtype` are as in partition_plan; the Params carry them. Arrays of bfloat16 are
    uint16, and those of a GPU something that other packages read (see Comm.arena).
    """
    given = _shaped(shapes, dtype, grad_dtype)
    plan = partition_plan(
        given,
        comm.world,
        optimizer,
        partition,
        bucket_bytes=bucket_bytes,
        comm=comm,
        instances=instances,
    )
    weights = _arena(comm, plan.arena_bytes, "per_rank" if instances > 1 else "shared")
    own = _arena(comm, plan.grad_arena_bytes, "per_rank")
    data, grads, params = {}, {}, []
    for param, offset, grad_offset in zip(given, plan.offsets, plan.grad_offsets):
        of = _params.prepare(param, gpu=True)
        data[param.name] = weights.view(offset, of.shape, of.dtype)
        grads[param.name] = own.view(grad_offset, of.shape, of.grad_dtype)
        params.append(
            replace(
                param,
                data=data[param.name],
                grad=grads[param.name],
                padded=True,
                dtype=of.dtype,
                grad_dtype=of.grad_dtype,
            )
        )
    return Allocation(data, grads, params)


def _arena(comm: Comm, size: int, kind: str) -> ArenaMemory:
    # A model of no elements has arenas, too.
    return comm._arena_memory(max(size, 64), _abi.MEMORIES[kind])


def _shaped(shapes: Shapes, dtype: Dtypes, grad_dtype: GradDtypes) -> list[Param]:
    if isinstance(shapes, Mapping):
        _values.refuse_nested(shapes)
        params = [Param(name, shape=shape) for name, shape in shapes.items()]
    else:
        params = list(shapes)
    names = {param.name for param in params}
    for given in (dtype, grad_dtype):
        if isinstance(given, Mapping):
            _params.refuse_unknown(given, names)
    return [
        replace(
            param,
            dtype=param.dtype or _of(dtype, param.name, param.data),
            grad_dtype=param.grad_dtype or _of(grad_dtype, param.name, param.grad),
        )
        for param in params
    ]


W = TypeVar("W", bound=str)


def _of(dtypes: Optional[Union[W, Mapping[str, W]]], name: str, memory: Any) -> Optional[W]:
    """What the caller says about one parameter; nothing where its memory may say it."""
    if isinstance(dtypes, Mapping):
        return dtypes.get(name)
    return dtypes if memory is None else None
