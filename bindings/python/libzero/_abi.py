# SPDX-License-Identifier: Apache-2.0
"""The library: zero.h's constants, one row per function, and the calls with their errors.

tests/abi/check_bindings.py compares all of it with the header."""

from __future__ import annotations

import atexit
import ctypes as c
import signal
import threading
from typing import Any, TypeVar, get_args

from . import _load, typing
from ._errors import ZeroError, error_of, pending, raise_failure
from ._structs import (
    STRUCTS,
    CheckpointOf,
    CommFunctions,
    CommHandle,
    CommOptions,
    CustomOptimizer,
    Failure,
    GroupOptions,
    InterruptFn,
    JoinOptions,
    LoadOptions,
    LogFn,
    ModelBuffer,
    OptimHandle,
    Options,
    Param,
    Plan,
    Result,
    Rule,
    SaveOptions,
    Statistics,
    StepOptions,
    Struct,
    Update,
)
from ._words import calls_of, constants_of, translator

OK = 0
SKIPPED = 1
ERR_ARGUMENT = -1
ERR_COMM = -17
ERR_STATE = -2
ERR_UNSUPPORTED = -5
ERR_CALLBACK = -21
ERR_INTERRUPTED = -22

ALL_GROUPS = -1
ROOT_NONE = -1
OWNER_SPLIT = -1
ALL_PARAMS = -1
ALL_RANKS = -1
ORDINAL_LOCAL_RANK = -1
PARAM_ORDER = 1
PARAM_PADDED = 2
PARAM_FROZEN = 4
PARAM_LR_SCALE = 8
PARAM_WEIGHT_DECAY = 16
CUSTOM_WHOLE_TENSORS = 1
SAVE_REPLACE = 1
LOAD_KEEP_SETTINGS = 1
SHARE_KEEP_MASTERS = 1
LOG_ERROR, LOG_WARNING, LOG_INFO = 1, 2, 3

REDUCE_ACCUMULATE = 4
OPTIMIZER_CUSTOM = 100
NCCL_ID_BYTES = 128


def _numbered(words: Any, first: int) -> dict[str, int]:
    return {word: number for number, word in enumerate(get_args(words), first)}


DTYPES = _numbered(typing.Dtype, 1)
OPERATIONS = _numbered(typing.Operation, 1)
MEMORIES = _numbered(typing.MemoryKind, 1)
DEVICES = _numbered(typing.Device, 0)
PARTITIONS = _numbered(typing.Partition, 0)
NONFINITES = _numbered(typing.Nonfinite, 0)
MASTERS = _numbered(typing.Master, 0)
UNEVENS = _numbered(typing.UnevenInputs, 0)
REDUCTIONS = _numbered(typing.Reduction, 0)


def dtypes_of(words: Any) -> dict[str, int]:
    """Some of DTYPES."""
    return {word: DTYPES[word] for word in get_args(words)}


HALF_DTYPES = dtypes_of(typing.HalfDtype)


class Status:
    """As restype: zero_status. A negative one raises."""


