# SPDX-License-Identifier: Apache-2.0
"""Parameters and optimizer options, and their conversion to C structs."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union, cast

from . import _abi, _custom, _values, _zero_h
from ._buffers import Buffer, shape_of, typed_of
from ._custom import Rule
from ._dtypes import FLOATING, HALF
from .typing import Array, Dtype, FloatingDtype, Several, Shape, StateDtype


@dataclass
class Param:
    """A parameter, with its memory (see Optimizer), or with its shape if the memory is given later.

    name          its name, which is unique among the parameters and buffers of an optimizer and the
                  same on every rank
    data          its memory, which is in C order
    grad          the memory of its gradient, which has the same shape
    shape         its shape, as a number of elements or a tuple; required if data is not given
    order         its position in the forward pass, by default the position in registration order
    owner         the rank that owns it, if partition is "manual"
    padded        true if libzero may read and write data and grad past their end, up to the next
                  multiple of 16 elements, as in the layout of allocate()
    dtype         the element type, which is "float32", "float64", "bfloat16" or "float16", or for
                  frozen parameters also "int32" or "int64". Integer types must always be given. The
                  other types must be given only if the memory does not report its dtype. This
                  applies to (address, shape), and to uint16, because numpy has no bfloat16. The
                  default is "float32"
    grad_dtype    the dtype of a gradient that is given later, if it differs from the parameter's
    frozen        true if it is not trained until Optimizer.set_trainable enables training
    lr_scale      a factor for the group's lr, which is not saved
    weight_decay  a value that replaces the group's weight_decay, and is not saved

    >>> Param("w", shape=(784, 10), dtype="bfloat16").frozen
    False
    """

    name: str
    data: Optional[Array] = None
    grad: Optional[Array] = None
    shape: Optional[Shape] = None
    order: Optional[int] = None
    owner: int = 0
    padded: bool = False
    dtype: Optional[Dtype] = None
    grad_dtype: Optional[FloatingDtype] = None
    frozen: bool = False
    lr_scale: Optional[float] = None
    weight_decay: Optional[float] = None


# A mapping of names to arrays, or a sequence of Param, (name, data) or (name, data, grad).
One = Union[Param, tuple[str, Array], tuple[str, Array, Optional[Array]]]
Params = Union[Mapping[str, Array], Several[One]]


@dataclass(frozen=True)
class Prepared:
    """A checked parameter, with its values for C and the objects that keep its memory alive."""

    param: Param
    shape: tuple[int, ...]
    dtype: Dtype
    grad_dtype: FloatingDtype
    data: Optional[Buffer]
    grad: Optional[Buffer]


def params_of(params: Params) -> list[Param]:
    if isinstance(params, Mapping):
        _values.refuse_nested(params)
        return [Param(name, data) for name, data in params.items()]
    return [
        param if isinstance(param, Param) else Param(*_values.named(param, "parameter"))
        for param in params
    ]


def prepare(param: Param, *, gpu: bool) -> Prepared:
    """Check a parameter. If `gpu` is set, its memory may be on a GPU."""
    what, grad_dtype = f"parameter {param.name!r}", param.grad_dtype
    dtype: Optional[str] = param.dtype
    known = _zero_h.DTYPES if param.frozen else FLOATING
    for given, of, choices in ((dtype, "dtype", known), (grad_dtype, "grad_dtype", FLOATING)):
        if given is not None:
            _values.check_word(given, f"{what}: {of}", choices)
    data = None
    if param.data is not None:
        data = typed_of(param.data, what, dtype, dtype or "float32", gpu=gpu)
        dtype = data.dtype
        shape = data.shape
        if param.shape is not None and shape_of(param.shape) != shape:
            raise ValueError(f"{what} has shape {shape}, but {shape_of(param.shape)} was given")
    elif param.shape is None:
        raise ValueError(f"{what} has neither data nor a shape")
    else:
        shape = shape_of(param.shape)
    dtype = dtype or "float32"
    default: str = grad_dtype or (dtype if dtype in FLOATING else "float32")
    grad_what = f"gradient of {param.name!r}"
    grad = memory_of(param.grad, grad_what, shape, grad_dtype, default, gpu=gpu, written=False)
    if grad is not None:
        default = grad.dtype
    return Prepared(param, shape, cast(Dtype, dtype), cast(FloatingDtype, default), data, grad)


def memory_of(
    value: Any,
    what: str,
    shape: tuple[int, ...],
    wanted: Optional[str],
    untyped: str,
    *,
    gpu: bool,
    written: bool,
) -> Optional[Buffer]:
    """Return the memory of `value`, which must have the shape `shape`, or None if `value` is None.
    typed_of describes the other arguments. `written` is false for gradients outside arenas."""
    if value is None:
        return None
    buffer = typed_of(value, what, wanted, untyped, gpu=gpu, written=written)
    # Comparing the number of elements is not enough, because a transposed gradient would then be
    # accepted.
    if buffer.shape != shape:
        raise ValueError(f"{what} has shape {buffer.shape}, but the parameter has {shape}")
    return buffer


def refuse_unknown(given: Mapping[str, object] | None, known: set[str]) -> None:
    _values.refuse_nested(given)
    unknown = [name for name in given or () if name not in known]
    if unknown:
        raise KeyError(f"{', '.join(map(repr, unknown))}: no parameter has that name")


def c_params(params: Sequence[Prepared]) -> Any:
    """Return the array of C structs. It keeps the names and shapes alive, and `params` keeps the
    memory alive."""
    array = (_zero_h.Param * len(params))()
    default = _abi.create(_zero_h.Param)
    for entry, prepared in zip(array, params):
        param = prepared.param
        c.pointer(entry)[0] = default
        entry.name = _values.text(param.name, "parameter")
        entry.data = address(prepared.data)
        entry.grad = address(prepared.grad)
        what = f"parameter {param.name!r}:"
        dimensions = [_values.int64(size, f"{what} dimension") for size in prepared.shape]
        entry.shape = (c.c_int64 * len(dimensions))(*dimensions)
        entry.ndim = len(dimensions)
        entry.dtype = _zero_h.DTYPES[prepared.dtype]
        entry.grad_dtype = FLOATING[prepared.grad_dtype]
        entry.owner = _values.int32(param.owner, f"{what} owner")
        if param.padded:
            entry.flags |= _zero_h.PARAM_PADDED
        if param.order is not None:
            entry.flags |= _zero_h.PARAM_ORDER
            entry.order = _values.int64(param.order, f"{what} order")
        if param.frozen:
            entry.flags |= _zero_h.PARAM_FROZEN
        if param.lr_scale is not None:
            entry.flags |= _zero_h.PARAM_LR_SCALE
            entry.lr_scale = _values.double(param.lr_scale, f"{what} lr_scale")
        if param.weight_decay is not None:
            entry.flags |= _zero_h.PARAM_WEIGHT_DECAY
            entry.weight_decay = _values.double(param.weight_decay, f"{what} weight_decay")
    return array


# The address of a parameter without elements. It is not NULL, because NULL means that there is no
# parameter.
_nowhere = (c.c_char * 64)()


def address(buffer: Optional[Buffer]) -> Optional[int]:
    if buffer is None:
        return None
    return buffer.address or c.addressof(_nowhere)


def pointers(buffers: Sequence[Optional[Buffer]]) -> Any:
    return (c.c_void_p * len(buffers))(*[address(buffer) for buffer in buffers])


_TYPES: Mapping[str, Any] = {field[0]: field[1] for field in _zero_h.Options._fields_}
# The names of the options in zero_options.
OPTIONS = _TYPES.keys() - {
    "struct_size", "optimizer", "names", "values", "setting_count", "custom",
}  # fmt: skip
_FLAGS = {"overlap_gather"}
_NUMBERS = {c.c_int32: _values.int32, c.c_int64: _values.int64, c.c_double: _values.double}


def _option(name: str, value: Any) -> Any:
    if name in _zero_h.CHOICES:
        return _values.choice(_zero_h.CHOICES[name], value, name)
    if name.endswith("_dtype"):
        return 0 if value is None else _values.choice(HALF, value, name)
    if name in _FLAGS:
        return 1 if value else 0
    return _NUMBERS[_TYPES[name]](value, name)


def c_group(
    inherited: Mapping[str, Any],
    settings: Mapping[str, Any],
    optimizer: Optional[Rule],
    state_dtype: StateDtype,
) -> Any:
    """Return a zero_group_options struct with these fields. `inherited` has the settings of a group
    without its own rule."""
    made = _abi.create(_zero_h.GroupOptions)
    if optimizer is not None:
        _custom.set_group_rule(made, optimizer)
        inherited = _custom.defaults_of(optimizer)
    made.state_dtype = _values.choice(_zero_h.STATE_DTYPES, state_dtype, "state_dtype")
    made.names, made.values, made.setting_count = _values.settings(settings, inherited)
    return made


def c_options(*, optimizer: Rule, settings: Mapping[str, Any], **options: Any) -> Any:
    """Return a zero_options struct with these fields."""
    made = _abi.create(_zero_h.Options)
    _custom.set_rule(made, optimizer)
    for name, value in options.items():
        setattr(made, name, _option(name, value))
    made.names, made.values, made.setting_count = _values.settings(
        settings, _custom.defaults_of(optimizer), OPTIONS
    )
    return made
