# SPDX-License-Identifier: Apache-2.0
"""Reads DLPack capsules, which describe the memory of another library's array."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

_VERSION = (1, 0)
_READ_ONLY = 1
_HOST = (1, 3)  # ordinary and pinned memory
_GPU = (2, 13)  # ordinary and managed CUDA memory
# This value means "do not synchronize". The calls that use the memory receive a stream.
_NO_STREAM = -1

# The keys are (type code, bits).
_DTYPES = {
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
}


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class Managed(c.Structure):
    _fields_ = [("tensor", Tensor), ("ctx", c.c_void_p), ("deleter", c.c_void_p)]


class ManagedVersioned(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("ctx", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", Tensor),
    ]


@dataclass(frozen=True)
class Memory:
    """The memory that a capsule describes. `strides` are in bytes. `keep` is the capsule. The
    capsule is never consumed; it keeps the memory alive, and releases it when it is destroyed.
    `readonly` is true if the capsule forbids writes. Capsules in the old format have no flag for
    this."""

    address: int
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dtype: str
    item: int
    gpu: bool
    keep: object
    readonly: bool


def memory_of(value: Any, what: str) -> Memory:
    with _asked(value, what):
        device = int(value.__dlpack_device__()[0])
    if device not in _HOST + _GPU:
        raise ValueError(f"{what} is on DLPack device {device}; libzero supports the host and CUDA")
    arguments = {"stream": _NO_STREAM} if device in _GPU else {}
    tensor, capsule, readonly = _tensor_of(value, arguments, what)
    shape = tuple(tensor.shape[: tensor.ndim])
    item = tensor.bits * tensor.lanes // 8
    strides = (
        tuple(stride * item for stride in tensor.strides[: tensor.ndim]) if tensor.strides else None
    )
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return Memory(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        dtype or f"DLPack's type {tensor.code} of {tensor.bits} bits in {tensor.lanes} lanes",
        item,
        device in _GPU,
        capsule,
        readonly,
    )


@contextmanager
def _asked(value: Any, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each library raises different exceptions
        kind = type(value).__name__
        raise ValueError(f"{what}: {kind} does not export its memory by DLPack: {error}") from error


def _tensor_of(value: Any, arguments: dict[str, Any], what: str) -> tuple[Tensor, Any, bool]:
    """Return the tensor in a capsule of `value`, the capsule, and whether the tensor is
    read-only."""
    with _asked(value, what):
        try:
            capsule = value.__dlpack__(max_version=_VERSION, **arguments)
        except TypeError:  # the library does not know max_version
            capsule = value.__dlpack__(**arguments)
    api = c.pythonapi
    api.PyCapsule_IsValid.argtypes = [c.py_object, c.c_char_p]
    api.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
    api.PyCapsule_GetPointer.restype = c.c_void_p
    if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        address = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        versioned = ManagedVersioned.from_address(address)
        if versioned.major != _VERSION[0]:
            raise ValueError(
                f"{what} uses DLPack {versioned.major}; libzero supports {_VERSION[0]}"
            )
        return versioned.tensor, capsule, bool(versioned.flags & _READ_ONLY)
    if not api.PyCapsule_IsValid(capsule, b"dltensor"):
        raise TypeError(f"{what}: {type(value).__name__}.__dlpack__() returned no DLPack tensor")
    managed = Managed.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    return managed.tensor, capsule, False