_POINTERS = c.POINTER(c.c_void_p)

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "zero_version": (c.c_uint32, []),
    "zero_build_info": (c.c_char_p, []),
    "zero_last_error": (c.c_char_p, []),
    "zero_status_name": (c.c_char_p, [c.c_int32]),
    "zero_set_log_callback": (Status, [LogFn, c.c_void_p, c.c_int32]),
    "zero_set_interrupt_callback": (Status, [InterruptFn, c.c_void_p]),
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
    "zero_nccl_unique_id": (Status, [c.c_void_p]),
    "zero_comm_create_nccl": (
        Status,
        [c.POINTER(CommHandle), c.c_void_p, c.c_int32, c.c_int32, c.POINTER(CommOptions)],
    ),
    "zero_comm_wrap_nccl": (
        Status,
        [c.POINTER(CommHandle), c.c_void_p, c.POINTER(CommOptions)],
    ),
    "zero_comm_create_mpi": (
        Status,
        [c.POINTER(CommHandle), c.c_void_p, c.c_size_t, c.POINTER(CommOptions)],
    ),
    "zero_comm_split": (Status, [c.POINTER(CommHandle), CommHandle, c.c_int32, c.c_int32]),
    "zero_comm_rank": (Status, [CommHandle]),
    "zero_comm_world": (Status, [CommHandle]),
    "zero_comm_barrier": (Status, [CommHandle]),
    "zero_comm_broadcast": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32]),
    "zero_comm_all_reduce": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32, c.c_int32]),
    "zero_comm_abort": (Status, [CommHandle, c.c_char_p]),
    "zero_comm_failure": (Status, [CommHandle, c.POINTER(Failure)]),
    "zero_trace_start": (Status, [CommHandle, c.c_char_p]),
    "zero_trace_stop": (Status, [CommHandle]),
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
    "zero_register_buffers": (Status, [OptimHandle, c.POINTER(ModelBuffer), c.c_size_t]),
    "zero_bind_params": (Status, [OptimHandle, _POINTERS, _POINTERS, c.c_size_t]),
    "zero_seal": (Status, [OptimHandle]),
    "zero_free": (Status, [OptimHandle]),
    # Settings
    "zero_group_set": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.c_double]),
    "zero_group_get": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.POINTER(c.c_double)]),
    "zero_group_set_from": (
        Status,
        [OptimHandle, c.c_int32, c.c_char_p, c.c_void_p, c.c_int32],
    ),
    "zero_param_set_trainable": (Status, [OptimHandle, c.c_int64, c.c_int32]),
    "zero_rebalance": (Status, [OptimHandle, c.POINTER(c.c_int32), c.c_size_t, c.c_void_p]),
    # Training loop
    "zero_broadcast_params": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_broadcast_buffers": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_grad_ready": (Status, [OptimHandle, c.c_int64, c.c_void_p, c.c_void_p]),
    "zero_reduce_grads": (Status, [OptimHandle, _POINTERS, c.c_size_t, c.c_int32, c.c_void_p]),
    "zero_clip_grad_value": (Status, [OptimHandle, c.c_double, c.c_void_p]),
    "zero_clip_grad_norm": (
        Status,
        [
            OptimHandle,
            c.POINTER(c.c_int64),
            c.c_size_t,
            c.c_double,
            c.c_double,
            c.POINTER(c.c_double),
            c.c_void_p,
        ],
    ),
    "zero_step_begin": (Status, [OptimHandle, c.POINTER(StepOptions)]),
    "zero_param_wait": (Status, [OptimHandle, c.c_int64, c.c_void_p]),
    "zero_step": (Status, [OptimHandle, c.POINTER(StepOptions)]),
    "zero_step_result": (Status, [OptimHandle, c.POINTER(Result)]),
    "zero_drop_grads": (Status, [OptimHandle]),
    "zero_grad_get": (Status, [OptimHandle, c.c_int64, c.c_int64, c.c_int64, c.c_void_p]),
    "zero_share_params": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_join": (Status, [OptimHandle, c.POINTER(JoinOptions), c.POINTER(c.c_int32)]),
    # State
    "zero_state_save": (Status, [OptimHandle, c.c_char_p, c.POINTER(SaveOptions)]),
    "zero_state_save_begin": (Status, [OptimHandle, c.c_char_p, c.POINTER(SaveOptions)]),
    "zero_state_save_poll": (Status, [OptimHandle, c.POINTER(c.c_int32)]),
    "zero_state_save_wait": (Status, [OptimHandle]),
    "zero_state_load": (Status, [OptimHandle, c.c_char_p, c.POINTER(LoadOptions)]),
    "zero_state_extra_set": (Status, [OptimHandle, c.c_char_p, c.c_void_p, c.c_size_t]),
    "zero_state_extra_get": (
        Status,
        [
            OptimHandle,
            c.c_int32,
            c.c_char_p,
            c.c_void_p,
            c.c_size_t,
            c.POINTER(c.c_size_t),
        ],
    ),
    "zero_state_extra_list": (
        Status,
        [
            OptimHandle,
            c.POINTER(c.c_int32),
            c.POINTER(c.c_char_p),
            c.c_size_t,
            c.POINTER(c.c_size_t),
        ],
    ),
    "zero_state_list": (
        Status,
        [c.c_char_p, c.POINTER(CheckpointOf), c.c_size_t, c.POINTER(c.c_size_t)],
    ),
    "zero_state_prune": (Status, [c.c_char_p, c.c_int64, c.c_int64, c.POINTER(c.c_size_t)]),
    "zero_state_info": (
        Status,
        [
            OptimHandle,
            c.c_int64,
            c.POINTER(c.c_int32),
            c.POINTER(c.c_char_p),
            c.c_size_t,
            c.POINTER(c.c_size_t),
        ],
    ),
    "zero_state_get": (
        Status,
        [OptimHandle, c.c_int64, c.c_char_p, c.c_int64, c.c_int64, c.c_void_p],
    ),
    "zero_state_set": (
        Status,
        [OptimHandle, c.c_int64, c.c_char_p, c.c_int64, c.c_int64, c.c_void_p],
    ),
    "zero_state_gather": (
        Status,
        [OptimHandle, c.c_int64, c.c_char_p, c.c_int32, c.c_void_p, c.c_size_t],
    ),
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
    "zero_rule_info": (Status, [c.c_int32, c.POINTER(Rule)]),
    "zero_stats": (Status, [OptimHandle, c.POINTER(Statistics)]),
}

