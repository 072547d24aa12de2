# SPDX-License-Identifier: Apache-2.0
"""Ownership of parameters, computed on any machine, and memory laid out so that nothing is
copied."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from . import _abi, _params, _values, _zero_h
from ._abi import lib
from ._buffers import ArenaMemory
from ._custom import Rule
from ._params import Param
from .comm import Comm
from .typing import Dtype, FloatingDtype, Master, Partition, Settings, Several, Shape

if TYPE_CHECKING:
    from typing_extensions import Unpack

OWNER_SPLIT = _zero_h.OWNER_SPLIT

# Name to shape, or Params with a shape.
Shapes = Union[Mapping[str, Shape], Several[Param]]
# One for all, or name to dtype.
Dtypes = Optional[Union[Dtype, Mapping[str, Dtype]]]
GradDtypes = Optional[Union[FloatingDtype, Mapping[str, FloatingDtype]]]


@dataclass(frozen=True)
class Plan:
    """The location and the owner of each parameter, in parameter order.

    offsets           the byte at which each parameter begins in an arena
    owners            the rank that owns each parameter; OWNER_SPLIT (-1) if several ranks own parts
                      of it
    elements          the number of elements that each rank owns
    arena_bytes       size of an arena with that layout
    state_bytes       optimizer state of the rank with the most
    grad_offsets      the byte at which each gradient begins in its arena; the layout differs if
                      dtypes do
    grad_arena_bytes  size of the gradients' arena
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
    """Return the layout and ownership that an Optimizer with these arguments would choose for
    parameters of these shapes. No ranks are needed.

    `shapes` maps names to shapes, or lists Params with a shape. `dtype`, one for all or by name, is
    the dtype of parameters that do not give theirs (float32). `grad_dtype` is the dtype of their
    gradients (the parameter's).

    The layout works for any comm: if whole tensors have one owner, the parts of all owners are
    padded to the size of the longest, because that is what ranks exchange. If `comm` is given, it
    has `world` ranks and the layout is for it alone. It may need less memory: on one host no parts
    are exchanged. ArgumentError: an option or a setting out of range.

    >>> plan = partition_plan({"w": (1000, 100), "b": (100,)}, world=4)
    >>> plan.elements, plan.state_bytes
    ((25588, 25360, 24576, 24576), 204800)
    """
    prepared = [_params.prepare(one, gpu=True) for one in _shaped(shapes, dtype, grad_dtype)]
    offsets, grad_offsets = (c.c_int64 * len(prepared))(), (c.c_int64 * len(prepared))()
    owners = (c.c_int32 * len(prepared))()
    world = _values.int32(world, "world")
    elements = (c.c_int64 * max(world, 0))()
    plan = _abi.create(_zero_h.Plan)
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

# How many parameters an Allocation shows.
_SHOWN = 8


@dataclass(frozen=True)
class Allocation:
    """The result of allocate(): `data` and `grads`, arrays in arenas by name, in the given shapes,
    and `params`, the Params to register them with."""

    data: dict[str, Any]
    grads: dict[str, Any]
    params: list[Param]

    def __repr__(self) -> str:
        shown = [f"{one.name} {one.dtype} {one.shape}" for one in self.params[:_SHOWN]]
        if len(self.params) > _SHOWN:
            shown.append(f"... {len(self.params) - _SHOWN} more")
        return f"<Allocation of {', '.join(shown)}>"


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
    """Allocate parameters and gradients in arenas, laid out so that an Optimizer with these
    arguments reduces and updates them in place. Parameters are in a shared arena, or with several
    instances in one arena per rank; gradients are in one arena per rank. Parameters start as zeros:
    one rank writes them, and Optimizer.broadcast_params then copies them to the others. Collective.

        memory = allocate(comm, {"w": (784, 10), "b": (10,)}, dtype="bfloat16")
        optimizer.register(memory.params)

    partition_plan describes `dtype` and `grad_dtype`; the Params carry them. Arrays of bfloat16 are
    uint16. On a GPU, arrays are objects that other packages can read (see Comm.arena).
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
                shape=of.shape,
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
    return comm._arena_memory(max(size, 64), _zero_h.MEMORIES[kind])


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
    """Return the dtype that the caller gave for one parameter; None if its memory may report it."""
    if isinstance(dtypes, Mapping):
        return dtypes.get(name)
    return dtypes if memory is None else None
