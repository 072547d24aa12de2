# Made from include/zero.h by scripts/mirrors.py; do not edit.
# SPDX-License-Identifier: Apache-2.0
"""zero.h for ctypes: its constants, the words for some of them, its structs and functions."""

from __future__ import annotations

import ctypes as c
from typing import Any, Literal, Optional, TypedDict

from ._handles import CommHandle, OptimHandle, Status, Struct

# ---- Constants ----

VERSION_MAJOR = 0
VERSION_MINOR = 2
VERSION_PATCH = 0
OK = 0
SKIPPED = 1
ERR_ARGUMENT = -1
ERR_STATE = -2
ERR_BUSY = -3
ERR_FORKED = -4
ERR_UNSUPPORTED = -5
ERR_MEMORY = -6
ERR_MISMATCH = -7
ERR_PEER = -8
ERR_CKPT_IO = -9
ERR_CKPT_INVALID = -10
ERR_CKPT_MISMATCH = -11
ERR_NOT_LOADED = -12
ERR_RENDEZVOUS = -13
ERR_TIMEOUT = -14
ERR_PEER_DEAD = -15
ERR_DESYNC = -16
ERR_COMM = -17
ERR_ABORTED = -18
ERR_SYSTEM = -19
ERR_NONFINITE = -20
ERR_CALLBACK = -21
ERR_INTERRUPTED = -22
ERR_INTERNAL = -99
LOG_ERROR = 1
LOG_WARNING = 2
LOG_INFO = 3
DEVICE_HOST = 0
DEVICE_CUDA = 1
ORDINAL_LOCAL_RANK = -1
NCCL_ID_BYTES = 128
FLOAT32 = 1
FLOAT64 = 2
INT32 = 3
INT64 = 4
BFLOAT16 = 5
FLOAT16 = 6
SUM = 1
MIN = 2
MAX = 3
MEMORY_PER_RANK = 1
MEMORY_SHARED = 2
OPTIMIZER_ADAMW = 0
OPTIMIZER_ADAM = 1
OPTIMIZER_SGD = 2
OPTIMIZER_RMSPROP = 3
OPTIMIZER_ADAGRAD = 4
OPTIMIZER_LION = 5
OPTIMIZER_ADAMAX = 6
OPTIMIZER_ADADELTA = 7
OPTIMIZER_RADAM = 8
OPTIMIZER_NADAM = 9
OPTIMIZER_RPROP = 10
OPTIMIZER_LAMB = 11
OPTIMIZER_LARS = 12
OPTIMIZER_ADAN = 13
OPTIMIZER_ADEMAMIX = 14
OPTIMIZER_CUSTOM = 100
PARTITION_EVEN = 0
PARTITION_GREEDY = 1
PARTITION_GREEDY_IN_ORDER = 2
PARTITION_MANUAL = 3
NONFINITE_IGNORE = 0
NONFINITE_SKIP = 1
NONFINITE_ERROR = 2
MASTER_FLOAT32 = 0
MASTER_REMAINDER = 1
MASTER_NONE = 2
STATE_DTYPE_FULL = 0
STATE_DTYPE_BFLOAT16 = 1
UNEVEN_OFF = 0
UNEVEN_WORLD = 1
UNEVEN_ACTIVE = 2
UNEVEN_ERROR = 3
CUSTOM_WHOLE_TENSORS = 1
PARAM_ORDER = 1
PARAM_PADDED = 2
PARAM_FROZEN = 4
PARAM_LR_SCALE = 8
PARAM_WEIGHT_DECAY = 16
ALL_GROUPS = -1
ROOT_NONE = -1
REDUCE_MEAN = 0
REDUCE_SUM = 1
REDUCE_NONE = 2
REDUCE_ACCUMULATE = 4
ALL_PARAMS = -1
SHARE_KEEP_MASTERS = 1
SAVE_REPLACE = 1
LOAD_KEEP_SETTINGS = 1
ALL_RANKS = -1
OWNER_SPLIT = -1

# ---- Words ----

