# SPDX-License-Identifier: Apache-2.0
"""zero.h in ctypes: structs in the header's order, one row per function.

tests/abi/check_bindings.py compares all of it with the header."""

from __future__ import annotations

import ctypes as c
import math
import operator
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

from . import _load
from ._errors import ZeroError, error_of, pending, raise_failure

OK = 0
SKIPPED = 1
ERR_COMM = -17
ERR_UNSUPPORTED = -5

ALL_GROUPS = -1
ROOT_NONE = -1
OWNER_SPLIT = -1
PARAM_ORDER = 1
PARAM_PADDED = 2
SAVE_REPLACE = 1
LOAD_KEEP_SETTINGS = 1
LOG_ERROR, LOG_WARNING, LOG_INFO = 1, 2, 3

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 4}
OPERATIONS = {"sum": 1, "min": 2, "max": 3}
MEMORIES = {"per_rank": 1, "shared": 2}
OPTIMIZERS = {
    "adamw": 0,
    "adam": 1,
    "sgd": 2,
    "rmsprop": 3,
    "adagrad": 4,
    "lion": 5,
    "adamax": 6,
    "adadelta": 7,
    "radam": 8,
    "nadam": 9,
    "rprop": 10,
}
PARTITIONS = {"even": 0, "greedy": 1, "greedy_in_order": 2, "manual": 3}
NONFINITES = {"ignore": 0, "skip": 1}
REDUCTIONS = {"mean": 0, "sum": 1}


class Status:
    """As restype: zero_status. A negative one raises."""


H = TypeVar("H", bound="Handle")


class Handle(c.c_void_p):
    """A token of the library. One that is closed or of another kind never reaches C."""

    c_name = ""

    @classmethod
    def from_param(cls, value: object) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"a {cls.c_name} is needed, not {type(value).__name__}")
        if not value.value:
            raise ValueError(f"this {cls.c_name} is closed")
        return value

    def open(self: H) -> H:
        """This handle; ValueError if it is closed. (ctypes wraps what from_param raises.)"""
        return type(self).from_param(self)  # type: ignore[no-any-return]


class CommHandle(Handle):
    c_name = "zero_comm"


class OptimHandle(Handle):
    c_name = "zero_optim"


LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
ExchangeFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
MoveFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
ReduceScatterFn = c.CFUNCTYPE(
    c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32, c.c_void_p
)
SplitFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))
FreeFn = c.CFUNCTYPE(None, c.c_void_p)


class Struct(c.Structure):
    """A struct of zero.h: `c_name` is its name there, `create` its _init function."""

    c_name = ""


class CommOptions(Struct):
    c_name = "zero_comm_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("timeout_ms", c.c_int64),
        ("late_ms", c.c_int64),
        ("rendezvous_ms", c.c_int64),
    ]


class CommFunctions(Struct):
    c_name = "zero_comm_functions"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("exchange", ExchangeFn),
        ("all_gather", MoveFn),
        ("all_to_all", MoveFn),
        ("reduce_scatter", ReduceScatterFn),
        ("split", SplitFn),
        ("free", FreeFn),
    ]


class Failure(Struct):
    c_name = "zero_failure"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("status", c.c_int32),
        ("rank", c.c_int32),
        ("step", c.c_int64),
        ("params_consistent", c.c_int32),
        ("phase", c.c_char * 32),
        ("text", c.c_char * 512),
    ]


class Options(Struct):
    c_name = "zero_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("optimizer", c.c_int32),
        ("partition", c.c_int32),
        ("bucket_bytes", c.c_int64),
        ("max_grad_norm", c.c_double),
        ("grad_norm_type", c.c_double),
        ("nonfinite", c.c_int32),
        ("threads", c.c_int32),
        ("names", c.POINTER(c.c_char_p)),
        ("values", c.POINTER(c.c_double)),
        ("setting_count", c.c_size_t),
    ]


class GroupOptions(Struct):
    c_name = "zero_group_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("names", c.POINTER(c.c_char_p)),
        ("values", c.POINTER(c.c_double)),
        ("setting_count", c.c_size_t),
    ]


class Param(Struct):
    c_name = "zero_param"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("data", c.c_void_p),
        ("grad", c.c_void_p),
        ("shape", c.POINTER(c.c_int64)),
        ("ndim", c.c_int32),
        ("dtype", c.c_int32),
        ("owner", c.c_int32),
        ("flags", c.c_int32),
        ("order", c.c_int64),
    ]


class StepOptions(Struct):
    c_name = "zero_step_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("grads", c.POINTER(c.c_void_p)),
        ("grad_count", c.c_size_t),
        ("reduce_flags", c.c_int32),
        ("reserved", c.c_int32),
        ("stream", c.c_void_p),
    ]


