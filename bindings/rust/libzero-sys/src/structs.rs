// SPDX-License-Identifier: Apache-2.0
//! Structs, which grow at their end: the caller says how much of one it knows.

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

use crate::zero_status;

/// A token of the library, never dereferenced.
#[repr(C)]
pub struct zero_comm {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A token of the library, never dereferenced.
#[repr(C)]
pub struct zero_optim {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

pub type zero_log_fn =
    Option<unsafe extern "C" fn(ctx: *mut c_void, level: i32, message: *const c_char)>;
pub type zero_interrupt_fn = Option<unsafe extern "C" fn(ctx: *mut c_void) -> i32>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_comm_options {
    pub struct_size: usize,
    pub timeout_ms: i64,
    pub late_ms: i64,
    pub rendezvous_ms: i64,
    pub device: i32,
    pub device_ordinal: i32,
    pub reduce_ctas: i32,
    pub gather_on_kernels: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_comm_functions {
    pub struct_size: usize,
    pub exchange: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            send: *const c_void,
            recv: *mut c_void,
            bytes: usize,
        ) -> zero_status,
    >,
    pub all_gather: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            send: *const c_void,
            recv: *mut c_void,
            bytes: usize,
            stream: *mut c_void,
        ) -> zero_status,
    >,
    pub all_to_all: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            send: *const c_void,
            recv: *mut c_void,
            bytes: usize,
            stream: *mut c_void,
        ) -> zero_status,
    >,
    pub reduce_scatter: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: i32,
            stream: *mut c_void,
        ) -> zero_status,
    >,
    pub split: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            color: i32,
            rank: i32,
            world: i32,
            child_ctx: *mut *mut c_void,
        ) -> zero_status,
    >,
    pub free: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_failure {
    pub struct_size: usize,
    pub status: zero_status,
    pub rank: i32,
    pub step: i64,
    pub params_consistent: i32,
    pub phase: [c_char; 32],
    pub text: [c_char; 512],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_update {
    pub struct_size: usize,
    pub param: i64,
    pub name: *const c_char,
    pub shape: *const i64,
    pub ndim: i32,
    pub dtype: i32,
    pub first: i64,
    pub count: i64,
    pub values: *mut c_void,
    pub gradient: *mut c_void,
    pub slots: *const *mut c_void,
    pub slot_count: usize,
    pub step: i64,
    pub lr: f64,
    pub weight_decay: f64,
    pub setting_names: *const *const c_char,
    pub setting_values: *const f64,
    pub setting_count: usize,
    pub message: *mut c_char,
    pub message_bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_custom_optimizer {
    pub struct_size: usize,
    pub name: *const c_char,
    pub update:
        Option<unsafe extern "C" fn(ctx: *mut c_void, update: *const zero_update) -> zero_status>,
    pub ctx: *mut c_void,
    pub slots: *const *const c_char,
    pub slot_count: usize,
    pub setting_names: *const *const c_char,
    pub setting_values: *const f64,
    pub setting_count: usize,
    pub flags: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_options {
    pub struct_size: usize,
    pub optimizer: i32,
    pub partition: i32,
    pub bucket_bytes: i64,
    pub max_grad_norm: f64,
    pub grad_norm_type: f64,
    pub nonfinite: i32,
    pub threads: i32,
    pub names: *const *const c_char,
    pub values: *const f64,
    pub setting_count: usize,
    pub master: i32,
    pub wire_dtype: i32,
    pub loss_scale: f64,
    pub growth_factor: f64,
    pub backoff_factor: f64,
    pub growth_interval: i64,
    pub uneven_inputs: i32,
    pub share_dtype: i32,
    pub predivide_factor: f64,
    pub custom: *const zero_custom_optimizer,
    pub overlap_gather: i32,
    pub instances: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_group_options {
    pub struct_size: usize,
    pub names: *const *const c_char,
    pub values: *const f64,
    pub setting_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_param {
    pub struct_size: usize,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub grad: *mut c_void,
    pub shape: *const i64,
    pub ndim: i32,
    pub dtype: i32,
    pub owner: i32,
    pub flags: i32,
    pub order: i64,
    pub grad_dtype: i32,
    pub reserved: i32,
    pub lr_scale: f64,
    pub weight_decay: f64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_buffer {
    pub struct_size: usize,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub shape: *const i64,
    pub ndim: i32,
    pub dtype: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_step_options {
    pub struct_size: usize,
    pub grads: *const *mut c_void,
    pub grad_count: usize,
    pub reduce_flags: i32,
    pub reserved: i32,
    pub stream: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_result {
    pub struct_size: usize,
    pub step: i64,
    pub skipped: i64,
    pub nonfinite: i64,
    pub grad_norm: f64,
    pub clip_factor: f64,
    pub status: zero_status,
    pub reserved: i32,
    pub loss_scale: f64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_join_options {
    pub struct_size: usize,
    pub grads: *const *mut c_void,
    pub grad_count: usize,
    pub stream: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_save_options {
    pub struct_size: usize,
    pub flags: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_load_options {
    pub struct_size: usize,
    pub flags: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_checkpoint {
    pub struct_size: usize,
    pub step: i64,
    pub bytes: i64,
    pub world: i32,
    pub reserved: i32,
    pub name: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_plan {
    pub struct_size: usize,
    pub offsets: *mut i64,
    pub owners: *mut i32,
    pub elements: *mut i64,
    pub arena_bytes: i64,
    pub state_bytes: i64,
    pub grad_offsets: *mut i64,
    pub grad_arena_bytes: i64,
    pub comm: *const zero_comm,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_rule {
    pub struct_size: usize,
    pub name: *const c_char,
    pub setting_names: *const *const c_char,
    pub setting_defaults: *const f64,
    pub setting_ranges: *const *const c_char,
    pub setting_count: usize,
    pub slots: *const *const c_char,
    pub slot_settings: *const *const c_char,
    pub slot_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_statistics {
    pub struct_size: usize,
    pub parameter_elements: i64,
    pub owned_elements: i64,
    pub state_bytes: i64,
    pub staging_bytes: i64,
    pub control_bytes: i64,
    pub copied_bytes: i64,
    pub moved_bytes: i64,
    pub steps: i64,
    pub skipped: i64,
    pub nonfinite_elements: i64,
    pub gather_seconds: f64,
    pub vote_seconds: f64,
    pub apply_seconds: f64,
    pub publish_seconds: f64,
    pub save_seconds: f64,
    pub load_seconds: f64,
    pub early_elements: i64,
    pub early_updates: i64,
    pub host_waits: i64,
    pub idle_ranks: i64,
    pub sent_data_bytes: i64,
    pub sent_data_messages: i64,
    pub received_data_bytes: i64,
    pub received_data_messages: i64,
    pub sent_control_bytes: i64,
    pub sent_control_messages: i64,
    pub received_control_bytes: i64,
    pub received_control_messages: i64,
}

/// The layout of 64-bit machines; tests/layout.rs compares every field with what a C compiler says.
#[cfg(target_pointer_width = "64")]
mod layout {
    use core::mem::offset_of;

    use super::*;

    const _: () = assert!(
        size_of::<zero_comm_options>() == 48
            && offset_of!(zero_comm_options, gather_on_kernels) == 44
    );
    const _: () = assert!(
        size_of::<zero_comm_functions>() == 56 && offset_of!(zero_comm_functions, free) == 48
    );
    const _: () =
        assert!(size_of::<zero_checkpoint>() == 288 && offset_of!(zero_checkpoint, name) == 32);
    const _: () = assert!(size_of::<zero_failure>() == 576 && offset_of!(zero_failure, text) == 60);
    const _: () =
        assert!(size_of::<zero_update>() == 152 && offset_of!(zero_update, message_bytes) == 144);
    const _: () = assert!(
        size_of::<zero_custom_optimizer>() == 80
            && offset_of!(zero_custom_optimizer, reserved) == 76
    );
    const _: () = assert!(
        size_of::<zero_options>() == 144
            && offset_of!(zero_options, custom) == 128
            && offset_of!(zero_options, instances) == 140
    );
    const _: () = assert!(
        size_of::<zero_group_options>() == 32
            && offset_of!(zero_group_options, setting_count) == 24
    );
    const _: () =
        assert!(size_of::<zero_param>() == 88 && offset_of!(zero_param, weight_decay) == 80);
    const _: () = assert!(size_of::<zero_buffer>() == 40 && offset_of!(zero_buffer, dtype) == 36);
    const _: () = assert!(
        size_of::<zero_step_options>() == 40 && offset_of!(zero_step_options, stream) == 32
    );
    const _: () =
        assert!(size_of::<zero_result>() == 64 && offset_of!(zero_result, loss_scale) == 56);
    const _: () = assert!(
        size_of::<zero_join_options>() == 32 && offset_of!(zero_join_options, stream) == 24
    );
    const _: () = assert!(
        size_of::<zero_save_options>() == 16 && offset_of!(zero_save_options, reserved) == 12
    );
    const _: () = assert!(
        size_of::<zero_load_options>() == 16 && offset_of!(zero_load_options, reserved) == 12
    );
    const _: () = assert!(size_of::<zero_plan>() == 72 && offset_of!(zero_plan, comm) == 64);
    const _: () = assert!(
        size_of::<zero_statistics>() == 232
            && offset_of!(zero_statistics, received_control_messages) == 224
    );
}