Device = Literal["host", "cuda"]
DEVICES: dict[str, int] = {"host": 0, "cuda": 1}
Dtype = Literal["float32", "float64", "int32", "int64", "bfloat16", "float16"]
DTYPES: dict[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "int64": 4,
    "bfloat16": 5,
    "float16": 6,
}
Operation = Literal["sum", "min", "max"]
OPERATIONS: dict[str, int] = {"sum": 1, "min": 2, "max": 3}
MemoryKind = Literal["per_rank", "shared"]
MEMORIES: dict[str, int] = {"per_rank": 1, "shared": 2}
RuleName = Literal[
    "adamw",
    "adam",
    "sgd",
    "rmsprop",
    "adagrad",
    "lion",
    "adamax",
    "adadelta",
    "radam",
    "nadam",
    "rprop",
    "lamb",
    "lars",
    "adan",
    "ademamix",
]
OPTIMIZERS: dict[str, int] = {
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
    "lamb": 11,
    "lars": 12,
    "adan": 13,
    "ademamix": 14,
}
Partition = Literal["even", "greedy", "greedy_in_order", "manual"]
PARTITIONS: dict[str, int] = {"even": 0, "greedy": 1, "greedy_in_order": 2, "manual": 3}
Nonfinite = Literal["ignore", "skip", "error"]
NONFINITES: dict[str, int] = {"ignore": 0, "skip": 1, "error": 2}
Master = Literal["float32", "remainder", "none"]
MASTERS: dict[str, int] = {"float32": 0, "remainder": 1, "none": 2}
StateDtype = Literal["full", "bfloat16"]
STATE_DTYPES: dict[str, int] = {"full": 0, "bfloat16": 1}
UnevenInputs = Literal["off", "world", "active", "error"]
UNEVENS: dict[str, int] = {"off": 0, "world": 1, "active": 2, "error": 3}
Reduction = Literal["mean", "sum", "none"]
REDUCTIONS: dict[str, int] = {"mean": 0, "sum": 1, "none": 2}
HalfDtype = Literal["bfloat16", "float16"]

# Options whose values are words.
CHOICES: dict[str, dict[str, int]] = {
    "partition": PARTITIONS,
    "nonfinite": NONFINITES,
    "master": MASTERS,
    "uneven_inputs": UNEVENS,
}


class Keywords(TypedDict, total=False):
    """Options of zero_options that every optimizer accepts."""

    bucket_bytes: int
    max_grad_norm: float
    grad_norm_type: float
    nonfinite: Nonfinite
    threads: int
    master: Master
    wire_dtype: Optional[HalfDtype]
    loss_scale: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    uneven_inputs: UnevenInputs
    share_dtype: Optional[HalfDtype]
    predivide_factor: float
    instances: int


# ---- Structs ----

LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
InterruptFn = c.CFUNCTYPE(c.c_int32, c.c_void_p)


class CommOptions(Struct):
    c_name = "zero_comm_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("timeout_ms", c.c_int64),
        ("late_ms", c.c_int64),
        ("rendezvous_ms", c.c_int64),
        ("device", c.c_int32),
        ("device_ordinal", c.c_int32),
        ("reduce_ctas", c.c_int32),
        ("gather_on_kernels", c.c_int32),
    ]


ExchangeFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
AllGatherFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
AllToAllFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
ReduceScatterFn = c.CFUNCTYPE(
    c.c_int32,
    c.c_void_p,
    c.c_void_p,
    c.c_void_p,
    c.c_size_t,
    c.c_int32,
    c.c_void_p,
)
SplitFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))
FreeFn = c.CFUNCTYPE(None, c.c_void_p)


class CommFunctions(Struct):
    c_name = "zero_comm_functions"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("exchange", ExchangeFn),
        ("all_gather", AllGatherFn),
        ("all_to_all", AllToAllFn),
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


class Rule(Struct):
    c_name = "zero_rule"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("setting_names", c.POINTER(c.c_char_p)),
        ("setting_defaults", c.POINTER(c.c_double)),
        ("setting_ranges", c.POINTER(c.c_char_p)),
        ("setting_count", c.c_size_t),
        ("slots", c.POINTER(c.c_char_p)),
        ("slot_settings", c.POINTER(c.c_char_p)),
        ("slot_count", c.c_size_t),
    ]


class Update(Struct):
    c_name = "zero_update"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("param", c.c_int64),
        ("name", c.c_char_p),
        ("shape", c.POINTER(c.c_int64)),
        ("ndim", c.c_int32),
        ("dtype", c.c_int32),
        ("first", c.c_int64),
        ("count", c.c_int64),
        ("values", c.c_void_p),
        ("gradient", c.c_void_p),
        ("slots", c.POINTER(c.c_void_p)),
        ("slot_count", c.c_size_t),
        ("step", c.c_int64),
        ("lr", c.c_double),
        ("weight_decay", c.c_double),
        ("setting_names", c.POINTER(c.c_char_p)),
        ("setting_values", c.POINTER(c.c_double)),
        ("setting_count", c.c_size_t),
        ("message", c.c_char_p),
        ("message_bytes", c.c_size_t),
    ]


UpdateFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(Update))


class CustomOptimizer(Struct):
    c_name = "zero_custom_optimizer"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("update", UpdateFn),
        ("ctx", c.c_void_p),
        ("slots", c.POINTER(c.c_char_p)),
        ("slot_count", c.c_size_t),
        ("setting_names", c.POINTER(c.c_char_p)),
        ("setting_values", c.POINTER(c.c_double)),
        ("setting_count", c.c_size_t),
        ("flags", c.c_int32),
        ("reserved", c.c_int32),
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
        ("master", c.c_int32),
        ("wire_dtype", c.c_int32),
        ("loss_scale", c.c_double),
        ("growth_factor", c.c_double),
        ("backoff_factor", c.c_double),
        ("growth_interval", c.c_int64),
        ("uneven_inputs", c.c_int32),
        ("share_dtype", c.c_int32),
        ("predivide_factor", c.c_double),
        ("custom", c.POINTER(CustomOptimizer)),
        ("overlap_gather", c.c_int32),
        ("instances", c.c_int32),
    ]


class GroupOptions(Struct):
    c_name = "zero_group_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("names", c.POINTER(c.c_char_p)),
        ("values", c.POINTER(c.c_double)),
        ("setting_count", c.c_size_t),
        ("optimizer", c.c_char_p),
        ("custom", c.POINTER(CustomOptimizer)),
        ("state_dtype", c.c_int32),
        ("reserved", c.c_int32),
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
        ("grad_dtype", c.c_int32),
        ("reserved", c.c_int32),
        ("lr_scale", c.c_double),
        ("weight_decay", c.c_double),
    ]


class Buffer(Struct):
    c_name = "zero_buffer"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("data", c.c_void_p),
        ("shape", c.POINTER(c.c_int64)),
        ("ndim", c.c_int32),
        ("dtype", c.c_int32),
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
        ("loss_scale", c.c_double),
    ]


class JoinOptions(Struct):
    c_name = "zero_join_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("grads", c.POINTER(c.c_void_p)),
        ("grad_count", c.c_size_t),
        ("stream", c.c_void_p),
    ]


class SaveOptions(Struct):
    c_name = "zero_save_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("flags", c.c_int32),
        ("reserved", c.c_int32),
    ]


class LoadOptions(Struct):
    c_name = "zero_load_options"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("flags", c.c_int32),
        ("reserved", c.c_int32),
    ]


class Checkpoint(Struct):
    c_name = "zero_checkpoint"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("step", c.c_int64),
        ("bytes", c.c_int64),
        ("world", c.c_int32),
        ("reserved", c.c_int32),
        ("name", c.c_char * 256),
    ]


class Plan(Struct):
    c_name = "zero_plan"
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("offsets", c.POINTER(c.c_int64)),
        ("owners", c.POINTER(c.c_int32)),
        ("elements", c.POINTER(c.c_int64)),
        ("arena_bytes", c.c_int64),
        ("state_bytes", c.c_int64),
        ("grad_offsets", c.POINTER(c.c_int64)),
        ("grad_arena_bytes", c.c_int64),
        ("comm", CommHandle),
        ("groups", c.POINTER(GroupOptions)),
        ("group_ends", c.POINTER(c.c_size_t)),
        ("group_count", c.c_size_t),
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
        ("early_elements", c.c_int64),
        ("early_updates", c.c_int64),
        ("host_waits", c.c_int64),
        ("idle_ranks", c.c_int64),
        ("sent_data_bytes", c.c_int64),
        ("sent_data_messages", c.c_int64),
        ("received_data_bytes", c.c_int64),
        ("received_data_messages", c.c_int64),
        ("sent_control_bytes", c.c_int64),
        ("sent_control_messages", c.c_int64),
        ("received_control_bytes", c.c_int64),
        ("received_control_messages", c.c_int64),
    ]