class Result(Struct):
    c_name = "zero_result"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("step", c.c_int64),
        ("skipped", c.c_int64),
        ("nonfinite", c.c_int64),
        ("grad_norm", c.c_double),
        ("clip_factor", c.c_double),
        ("status", c.c_int32),
        ("reserved", c.c_int32),
    ]


class SaveOptions(Struct):
    c_name = "zero_save_options"
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_int32), ("reserved", c.c_int32)]


class LoadOptions(Struct):
    c_name = "zero_load_options"
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_int32), ("reserved", c.c_int32)]


class Plan(Struct):
    c_name = "zero_plan"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("offsets", c.POINTER(c.c_int64)),
        ("owners", c.POINTER(c.c_int32)),
        ("elements", c.POINTER(c.c_int64)),
        ("arena_bytes", c.c_int64),
        ("state_bytes", c.c_int64),
    ]


class Statistics(Struct):
    c_name = "zero_statistics"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("parameter_elements", c.c_int64),
        ("owned_elements", c.c_int64),
        ("state_bytes", c.c_int64),
        ("staging_bytes", c.c_int64),
        ("control_bytes", c.c_int64),
        ("copied_bytes", c.c_int64),
        ("moved_bytes", c.c_int64),
        ("steps", c.c_int64),
        ("skipped", c.c_int64),
        ("nonfinite_elements", c.c_int64),
        ("gather_seconds", c.c_double),
        ("vote_seconds", c.c_double),
        ("apply_seconds", c.c_double),
        ("publish_seconds", c.c_double),
        ("save_seconds", c.c_double),
        ("load_seconds", c.c_double),
    ]


STRUCTS: tuple[type[Struct], ...] = (
    CommOptions,
    CommFunctions,
    Failure,
    Options,
    GroupOptions,
    Param,
    StepOptions,
    Result,
    SaveOptions,
    LoadOptions,
    Plan,
    Statistics,
)

_POINTERS = c.POINTER(c.c_void_p)

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "zero_version": (c.c_uint32, []),
    "zero_build_info": (c.c_char_p, []),
    "zero_last_error": (c.c_char_p, []),
    "zero_status_name": (c.c_char_p, [c.c_int32]),
    "zero_set_log_callback": (Status, [LogFn, c.c_void_p, c.c_int32]),
    # Comm
    "zero_comm_create_solo": (Status, [c.POINTER(CommHandle), c.POINTER(CommOptions)]),
    "zero_comm_create_local": (
        Status,
        [c.POINTER(CommHandle), c.c_char_p, c.c_int32, c.c_int32, c.POINTER(CommOptions)],
    ),
    "zero_comm_create_env": (Status, [c.POINTER(CommHandle), c.POINTER(CommOptions)]),
    "zero_comm_create_user": (
        Status,
        [
            c.POINTER(CommHandle),
            c.POINTER(CommFunctions),
            c.c_void_p,
            c.c_int32,
            c.c_int32,
            c.POINTER(CommOptions),
        ],
    ),
    "zero_comm_split": (Status, [c.POINTER(CommHandle), CommHandle, c.c_int32, c.c_int32]),
    "zero_comm_rank": (Status, [CommHandle]),
    "zero_comm_world": (Status, [CommHandle]),
    "zero_comm_barrier": (Status, [CommHandle]),
    "zero_comm_broadcast": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32]),
    "zero_comm_all_reduce": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32, c.c_int32]),
    "zero_comm_abort": (Status, [CommHandle, c.c_char_p]),
    "zero_comm_failure": (Status, [CommHandle, c.POINTER(Failure)]),
    "zero_comm_free": (Status, [CommHandle]),
    # Memory
    "zero_arena_alloc": (Status, [CommHandle, c.c_size_t, c.c_int32, _POINTERS]),
    "zero_arena_free": (Status, [c.c_void_p]),
    # Build an optimizer
    "zero_create": (Status, [c.POINTER(OptimHandle), CommHandle, c.POINTER(Options)]),
    "zero_register_params": (
        Status,
        [
            OptimHandle,
            c.POINTER(GroupOptions),
            c.POINTER(Param),
            c.c_size_t,
            c.POINTER(c.c_int32),
        ],
    ),
    "zero_bind_params": (Status, [OptimHandle, _POINTERS, _POINTERS, c.c_size_t]),
    "zero_seal": (Status, [OptimHandle]),
    "zero_free": (Status, [OptimHandle]),
    # Settings
    "zero_group_set": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.c_double]),
    "zero_group_get": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.POINTER(c.c_double)]),
    # Training loop
    "zero_broadcast_params": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_reduce_grads": (Status, [OptimHandle, _POINTERS, c.c_size_t, c.c_int32, c.c_void_p]),
    "zero_clip_grad_norm": (
        Status,
        [OptimHandle, c.c_double, c.c_double, c.POINTER(c.c_double), c.c_void_p],
    ),
    "zero_step": (Status, [OptimHandle, c.POINTER(StepOptions)]),
    "zero_step_result": (Status, [OptimHandle, c.POINTER(Result)]),
    "zero_drop_grads": (Status, [OptimHandle]),
    # State
    "zero_state_save": (Status, [OptimHandle, c.c_char_p, c.POINTER(SaveOptions)]),
    "zero_state_load": (Status, [OptimHandle, c.c_char_p, c.POINTER(LoadOptions)]),
    # Look inside
    "zero_param_index": (Status, [OptimHandle, c.c_char_p, c.POINTER(c.c_int64)]),
    "zero_owned_ranges": (
        Status,
        [OptimHandle, c.c_int32, c.POINTER(c.c_int64), c.c_size_t, c.POINTER(c.c_size_t)],
    ),
    "zero_partition_plan": (
        Status,
        [c.POINTER(Param), c.c_size_t, c.c_int32, c.POINTER(Options), c.POINTER(Plan)],
    ),
    "zero_stats": (Status, [OptimHandle, c.POINTER(Statistics)]),
    # Defaults, one for each struct.
    **{f"{struct.c_name}_init": (Status, [c.POINTER(struct), c.c_size_t]) for struct in STRUCTS},
}

