# SPDX-License-Identifier: Apache-2.0
"""The types of zero.h in ctypes: handles, functions of the caller, structs in the header's order.

tests/abi/check_bindings.py compares all of it with the header."""

from __future__ import annotations

import ctypes as c
from typing import Any, TypeVar

H = TypeVar("H", bound="Handle")


class Handle(c.c_void_p):
    """A token of the library. One that is closed or of another kind never reaches C. `owner` is the
    class that has such ones."""

    owner = ""

    @classmethod
    def from_param(cls, value: object) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"a handle of {cls.owner} is needed, not {type(value).__name__}")
        if not value.value:
            raise ValueError(f"this {cls.owner} is closed")
        return value

    def open(self: H) -> H:
        """This handle; ValueError if it is closed. (ctypes wraps what from_param raises.)"""
        return type(self).from_param(self)  # type: ignore[no-any-return]


class CommHandle(Handle):
    owner = "Comm"


class OptimHandle(Handle):
    owner = "Optimizer"


LogFn = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
InterruptFn = c.CFUNCTYPE(c.c_int32, c.c_void_p)
ExchangeFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
MoveFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
ReduceScatterFn = c.CFUNCTYPE(
    c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32, c.c_void_p
)
SplitFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))
FreeFn = c.CFUNCTYPE(None, c.c_void_p)


class Struct(c.Structure):
    """A struct of zero.h: `c_name` is its name there, and its first field its size."""

    c_name = ""


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


class ModelBuffer(Struct):
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
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_int32), ("reserved", c.c_int32)]


class LoadOptions(Struct):
    c_name = "zero_load_options"
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_int32), ("reserved", c.c_int32)]


class CheckpointOf(Struct):
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
    Update,
    CustomOptimizer,
    Options,
    GroupOptions,
    Param,
    ModelBuffer,
    StepOptions,
    Result,
    JoinOptions,
    SaveOptions,
    LoadOptions,
    CheckpointOf,
    Plan,
    Rule,
    Statistics,
)
