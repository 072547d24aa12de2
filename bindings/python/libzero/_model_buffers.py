# SPDX-License-Identifier: Apache-2.0
"""Buffers of the model, and their conversion to C structs."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi, _values, _zero_h
from ._buffers import Buffer, typed_of
from .typing import Array, Dtype, Several


@dataclass
class ModelBuffer:
    """A tensor of the model that is not trained. `name` is unique among parameters and buffers.
    `data` is an array of any shape (see Optimizer). `dtype` is needed only if the array does not
    report its dtype. It is "float32" (default), "float64", "int32", "int64", "bfloat16" or
    "float16"."""

    name: str
    data: Array
    dtype: Optional[Dtype] = None


# A mapping of names to arrays, or a sequence of ModelBuffer, (name, data) or (name, data, dtype).
One = Union[ModelBuffer, tuple[str, Array], tuple[str, Array, Dtype]]
ModelBuffers = Union[Mapping[str, Array], Several[One]]


def buffers_of(buffers: ModelBuffers) -> list[ModelBuffer]:
    if isinstance(buffers, Mapping):
        _values.refuse_nested(buffers)
        return [ModelBuffer(name, data) for name, data in buffers.items()]
    return [
        one if isinstance(one, ModelBuffer) else ModelBuffer(*_values.named(one, "buffer"))
        for one in buffers
    ]


def memory_of(buffer: ModelBuffer, *, gpu: bool) -> Buffer:
    what = f"buffer {buffer.name!r}"
    if buffer.dtype is not None:
        _values.check_word(buffer.dtype, f"{what}: dtype", _zero_h.DTYPES)
    untyped = buffer.dtype or "float32"
    return typed_of(buffer.data, what, buffer.dtype, untyped, _zero_h.DTYPES, gpu=gpu)


def c_buffers(buffers: Sequence[ModelBuffer], memory: Sequence[Buffer]) -> Any:
    """Return the array of C structs. It keeps the names and shapes alive."""
    array = (_zero_h.Buffer * len(buffers))()
    default = _abi.create(_zero_h.Buffer)
    for entry, buffer, found in zip(array, buffers, memory):
        c.pointer(entry)[0] = default
        entry.name = _values.text(buffer.name, "buffer")
        entry.data = found.address or None
        what = f"buffer {buffer.name!r}: dimension"
        dimensions = [_values.int64(size, what) for size in found.shape]
        entry.shape = (c.c_int64 * len(dimensions))(*dimensions)
        entry.ndim = len(dimensions)
        entry.dtype = _zero_h.DTYPES[found.dtype]
    return array
