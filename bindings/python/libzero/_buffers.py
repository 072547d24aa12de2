# SPDX-License-Identifier: Apache-2.0
"""Converts arrays of any kind to (address, shape, dtype), and arenas to arrays."""

from __future__ import annotations

import ctypes as c
import math
import numbers
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from . import _dlpack
from ._abi import lib
from ._dtypes import (
    ARRAY_TYPES,
    BUFFER_KINDS,
    FLOATING,
    HALF_FORMAT,
    ITEM_BYTES,
    VIEW_FORMATS,
    typestr_of,
)
from ._handles import CommHandle
from ._values import int64
from ._zero_h import DTYPES
from .typing import Shape


@dataclass(frozen=True)
class Buffer:
    """Dense memory that `keep` keeps alive. `gpu` is true if the owner of the memory reports that
    it is on a GPU. `readonly` is true if the memory must not be written to."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    keep: object
    gpu: bool = False
    readonly: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def shape_of(shape: Shape) -> tuple[int, ...]:
    dimensions = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
    if any(size < 0 for size in dimensions):
        raise ValueError(f"shape {dimensions} has a negative dimension")
    return dimensions


def buffer_of(
    value: Any, what: str, untyped: str = "float32", *, gpu: bool = False, written: bool = True
) -> Buffer:
    """Return the memory of `value`. `value` is a numpy array, another object with the numpy or CUDA
    array interface, a torch tensor, a DLPack array, an object with the buffer protocol (ctypes,
    array, memoryview), or (address, shape). Memory that is given by its address has the dtype
    `untyped`. Raises ValueError for GPU memory unless `gpu` is set. If `written` is set, it also
    raises ValueError for read-only memory, and TypeError for arrays of a library that promises
    immutability."""
    # The array interface of a numpy scalar describes a temporary.
    if isinstance(value, numbers.Number):
        raise TypeError(f"{what} is a number; an array is needed")
    buffer = _buffer_of(value, what, untyped)
    if buffer.gpu and not gpu:
        raise ValueError(f"{what} is on a GPU; host memory is needed")
    if written:
        _refuse_immutable(value, what)
    if buffer.readonly and written:
        raise ValueError(f"{what} is read-only")
    if buffer.readonly and _lies_in_arena(value):
        raise ValueError(
            f"{what} is a read-only view of an arena, where ranks sum gradients in place; pass the "
            "array that it is a view of, or a copy"
        )
    return buffer


# Libraries whose arrays never change, by the packages that define their types. The interfaces
# through which they expose memory do not always mark it read-only.
_IMMUTABLE = {
    "jax": "JAX",
    "jaxlib": "JAX",
    "flax": "JAX",
    "tensorflow": "TensorFlow",
    "pyarrow": "Arrow",
}


def _package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _refuse_immutable(value: Any, what: str) -> None:
    for kind in type(value).__mro__:
        library = _IMMUTABLE.get(_package_of(kind))
        if library is not None:
            raise TypeError(
                f"{what} is an array of {library}, which promises that its arrays never change; "
                "give libzero separate memory (libzero.allocate), and after each step make a new "
                "array from it (docs/frameworks.md)"
            )


def _lies_in_arena(value: Any) -> bool:
    """Return whether `value` is a view of an ArenaMemory. Arrays and memoryviews report the object
    that they view."""
    while value is not None:
        if isinstance(getattr(value, "owner", None), ArenaMemory):
            return True
        value = getattr(value, "base", getattr(value, "obj", None))
    return False


def _buffer_of(value: Any, what: str, untyped: str) -> Buffer:
    if hasattr(value, "data_ptr"):
        return _from_tensor(value, what)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_array(value, value.__cuda_array_interface__, what, gpu=True)
    if hasattr(value, "__array_interface__"):
        return _from_array(value, value.__array_interface__, what, gpu=False)
    if isinstance(value, tuple):
        return _from_address(value, what, untyped)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, what)
    return _from_protocol(value, what)


def typed_of(
    value: Any,
    what: str,
    wanted: Optional[str],
    untyped: str,
    known: Mapping[str, int] = FLOATING,
    *,
    gpu: bool = False,
    written: bool = True,
) -> Buffer:
    """Return memory whose dtype is one of `known`, or is `wanted` if that is not None. Memory that
    does not report its dtype gets the dtype `untyped`. The dtype uint16 only means that elements
    have 16 bits. buffer_of describes `gpu` and `written`."""
    buffer = buffer_of(value, what, untyped, gpu=gpu, written=written)
    if buffer.dtype == "uint16" and ITEM_BYTES[untyped] == ITEM_BYTES["uint16"]:
        buffer = replace(buffer, dtype=untyped)
    if buffer.dtype not in known and not (buffer.dtype == wanted and wanted in DTYPES):
        hint = "; pass dtype to say which 16-bit type it is" if buffer.dtype == "uint16" else ""
        if buffer.dtype[0] in ">!":
            hint = "; its byte order is not this machine's: pass a copy in native order"
        raise TypeError(f"{what} is {buffer.dtype}; expected one of {', '.join(known)}{hint}")
    if wanted is not None and buffer.dtype != wanted:
        raise TypeError(f"{what} is {buffer.dtype}; {wanted} is needed")
    return buffer


def _dense(shape: tuple[int, ...], strides: Sequence[int], item: int) -> bool:
    """Return whether `strides` are in C order. A dimension of length 0 or 1 may have any stride."""
    if 0 in shape:
        return True
    expected = item
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _not_dense(what: str) -> ValueError:
    return ValueError(f"{what} is not contiguous (C order); pass a copy that is")


def _from_tensor(value: Any, what: str) -> Buffer:
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"{what} is on device {device!r}; libzero supports 'cpu' and 'cuda'")
    shape = tuple(int(size) for size in value.shape)
    dtype = str(value.dtype).rpartition(".")[2]
    if not value.is_contiguous():
        raise _not_dense(what)
    item = int(value.element_size())
    size, gpu = math.prod(shape) * item, device == "cuda"
    return Buffer(int(value.data_ptr()), shape, dtype, size, value, gpu)


def _from_array(value: Any, interface: Mapping[str, Any], what: str, gpu: bool) -> Buffer:
    address, readonly = interface["data"]
    if interface.get("mask") is not None:
        raise ValueError(f"{what} has a mask")
    typestr = interface["typestr"]
    shape, item = tuple(interface["shape"]), int(typestr[2:])
    strides = interface.get("strides")
    if strides is not None and not _dense(shape, strides, item):
        raise _not_dense(what)
    # ">" marks big-endian values.
    dtype = typestr if typestr[0] == ">" else ARRAY_TYPES.get(typestr[1:], typestr)
    # numpy reports an element of ml_dtypes as two raw bytes. Only the dtype has the name.
    if item == 2 and getattr(getattr(value, "dtype", None), "name", "") == "bfloat16":
        dtype = "bfloat16"
    return Buffer(address, shape, dtype, math.prod(shape) * item, value, gpu, bool(readonly))


def _from_dlpack(value: Any, what: str) -> Buffer:
    it = _dlpack.memory_of(value, what)
    if it.strides is not None and not _dense(it.shape, it.strides, it.item):
        raise _not_dense(what)
    size = math.prod(it.shape) * it.item
    return Buffer(it.address, it.shape, it.dtype, size, it.keep, it.gpu, it.readonly)


def _from_address(value: tuple[Any, ...], what: str, dtype: str) -> Buffer:
    if len(value) != 2 or not isinstance(value[0], int):
        raise TypeError(f"{what}: a tuple must be (address, shape), not {value!r}")
    address, shape = value[0], shape_of(value[1])
    elements = math.prod(shape)
    if address <= 0 and elements:
        raise ValueError(f"{what}: address {address} is not valid")
    return Buffer(address, shape, dtype, elements * ITEM_BYTES[dtype], None)


def _from_protocol(value: Any, what: str) -> Buffer:
    try:
        view = memoryview(value)
    except TypeError:
        of_keras = _package_of(type(value)) in ("keras", "tensorflow")
        hint = "; for variables and IndexedSlices see docs/frameworks.md" if of_keras else ""
        raise TypeError(
            f"{what}: {type(value).__name__} is neither an array, nor a tensor, nor a buffer, nor "
            f"(address, shape), and does not support DLPack{hint}"
        ) from None
    if not view.c_contiguous:
        raise _not_dense(what)
    code = view.format.lstrip("@=<")
    kind = BUFFER_KINDS.get(code, code)
    dtype = ARRAY_TYPES.get(f"{kind}{view.itemsize}", view.format)
    shape = tuple(view.shape or ())
    address = _address_of(view) if view.nbytes else 0
    # The view keeps the exporter locked, so that, for example, an array.array cannot be resized.
    return Buffer(address, shape, dtype, view.nbytes, view, readonly=view.readonly)


class _PyBuffer(c.Structure):
    """The struct Py_buffer of CPython. Only its first fields are declared."""

    _fields_ = [("address", c.c_void_p), ("rest", c.c_void_p * 15)]


def _address_of(view: memoryview) -> int:
    """Return the address of the first byte, which ctypes reports only for writable memory."""
    filled = _PyBuffer()
    c.pythonapi.PyObject_GetBuffer(c.py_object(view), c.byref(filled), 0)
    address: int = filled.address
    c.pythonapi.PyBuffer_Release(c.byref(filled))
    return address


def _free_arena(address: int) -> None:
    # This can fail in a child after a fork or during interpreter shutdown, when nothing needs to be
    # freed.
    try:
        lib().zero_arena_free(address)
    except Exception:  # noqa: S110
        pass


class ArenaMemory:
    """A reference to an arena, which may be on a GPU. Every array that views the arena keeps it
    alive, and the memory is freed with the last view."""

    def __init__(self, comm: CommHandle, size: int, kind: int, gpu: bool = False) -> None:
        out = c.c_void_p()
        lib().zero_arena_alloc(comm, int64(size, "bytes"), kind, c.byref(out))
        self.address = out.value or 0
        self.bytes = size
        self.gpu = gpu
        weakref.finalize(self, _free_arena, self.address).atexit = False

    def view(self, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        """Return part of the arena as a numpy array, or as a memoryview if numpy is not installed.
        On a GPU, return an object with __cuda_array_interface__. A dtype that these types do not
        support is shown as uint16."""
        if self.gpu:
            return _Exporter(self, self.address + offset, shape, dtype, "__cuda_array_interface__")
        try:
            import numpy
        except ImportError:
            return self._memoryview(offset, shape, dtype)
        return numpy.asarray(_Exporter(self, self.address + offset, shape, dtype))

    def _memoryview(self, offset: int, shape: tuple[int, ...], dtype: str) -> memoryview:
        code = VIEW_FORMATS.get(dtype, HALF_FORMAT)
        size = math.prod(shape) * ITEM_BYTES[dtype]
        memory = (c.c_char * size).from_address(self.address + offset)
        memory.owner = self  # type: ignore[attr-defined]
        view = memoryview(memory).cast("B")
        if 0 in shape:
            return view.cast(code)  # type: ignore[call-overload, no-any-return]
        return view.cast(code, shape)  # type: ignore[call-overload, no-any-return]


class _Exporter:
    def __init__(
        self,
        owner: ArenaMemory,
        address: int,
        shape: tuple[int, ...],
        dtype: str,
        interface: str = "__array_interface__",
    ) -> None:
        self.owner = owner
        fields = {
            "data": (address, False),
            "shape": shape,
            "typestr": typestr_of(dtype),
            "version": 3,
        }
        setattr(self, interface, fields)
