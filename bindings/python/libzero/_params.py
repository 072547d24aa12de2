# SPDX-License-Identifier: Apache-2.0
"""Parameters and optimizer options in Python's words, and their way into the C structs."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi
from ._buffers import Buffer, Shape, float32_of, shape_of


@dataclass
class Param:
    """A parameter: its memory (see Optimizer), or its shape where the memory comes later.

    `order` is the position in the forward pass (default: that of registration), `owner` its rank
    with partition "manual". `padded` says that data and grad may be read and written up to the next
    multiple of 64 bytes behind their end, as allocate() lays them out.
    """

    name: str
    data: Any = None
    grad: Any = None
    shape: Optional[Shape] = None
    order: Optional[int] = None
    owner: int = 0
    padded: bool = False


# Name to array, Params, or (name, data) and (name, data, grad).
Params = Union[Mapping[str, Any], Iterable[Union[Param, tuple[Any, ...]]]]


@dataclass(frozen=True)
class Prepared:
    """A parameter that was looked at: what goes to C, and what keeps its memory alive."""

    param: Param
    shape: tuple[int, ...]
    data: Optional[Buffer]
    grad: Optional[Buffer]


def params_of(params: Params) -> list[Param]:
    if isinstance(params, Mapping):
        return [Param(name, data) for name, data in params.items()]
    return [param if isinstance(param, Param) else Param(*param) for param in params]


def prepare(param: Param) -> Prepared:
    data = None if param.data is None else float32_of(param.data, f"parameter {param.name!r}")
    if data is not None:
        shape = data.shape
        if param.shape is not None and shape_of(param.shape) != shape:
            raise ValueError(
                f"parameter {param.name!r} has shape {shape}, and {shape_of(param.shape)} was given"
            )
    elif param.shape is None:
        raise ValueError(f"parameter {param.name!r} has neither data nor a shape")
    else:
        shape = shape_of(param.shape)
    return Prepared(param, shape, data, grad_of(param.grad, param.name, shape))


def grad_of(value: Any, name: str, shape: tuple[int, ...]) -> Optional[Buffer]:
    return memory_of(value, f"gradient of {name!r}", shape)


def memory_of(value: Any, what: str, shape: tuple[int, ...]) -> Optional[Buffer]:
    """The memory of `value`, which must have the elements of `shape`; None is none."""
    if value is None:
        return None
    buffer = float32_of(value, what)
    # The same number of elements is not enough: a transposed gradient would train nonsense.
    if buffer.shape != shape:
        raise ValueError(f"{what} has shape {buffer.shape}, the parameter has {shape}")
    return buffer


def c_params(params: Sequence[Prepared]) -> Any:
    """The array for C. It keeps names and shapes; the memory is kept by `params`."""
    array = (_abi.Param * len(params))()
    default = _abi.create(_abi.Param)
    for entry, prepared in zip(array, params):
        param = prepared.param
        c.pointer(entry)[0] = default
        entry.name = _abi.text(param.name, "parameter")
        entry.data = address(prepared.data)
        entry.grad = address(prepared.grad)
        what = f"parameter {param.name!r}:"
        dimensions = [_abi.int64(size, f"{what} dimension") for size in prepared.shape]
        entry.shape = (c.c_int64 * len(dimensions))(*dimensions)
        entry.ndim = len(dimensions)
        entry.owner = _abi.int32(param.owner, f"{what} owner")
        if param.padded:
            entry.flags |= _abi.PARAM_PADDED
        if param.order is not None:
            entry.flags |= _abi.PARAM_ORDER
            entry.order = _abi.int64(param.order, f"{what} order")
    return array


# Where a parameter of no elements may say that it is: not NULL, which would mean that it is absent.
_nowhere = (c.c_char * 64)()


def address(buffer: Optional[Buffer]) -> Optional[int]:
    if buffer is None:
        return None
    return buffer.address or c.addressof(_nowhere)


def pointers(buffers: Sequence[Optional[Buffer]]) -> Any:
    return (c.c_void_p * len(buffers))(*[address(buffer) for buffer in buffers])


def c_options(
    *,
    optimizer: str,
    partition: str,
    bucket_bytes: int,
    max_grad_norm: float = 0.0,
    grad_norm_type: float = 0.0,
    nonfinite: str = "ignore",
    threads: int = 0,
    settings: Mapping[str, float],
) -> Any:
    options = _abi.create(_abi.Options)
    options.optimizer = _abi.choice(_abi.OPTIMIZERS, optimizer, "optimizer")
    options.partition = _abi.choice(_abi.PARTITIONS, partition, "partition")
    options.bucket_bytes = _abi.int64(bucket_bytes, "bucket_bytes")
    options.max_grad_norm = _abi.double(max_grad_norm, "max_grad_norm")
    options.grad_norm_type = _abi.double(grad_norm_type, "grad_norm_type")
    options.nonfinite = _abi.choice(_abi.NONFINITES, nonfinite, "nonfinite")
    options.threads = _abi.int32(threads, "threads")
    options.names, options.values, options.setting_count = _abi.settings(settings)
    return options