_lock = threading.Lock()
_loaded: tuple[Any, str] | None = None


def lib() -> Any:
    """The library with every function typed; loaded on first use."""
    return (_loaded or _load_once())[0]


def library_path() -> str:
    return (_loaded or _load_once())[1]


def _load_once() -> tuple[Any, str]:
    global _loaded
    with _lock:
        if _loaded is None:
            library, path = _load.load()
            for name, (restype, argtypes) in SIGNATURES.items():
                _declare(library, path, name, restype, argtypes)
            _loaded = library, path
    return _loaded


def _declare(library: c.CDLL, path: str, name: str, restype: Any, argtypes: list[Any]) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        setattr(library, name, _missing(name, path))
        return
    function.argtypes = argtypes
    function.restype = c.c_int32 if restype is Status else restype
    if restype is Status:
        function.errcheck = _check


def _missing(name: str, path: str) -> Any:
    """Stands in for a function that an older library does not have."""

    def refuse(*_: object) -> None:
        message = f"{path} has no {name}: it is older than this package"
        raise ZeroError(ERR_UNSUPPORTED, "ZERO_ERR_UNSUPPORTED", message)

    return refuse


def _check(status: int, _function: Any, _arguments: Any) -> int:
    if status >= 0:
        pending.exception = None
        return status
    name = lib().zero_status_name(status).decode()
    message = lib().zero_last_error().decode("utf-8", "replace")
    raise_failure(error_of(status, name, message))
    return status


S = TypeVar("S", bound=Struct)


def create(struct: type[S]) -> S:
    """A struct with the library's defaults in it."""
    value = struct()
    getattr(lib(), f"{struct.c_name}_init")(c.byref(value), c.sizeof(value))
    return value


def int32(value: int, what: str) -> int:
    """`value` for an int32_t. ctypes would cut a wide number without a word."""
    return _integer(value, what, 32)


def int64(value: int, what: str) -> int:
    return _integer(value, what, 64)


def _integer(value: int, what: str, bits: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{what} {number} does not fit into {bits} bits")
    return number


def double(value: float, what: str) -> float:
    """`value` for a double; what is no number is named, and text is not parsed."""
    try:
        return math.ldexp(value, 0)
    except TypeError:
        raise TypeError(f"{what} must be a number, not {type(value).__name__}") from None


def text(value: str, what: str) -> bytes:
    """`value` for a `const char *`, which would end at a NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    encoded = value.encode()
    if b"\0" in encoded:
        raise ValueError(f"{what} {value!r} has a NUL character in it")
    return encoded


def choice(table: dict[str, int], value: str, what: str) -> int:
    try:
        return table[value]
    except KeyError:
        known = ", ".join(table)
        raise ValueError(f"{what} {value!r} is unknown; there are {known}") from None


def settings(values: Mapping[str, float]) -> tuple[Any, Any, int]:
    """(names, values, count) for the fields of a struct, which then keeps the arrays alive."""
    names = (c.c_char_p * len(values))(*[text(name, "setting") for name in values])
    numbers = (c.c_double * len(values))(
        *[double(value, f"setting {name!r}") for name, value in values.items()]
    )
    return names, numbers, len(values)