# What messages say in place of zero.h's words.
CALLS = calls_of(SIGNATURES)
CONSTANTS = constants_of(
    (
        ("ZERO_", "", DTYPES),
        ("ZERO_", "operation", OPERATIONS),
        ("ZERO_DEVICE_", "device", DEVICES),
        ("ZERO_MEMORY_", "kind", MEMORIES),
        ("ZERO_PARTITION_", "partition", PARTITIONS),
        ("ZERO_NONFINITE_", "nonfinite", NONFINITES),
        ("ZERO_MASTER_", "master", MASTERS),
        ("ZERO_UNEVEN_", "uneven_inputs", UNEVENS),
        ("ZERO_REDUCE_", "reduction", REDUCTIONS),
    )
)
in_python = translator({**CALLS, **CONSTANTS}, (struct.c_name for struct in STRUCTS))

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
            interrupt_waits()
    return _loaded


# Python's own function, asked by the library with the lock of the interpreter held. A function in
# Python would not do: its first instruction runs the handlers of signals, and what they raise there
# is lost.
_interrupted = InterruptFn()
if hasattr(c, "pythonapi"):  # CPython's
    _interrupted = InterruptFn(c.pythonapi.PyOS_InterruptOccurred)


def interrupt_waits(on: bool = True) -> None:
    """Let Ctrl-C, and a notebook's stop button, end a call of the main thread that waits for other
    ranks. This is the default. The call's comm is aborted, and then the handler of SIGINT runs.
    With False, the handler runs after the call has ended by itself, which suits a program whose own
    handler only sets a flag.

    >>> interrupt_waits(False)
    >>> interrupt_waits()
    """
    lib().zero_set_interrupt_callback(_interrupted if on else InterruptFn(), None)
    # The library must not find the remains of the interpreter.
    atexit.unregister(interrupt_waits)
    atexit.register(interrupt_waits, False)


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
    """Return a substitute for a function that an older library does not have."""

    def refuse(*_: object) -> None:
        message = f"{path} has no {name}: it is older than this package"
        raise ZeroError(ERR_UNSUPPORTED, "ZERO_ERR_UNSUPPORTED", message)

    return refuse


def _check(status: int, _function: Any, _arguments: Any) -> int:
    if status >= 0:
        pending.exception = None
        return status
    if status == ERR_INTERRUPTED:
        signal.raise_signal(signal.SIGINT)  # again: the library has taken note of it in our place
    name = lib().zero_status_name(status).decode()
    message = in_python(lib().zero_last_error().decode("utf-8", "replace"))
    raise_failure(error_of(status, name, message))
    return status


S = TypeVar("S", bound=Struct)


def create(struct: type[S]) -> S:
    """One of zeros, which are the defaults."""
    return struct(c.sizeof(struct))