STRUCTS: tuple[type[Struct], ...] = (
    CommOptions,
    CommFunctions,
    Failure,
    Rule,
    Update,
    CustomOptimizer,
    Options,
    GroupOptions,
    Param,
    Buffer,
    StepOptions,
    Result,
    JoinOptions,
    SaveOptions,
    LoadOptions,
    Checkpoint,
    Plan,
    Statistics,
)

# ---- Functions ----

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "zero_version": (c.c_uint32, []),
    "zero_build_info": (c.c_char_p, []),
    "zero_last_error": (c.c_char_p, []),
    "zero_status_name": (c.c_char_p, [c.c_int32]),
    "zero_set_log_callback": (Status, [LogFn, c.c_void_p, c.c_int32]),
    "zero_set_interrupt_callback": (Status, [InterruptFn, c.c_void_p]),
    "zero_comm_create_solo": (Status, [c.POINTER(CommHandle), c.POINTER(CommOptions)]),
    "zero_comm_create_local": (Status, [
        c.POINTER(CommHandle),
        c.c_char_p,
        c.c_int32,
        c.c_int32,
        c.POINTER(CommOptions),
    ]),
    "zero_comm_create_env": (Status, [c.POINTER(CommHandle), c.POINTER(CommOptions)]),
    "zero_comm_create_user": (Status, [
        c.POINTER(CommHandle),
        c.POINTER(CommFunctions),
        c.c_void_p,
        c.c_int32,
        c.c_int32,
        c.POINTER(CommOptions),
    ]),
    "zero_nccl_unique_id": (Status, [c.c_void_p]),
    "zero_comm_create_nccl": (Status, [
        c.POINTER(CommHandle),
        c.c_void_p,
        c.c_int32,
        c.c_int32,
        c.POINTER(CommOptions),
    ]),
    "zero_comm_wrap_nccl": (Status, [c.POINTER(CommHandle), c.c_void_p, c.POINTER(CommOptions)]),
    "zero_comm_create_mpi": (Status, [
        c.POINTER(CommHandle),
        c.c_void_p,
        c.c_size_t,
        c.POINTER(CommOptions),
    ]),
    "zero_comm_split": (Status, [c.POINTER(CommHandle), CommHandle, c.c_int32, c.c_int32]),
    "zero_comm_rank": (c.c_int32, [CommHandle]),
    "zero_comm_world": (c.c_int32, [CommHandle]),
    "zero_comm_barrier": (Status, [CommHandle]),
    "zero_comm_broadcast": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32]),
    "zero_comm_all_reduce": (Status, [CommHandle, c.c_void_p, c.c_size_t, c.c_int32, c.c_int32]),
    "zero_comm_abort": (Status, [CommHandle, c.c_char_p]),
    "zero_comm_failure": (Status, [CommHandle, c.POINTER(Failure)]),
    "zero_trace_start": (Status, [CommHandle, c.c_char_p]),
    "zero_trace_stop": (Status, [CommHandle]),
    "zero_comm_free": (Status, [CommHandle]),
    "zero_arena_alloc": (Status, [CommHandle, c.c_size_t, c.c_int32, c.POINTER(c.c_void_p)]),
    "zero_arena_free": (Status, [c.c_void_p]),
    "zero_rule_info": (Status, [c.c_int32, c.POINTER(Rule)]),
    "zero_create": (Status, [c.POINTER(OptimHandle), CommHandle, c.POINTER(Options)]),
    "zero_register_params": (Status, [
        OptimHandle,
        c.POINTER(GroupOptions),
        c.POINTER(Param),
        c.c_size_t,
        c.POINTER(c.c_int32),
    ]),
    "zero_bind_params": (Status, [
        OptimHandle,
        c.POINTER(c.c_void_p),
        c.POINTER(c.c_void_p),
        c.c_size_t,
    ]),
    "zero_register_buffers": (Status, [OptimHandle, c.POINTER(Buffer), c.c_size_t]),
    "zero_seal": (Status, [OptimHandle]),
    "zero_free": (Status, [OptimHandle]),
    "zero_group_set": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.c_double]),
    "zero_group_get": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.POINTER(c.c_double)]),
    "zero_group_set_from": (Status, [OptimHandle, c.c_int32, c.c_char_p, c.c_void_p, c.c_int32]),
    "zero_param_set_trainable": (Status, [OptimHandle, c.c_int64, c.c_int32]),
    "zero_rebalance": (Status, [OptimHandle, c.POINTER(c.c_int32), c.c_size_t, c.c_void_p]),
    "zero_broadcast_params": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_broadcast_buffers": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_grad_ready": (Status, [OptimHandle, c.c_int64, c.c_void_p, c.c_void_p]),
    "zero_reduce_grads": (Status, [
        OptimHandle,
        c.POINTER(c.c_void_p),
        c.c_size_t,
        c.c_int32,
        c.c_void_p,
    ]),
    "zero_clip_grad_value": (Status, [OptimHandle, c.c_double, c.c_void_p]),
    "zero_clip_grad_norm": (Status, [
        OptimHandle,
        c.POINTER(c.c_int64),
        c.c_size_t,
        c.c_double,
        c.c_double,
        c.POINTER(c.c_double),
        c.c_void_p,
    ]),
    "zero_step": (Status, [OptimHandle, c.POINTER(StepOptions)]),
    "zero_step_begin": (Status, [OptimHandle, c.POINTER(StepOptions)]),
    "zero_step_result": (Status, [OptimHandle, c.POINTER(Result)]),
    "zero_param_wait": (Status, [OptimHandle, c.c_int64, c.c_void_p]),
    "zero_drop_grads": (Status, [OptimHandle]),
    "zero_grad_get": (Status, [OptimHandle, c.c_int64, c.c_int64, c.c_int64, c.c_void_p]),
    "zero_share_params": (Status, [OptimHandle, c.c_int32, c.c_void_p]),
    "zero_join": (Status, [OptimHandle, c.POINTER(JoinOptions), c.POINTER(c.c_int32)]),
    "zero_state_save": (Status, [OptimHandle, c.c_char_p, c.POINTER(SaveOptions)]),
    "zero_state_save_begin": (Status, [OptimHandle, c.c_char_p, c.POINTER(SaveOptions)]),
    "zero_state_save_poll": (Status, [OptimHandle, c.POINTER(c.c_int32)]),
    "zero_state_save_wait": (Status, [OptimHandle]),
    "zero_state_load": (Status, [OptimHandle, c.c_char_p, c.POINTER(LoadOptions)]),
    "zero_state_extra_set": (Status, [OptimHandle, c.c_char_p, c.c_void_p, c.c_size_t]),
    "zero_state_extra_get": (Status, [
        OptimHandle,
        c.c_int32,
        c.c_char_p,
        c.c_void_p,
        c.c_size_t,
        c.POINTER(c.c_size_t),
    ]),
    "zero_state_extra_list": (Status, [
        OptimHandle,
        c.POINTER(c.c_int32),
        c.POINTER(c.c_char_p),
        c.c_size_t,
        c.POINTER(c.c_size_t),
    ]),
    "zero_state_list": (Status, [
        c.c_char_p,
        c.POINTER(Checkpoint),
        c.c_size_t,
        c.POINTER(c.c_size_t),
    ]),
    "zero_state_prune": (Status, [c.c_char_p, c.c_int64, c.c_int64, c.POINTER(c.c_size_t)]),
    "zero_state_info": (Status, [
        OptimHandle,
        c.c_int64,
        c.POINTER(c.c_int32),
        c.POINTER(c.c_char_p),
        c.c_size_t,
        c.POINTER(c.c_size_t),
    ]),
    "zero_state_get": (Status, [
        OptimHandle,
        c.c_int64,
        c.c_char_p,
        c.c_int64,
        c.c_int64,
        c.c_void_p,
    ]),
    "zero_state_set": (Status, [
        OptimHandle,
        c.c_int64,
        c.c_char_p,
        c.c_int64,
        c.c_int64,
        c.c_void_p,
    ]),
    "zero_state_gather": (Status, [
        OptimHandle,
        c.c_int64,
        c.c_char_p,
        c.c_int32,
        c.c_void_p,
        c.c_size_t,
    ]),
    "zero_param_index": (Status, [OptimHandle, c.c_char_p, c.POINTER(c.c_int64)]),
    "zero_owned_ranges": (Status, [
        OptimHandle,
        c.c_int32,
        c.POINTER(c.c_int64),
        c.c_size_t,
        c.POINTER(c.c_size_t),
    ]),
    "zero_partition_plan": (Status, [
        c.POINTER(Param),
        c.c_size_t,
        c.c_int32,
        c.POINTER(Options),
        c.POINTER(Plan),
    ]),
    "zero_stats": (Status, [OptimHandle, c.POINTER(Statistics)]),
}
