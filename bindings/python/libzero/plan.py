# SPDX-License-Identifier: Apache-2.0
"""Computes the owners of parameters on any machine, and allocates memory whose layout avoids
copies."""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from . import _abi, _custom, _params, _values, _zero_h
from ._abi import lib
from ._buffers import ArenaMemory
from ._custom import Rule
from ._params import Param
from .comm import Comm
from .typing import Dtype, FloatingDtype, Master, Partition, Settings, Several, Shape, StateDtype

if TYPE_CHECKING:
    from typing_extensions import Unpack

OWNER_SPLIT = _zero_h.OWNER_SPLIT

# A mapping of names to shapes, or a sequence of Param with shapes.
Shapes = Union[Mapping[str, Shape], Several[Param]]
# One dtype for all parameters, or a mapping of names to dtypes.
Dtypes = Optional[Union[Dtype, Mapping[str, Dtype]]]
GradDtypes = Optional[Union[FloatingDtype, Mapping[str, FloatingDtype]]]


@dataclass(frozen=True)
class Plan:
    """The location and the owner of each parameter, in the order of the parameters.

    offsets           the byte offset of each parameter in an arena
    owners            the rank that owns each parameter, or OWNER_SPLIT (-1) if several ranks own
                      parts of it
    elements          the number of elements that each rank owns
    arena_bytes       the size of an arena with that layout
    state_bytes       the size of the optimizer state on the rank with the largest state
    grad_offsets      the byte offset of each gradient in a separate arena, which differs from
                      `offsets` if the dtypes differ
    grad_arena_bytes  the size of the arena of gradients
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
    groups: Sequence[Mapping[str, Any]] = (),
    **settings: Unpack[Settings],
) -> Plan:
    """Return the layout and the owners that an Optimizer with these arguments would choose for
    parameters of these shapes. No ranks are needed.

    `shapes` maps names to shapes, or is a list of Param with shapes. `dtype` is the dtype of
    parameters that do not specify their dtype, either one value for all parameters or a mapping by
    name. The default is float32. `grad_dtype` is the dtype of their gradients. The default is the
    dtype of the parameter.

    The layout works for any comm. If every tensor has a single owner, the part of each owner is
    padded to the size of the largest part, because ranks exchange parts of equal size. If `comm` is
    given, it must have `world` ranks, and the layout is valid only for that comm. Such a layout may
    need less memory, because ranks on one host do not exchange parts.

    `groups` describes consecutive groups. Each entry has the number of parameters as "count", and
    the other arguments of Optimizer.register, for example {"count": 2, "optimizer": "sgd"}. By
    default, all parameters are one group. Raises ArgumentError if an option or a setting is out of
    range.

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
    inherited = {**_custom.defaults_of(optimizer), **settings}
    described = [_group_of(inherited, **group) for group in groups]
    ends = itertools.accumulate(_values.int64(group["count"], "count") for group in groups)
    plan.groups = (_zero_h.GroupOptions * len(groups))(*described)
    plan.group_ends = (c.c_size_t * len(groups))(*ends)
    plan.group_count = len(groups)
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


def _group_of(
    inherited: Mapping[str, Any],
    *,
    count: int,
    optimizer: Rule | None = None,
    state_dtype: StateDtype = "full",
    **settings: Any,
) -> Any:
    return _params.c_group(inherited, settings, optimizer, state_dtype)


# The number of parameters that the repr of an Allocation shows.
_SHOWN = 8


@dataclass(frozen=True)
class Allocation:
    """The result of allocate(). `data` and `grads` map names to arrays in arenas, which have the
    given shapes. `params` is the list of Param with which to register them."""

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
    """Allocate parameters and gradients in arenas, with a layout that allows an Optimizer with
    these arguments to reduce and update them in place. Parameters are in a shared arena, or in one
    arena per rank if there are several instances. Gradients are in one arena per rank. Parameters
    are zeros at first. One rank must write their values, and Optimizer.broadcast_params then copies
    them to the other ranks. Collective.

        memory = allocate(comm, {"w": (784, 10), "b": (10,)}, dtype="bfloat16")
        optimizer.register(memory.params)

    partition_plan describes `dtype` and `grad_dtype`, which are also stored in each Param. Arrays
    of bfloat16 have the dtype uint16. On a GPU, arrays are objects that other packages can read
    (see Comm.arena).
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
    # A model without elements also needs an arena.
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
    """Return the dtype that the caller gave for one parameter, or None if the memory may report
    it."""
    if isinstance(dtypes, Mapping):
        return dtypes.get(name)
    return dtypes if memory is None else None
