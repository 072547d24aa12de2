// Made from include/zero.h by scripts/mirrors.py; do not edit.
// SPDX-License-Identifier: Apache-2.0
//! Constants, structs and functions. zero.h explains each one.

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

pub type zero_status = i32;

pub const ZERO_VERSION_MAJOR: u32 = 0;
pub const ZERO_VERSION_MINOR: u32 = 2;
pub const ZERO_VERSION_PATCH: u32 = 0;
pub const ZERO_OK: zero_status = 0;
pub const ZERO_SKIPPED: zero_status = 1;
pub const ZERO_ERR_ARGUMENT: zero_status = -1;
pub const ZERO_ERR_STATE: zero_status = -2;
pub const ZERO_ERR_BUSY: zero_status = -3;
pub const ZERO_ERR_FORKED: zero_status = -4;
pub const ZERO_ERR_UNSUPPORTED: zero_status = -5;
pub const ZERO_ERR_MEMORY: zero_status = -6;
pub const ZERO_ERR_MISMATCH: zero_status = -7;
pub const ZERO_ERR_PEER: zero_status = -8;
pub const ZERO_ERR_CKPT_IO: zero_status = -9;
pub const ZERO_ERR_CKPT_INVALID: zero_status = -10;
pub const ZERO_ERR_CKPT_MISMATCH: zero_status = -11;
pub const ZERO_ERR_NOT_LOADED: zero_status = -12;
pub const ZERO_ERR_RENDEZVOUS: zero_status = -13;
pub const ZERO_ERR_TIMEOUT: zero_status = -14;
pub const ZERO_ERR_PEER_DEAD: zero_status = -15;
pub const ZERO_ERR_DESYNC: zero_status = -16;
pub const ZERO_ERR_COMM: zero_status = -17;
pub const ZERO_ERR_ABORTED: zero_status = -18;
pub const ZERO_ERR_SYSTEM: zero_status = -19;
pub const ZERO_ERR_NONFINITE: zero_status = -20;
pub const ZERO_ERR_CALLBACK: zero_status = -21;
pub const ZERO_ERR_INTERRUPTED: zero_status = -22;
pub const ZERO_ERR_INTERNAL: zero_status = -99;
pub const ZERO_LOG_ERROR: i32 = 1;
pub const ZERO_LOG_WARNING: i32 = 2;
pub const ZERO_LOG_INFO: i32 = 3;
pub const ZERO_DEVICE_HOST: i32 = 0;
pub const ZERO_DEVICE_CUDA: i32 = 1;
pub const ZERO_ORDINAL_LOCAL_RANK: i32 = -1;
pub const ZERO_NCCL_ID_BYTES: i32 = 128;
pub const ZERO_FLOAT32: i32 = 1;
pub const ZERO_FLOAT64: i32 = 2;
pub const ZERO_INT32: i32 = 3;
pub const ZERO_INT64: i32 = 4;
pub const ZERO_BFLOAT16: i32 = 5;
pub const ZERO_FLOAT16: i32 = 6;
pub const ZERO_SUM: i32 = 1;
pub const ZERO_MIN: i32 = 2;
pub const ZERO_MAX: i32 = 3;
pub const ZERO_MEMORY_PER_RANK: i32 = 1;
pub const ZERO_MEMORY_SHARED: i32 = 2;
pub const ZERO_OPTIMIZER_ADAMW: i32 = 0;
pub const ZERO_OPTIMIZER_ADAM: i32 = 1;
pub const ZERO_OPTIMIZER_SGD: i32 = 2;
pub const ZERO_OPTIMIZER_RMSPROP: i32 = 3;
pub const ZERO_OPTIMIZER_ADAGRAD: i32 = 4;
pub const ZERO_OPTIMIZER_LION: i32 = 5;
pub const ZERO_OPTIMIZER_ADAMAX: i32 = 6;
pub const ZERO_OPTIMIZER_ADADELTA: i32 = 7;
pub const ZERO_OPTIMIZER_RADAM: i32 = 8;
pub const ZERO_OPTIMIZER_NADAM: i32 = 9;
pub const ZERO_OPTIMIZER_RPROP: i32 = 10;
pub const ZERO_OPTIMIZER_LAMB: i32 = 11;
pub const ZERO_OPTIMIZER_LARS: i32 = 12;
pub const ZERO_OPTIMIZER_ADAN: i32 = 13;
pub const ZERO_OPTIMIZER_ADEMAMIX: i32 = 14;
pub const ZERO_OPTIMIZER_CUSTOM: i32 = 100;
pub const ZERO_PARTITION_EVEN: i32 = 0;
pub const ZERO_PARTITION_GREEDY: i32 = 1;
pub const ZERO_PARTITION_GREEDY_IN_ORDER: i32 = 2;
pub const ZERO_PARTITION_MANUAL: i32 = 3;
pub const ZERO_NONFINITE_IGNORE: i32 = 0;
pub const ZERO_NONFINITE_SKIP: i32 = 1;
pub const ZERO_NONFINITE_ERROR: i32 = 2;
pub const ZERO_MASTER_FLOAT32: i32 = 0;
pub const ZERO_MASTER_REMAINDER: i32 = 1;
pub const ZERO_MASTER_NONE: i32 = 2;
pub const ZERO_STATE_DTYPE_FULL: i32 = 0;
pub const ZERO_STATE_DTYPE_BFLOAT16: i32 = 1;
pub const ZERO_UNEVEN_OFF: i32 = 0;
pub const ZERO_UNEVEN_WORLD: i32 = 1;
pub const ZERO_UNEVEN_ACTIVE: i32 = 2;
pub const ZERO_UNEVEN_ERROR: i32 = 3;
pub const ZERO_CUSTOM_WHOLE_TENSORS: i32 = 1;
pub const ZERO_PARAM_ORDER: i32 = 1;
pub const ZERO_PARAM_PADDED: i32 = 2;
pub const ZERO_PARAM_FROZEN: i32 = 4;
pub const ZERO_PARAM_LR_SCALE: i32 = 8;
pub const ZERO_PARAM_WEIGHT_DECAY: i32 = 16;
pub const ZERO_ALL_GROUPS: i32 = -1;
pub const ZERO_ROOT_NONE: i32 = -1;
pub const ZERO_REDUCE_MEAN: i32 = 0;
pub const ZERO_REDUCE_SUM: i32 = 1;
pub const ZERO_REDUCE_NONE: i32 = 2;
pub const ZERO_REDUCE_ACCUMULATE: i32 = 4;
pub const ZERO_ALL_PARAMS: i32 = -1;
pub const ZERO_SHARE_KEEP_MASTERS: i32 = 1;
pub const ZERO_SAVE_REPLACE: i32 = 1;
pub const ZERO_LOAD_KEEP_SETTINGS: i32 = 1;
pub const ZERO_ALL_RANKS: i32 = -1;
pub const ZERO_OWNER_SPLIT: i32 = -1;

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
    pub optimizer: *const c_char,
    pub custom: *const zero_custom_optimizer,
    pub state_dtype: i32,
    pub reserved: i32,
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
    pub groups: *const zero_group_options,
    pub group_ends: *const usize,
    pub group_count: usize,
}

/// The last word of a name is the unit; seconds are wall-clock time. parameter_elements,
/// owned_elements, idle_ranks, and the bytes of state, staging and control are the present values.
/// All other fields are totals since zero_create. "Other hosts" are all other ranks if the comm is
/// a user comm, because libzero does not know its hosts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zero_statistics {
    pub struct_size: usize,
    /// Elements of all registered parameters.
    pub parameter_elements: i64,
    /// Elements that this rank owns and updates.
    pub owned_elements: i64,
    /// Optimizer state on this rank, with master weights.
    pub state_bytes: i64,
    /// Staging for reductions, own rules, data outside arenas.
    pub staging_bytes: i64,
    /// Tables that other ranks read.
    pub control_bytes: i64,
    /// Bytes copied into and out of staging and host memory.
    pub copied_bytes: i64,
    /// Bytes read and written to reduce, update and publish.
    pub moved_bytes: i64,
    /// Steps taken, including steps of a loaded checkpoint.
    pub steps: i64,
    /// Steps skipped.
    pub skipped: i64,
    /// Gradient elements that were not finite, over all steps.
    pub nonfinite_elements: i64,
    /// On the host: time summing gradients before the update.
    pub gather_seconds: f64,
    /// Time spent waiting for the other ranks.
    pub vote_seconds: f64,
    /// On the host: time updating, including sums made there.
    pub apply_seconds: f64,
    /// On the host: time copying new parameters to all ranks.
    pub publish_seconds: f64,
    /// Time in zero_state_save, _save_begin and _save_wait.
    pub save_seconds: f64,
    /// Time in zero_state_load.
    pub load_seconds: f64,
    /// Gradient elements summed before a call needed them.
    pub early_elements: i64,
    /// Parameter elements updated before their zero_step.
    pub early_updates: i64,
    /// On a GPU: how often a call made the host wait.
    pub host_waits: i64,
    /// Ranks that own nothing because the model is too small.
    pub idle_ranks: i64,
    /// Gradients and parameters sent to other hosts.
    pub sent_data_bytes: i64,
    /// Messages that carried sent_data_bytes.
    pub sent_data_messages: i64,
    /// Gradients and parameters received from other hosts.
    pub received_data_bytes: i64,
    /// Messages that carried received_data_bytes.
    pub received_data_messages: i64,
    /// Control messages and broadcasts sent to other hosts.
    pub sent_control_bytes: i64,
    /// Messages that carried sent_control_bytes.
    pub sent_control_messages: i64,
    /// Control messages and broadcasts from other hosts.
    pub received_control_bytes: i64,
    /// Messages that carried received_control_bytes.
    pub received_control_messages: i64,
}

functions! {
    pub safe fn zero_version() -> u32;
    pub safe fn zero_build_info() -> *const c_char;
    pub safe fn zero_last_error() -> *const c_char;
    pub safe fn zero_status_name(status: zero_status) -> *const c_char;
    pub fn zero_set_log_callback(log: zero_log_fn, ctx: *mut c_void, max_level: i32) -> zero_status;
    pub fn zero_set_interrupt_callback(ask: zero_interrupt_fn, ctx: *mut c_void) -> zero_status;
    pub fn zero_comm_create_solo(
        out: *mut *mut zero_comm,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_create_local(
        out: *mut *mut zero_comm,
        name: *const c_char,
        rank: i32,
        world: i32,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_create_env(
        out: *mut *mut zero_comm,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_create_user(
        out: *mut *mut zero_comm,
        functions: *const zero_comm_functions,
        ctx: *mut c_void,
        rank: i32,
        world: i32,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_nccl_unique_id(id: *mut c_void) -> zero_status;
    pub fn zero_comm_create_nccl(
        out: *mut *mut zero_comm,
        id: *const c_void,
        rank: i32,
        world: i32,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_wrap_nccl(
        out: *mut *mut zero_comm,
        nccl_comm: *mut c_void,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_create_mpi(
        out: *mut *mut zero_comm,
        mpi_comm: *const c_void,
        mpi_comm_bytes: usize,
        options: *const zero_comm_options,
    ) -> zero_status;
    pub fn zero_comm_split(
        out: *mut *mut zero_comm,
        comm: *mut zero_comm,
        color: i32,
        key: i32,
    ) -> zero_status;
    pub fn zero_comm_rank(comm: *const zero_comm) -> i32;
    pub fn zero_comm_world(comm: *const zero_comm) -> i32;
    pub fn zero_comm_barrier(comm: *mut zero_comm) -> zero_status;
    pub fn zero_comm_broadcast(
        comm: *mut zero_comm,
        data: *mut c_void,
        bytes: usize,
        root: i32,
    ) -> zero_status;
    pub fn zero_comm_all_reduce(
        comm: *mut zero_comm,
        data: *mut c_void,
        count: usize,
        dtype: i32,
        operation: i32,
    ) -> zero_status;
    pub fn zero_comm_abort(comm: *mut zero_comm, reason: *const c_char) -> zero_status;
    pub fn zero_comm_failure(comm: *const zero_comm, failure: *mut zero_failure) -> zero_status;
    pub fn zero_trace_start(comm: *mut zero_comm, directory: *const c_char) -> zero_status;
    pub fn zero_trace_stop(comm: *mut zero_comm) -> zero_status;
    pub fn zero_comm_free(comm: *mut zero_comm) -> zero_status;
    pub fn zero_arena_alloc(
        comm: *mut zero_comm,
        bytes: usize,
        kind: i32,
        out: *mut *mut c_void,
    ) -> zero_status;
    pub fn zero_arena_free(arena: *mut c_void) -> zero_status;
    pub fn zero_rule_info(optimizer: i32, rule: *mut zero_rule) -> zero_status;
    pub fn zero_create(
        out: *mut *mut zero_optim,
        comm: *mut zero_comm,
        options: *const zero_options,
    ) -> zero_status;
    pub fn zero_register_params(
        optim: *mut zero_optim,
        options: *const zero_group_options,
        params: *const zero_param,
        count: usize,
        group: *mut i32,
    ) -> zero_status;
    pub fn zero_bind_params(
        optim: *mut zero_optim,
        data: *const *mut c_void,
        grads: *const *mut c_void,
        count: usize,
    ) -> zero_status;
    pub fn zero_register_buffers(
        optim: *mut zero_optim,
        buffers: *const zero_buffer,
        count: usize,
    ) -> zero_status;
    pub fn zero_seal(optim: *mut zero_optim) -> zero_status;
    pub fn zero_free(optim: *mut zero_optim) -> zero_status;
    pub fn zero_group_set(
        optim: *mut zero_optim,
        group: i32,
        name: *const c_char,
        value: f64,
    ) -> zero_status;
    pub fn zero_group_get(
        optim: *const zero_optim,
        group: i32,
        name: *const c_char,
        value: *mut f64,
    ) -> zero_status;
    pub fn zero_group_set_from(
        optim: *mut zero_optim,
        group: i32,
        name: *const c_char,
        data: *const c_void,
        dtype: i32,
    ) -> zero_status;
    pub fn zero_param_set_trainable(
        optim: *mut zero_optim,
        param: i64,
        trainable: i32,
    ) -> zero_status;
    pub fn zero_rebalance(
        optim: *mut zero_optim,
        owners: *const i32,
        count: usize,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_broadcast_params(
        optim: *mut zero_optim,
        root: i32,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_broadcast_buffers(
        optim: *mut zero_optim,
        root: i32,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_grad_ready(
        optim: *mut zero_optim,
        param: i64,
        grad: *mut c_void,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_reduce_grads(
        optim: *mut zero_optim,
        grads: *const *mut c_void,
        count: usize,
        flags: i32,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_clip_grad_value(
        optim: *mut zero_optim,
        max_value: f64,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_clip_grad_norm(
        optim: *mut zero_optim,
        params: *const i64,
        count: usize,
        max_norm: f64,
        norm_type: f64,
        norm: *mut f64,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_step(optim: *mut zero_optim, options: *const zero_step_options) -> zero_status;
    pub fn zero_step_begin(
        optim: *mut zero_optim,
        options: *const zero_step_options,
    ) -> zero_status;
    pub fn zero_step_result(optim: *const zero_optim, result: *mut zero_result) -> zero_status;
    pub fn zero_param_wait(optim: *mut zero_optim, param: i64, stream: *mut c_void) -> zero_status;
    pub fn zero_drop_grads(optim: *mut zero_optim) -> zero_status;
    pub fn zero_grad_get(
        optim: *const zero_optim,
        param: i64,
        first: i64,
        count: i64,
        values: *mut c_void,
    ) -> zero_status;
    pub fn zero_share_params(
        optim: *mut zero_optim,
        flags: i32,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_join(
        optim: *mut zero_optim,
        options: *const zero_join_options,
        last_rank: *mut i32,
    ) -> zero_status;
    pub fn zero_state_save(
        optim: *mut zero_optim,
        directory: *const c_char,
        options: *const zero_save_options,
    ) -> zero_status;
    pub fn zero_state_save_begin(
        optim: *mut zero_optim,
        directory: *const c_char,
        options: *const zero_save_options,
    ) -> zero_status;
    pub fn zero_state_save_poll(optim: *mut zero_optim, done: *mut i32) -> zero_status;
    pub fn zero_state_save_wait(optim: *mut zero_optim) -> zero_status;
    pub fn zero_state_load(
        optim: *mut zero_optim,
        directory: *const c_char,
        options: *const zero_load_options,
    ) -> zero_status;
    pub fn zero_state_extra_set(
        optim: *mut zero_optim,
        name: *const c_char,
        bytes: *const c_void,
        count: usize,
    ) -> zero_status;
    pub fn zero_state_extra_get(
        optim: *const zero_optim,
        rank: i32,
        name: *const c_char,
        bytes: *mut c_void,
        capacity: usize,
        count: *mut usize,
    ) -> zero_status;
    pub fn zero_state_extra_list(
        optim: *const zero_optim,
        ranks: *mut i32,
        names: *mut *const c_char,
        capacity: usize,
        count: *mut usize,
    ) -> zero_status;
    pub fn zero_state_list(
        directory: *const c_char,
        checkpoints: *mut zero_checkpoint,
        capacity: usize,
        count: *mut usize,
    ) -> zero_status;
    pub fn zero_state_prune(
        directory: *const c_char,
        keep_last: i64,
        keep_every: i64,
        deleted: *mut usize,
    ) -> zero_status;
    pub fn zero_state_info(
        optim: *const zero_optim,
        param: i64,
        dtype: *mut i32,
        names: *mut *const c_char,
        capacity: usize,
        count: *mut usize,
    ) -> zero_status;
    pub fn zero_state_get(
        optim: *const zero_optim,
        param: i64,
        name: *const c_char,
        first: i64,
        count: i64,
        values: *mut c_void,
    ) -> zero_status;
    pub fn zero_state_set(
        optim: *mut zero_optim,
        param: i64,
        name: *const c_char,
        first: i64,
        count: i64,
        values: *const c_void,
    ) -> zero_status;
    pub fn zero_state_gather(
        optim: *mut zero_optim,
        param: i64,
        name: *const c_char,
        to: i32,
        values: *mut c_void,
        count: usize,
    ) -> zero_status;
    pub fn zero_param_index(
        optim: *const zero_optim,
        name: *const c_char,
        index: *mut i64,
    ) -> zero_status;
    pub fn zero_owned_ranges(
        optim: *const zero_optim,
        rank: i32,
        ranges: *mut i64,
        capacity: usize,
        count: *mut usize,
    ) -> zero_status;
    pub fn zero_partition_plan(
        params: *const zero_param,
        count: usize,
        world: i32,
        options: *const zero_options,
        plan: *mut zero_plan,
    ) -> zero_status;
    pub fn zero_stats(optim: *const zero_optim, statistics: *mut zero_statistics) -> zero_status;
}

/// `$what! { zero_options { struct_size, ... } ... }`, with all structs.
#[doc(hidden)]
#[macro_export]
macro_rules! with_all_structs {
    ($what:ident) => {
        $what! {
            zero_comm_options { struct_size, timeout_ms, late_ms, rendezvous_ms, device, device_ordinal, reduce_ctas, gather_on_kernels }
            zero_comm_functions { struct_size, exchange, all_gather, all_to_all, reduce_scatter, split, free }
            zero_failure { struct_size, status, rank, step, params_consistent, phase, text }
            zero_rule { struct_size, name, setting_names, setting_defaults, setting_ranges, setting_count, slots, slot_settings, slot_count }
            zero_update { struct_size, param, name, shape, ndim, dtype, first, count, values, gradient, slots, slot_count, step, lr, weight_decay, setting_names, setting_values, setting_count, message, message_bytes }
            zero_custom_optimizer { struct_size, name, update, ctx, slots, slot_count, setting_names, setting_values, setting_count, flags, reserved }
            zero_options { struct_size, optimizer, partition, bucket_bytes, max_grad_norm, grad_norm_type, nonfinite, threads, names, values, setting_count, master, wire_dtype, loss_scale, growth_factor, backoff_factor, growth_interval, uneven_inputs, share_dtype, predivide_factor, custom, overlap_gather, instances }
            zero_group_options { struct_size, names, values, setting_count, optimizer, custom, state_dtype, reserved }
            zero_param { struct_size, name, data, grad, shape, ndim, dtype, owner, flags, order, grad_dtype, reserved, lr_scale, weight_decay }
            zero_buffer { struct_size, name, data, shape, ndim, dtype }
            zero_step_options { struct_size, grads, grad_count, reduce_flags, reserved, stream }
            zero_result { struct_size, step, skipped, nonfinite, grad_norm, clip_factor, status, reserved, loss_scale }
            zero_join_options { struct_size, grads, grad_count, stream }
            zero_save_options { struct_size, flags, reserved }
            zero_load_options { struct_size, flags, reserved }
            zero_checkpoint { struct_size, step, bytes, world, reserved, name }
            zero_plan { struct_size, offsets, owners, elements, arena_bytes, state_bytes, grad_offsets, grad_arena_bytes, comm, groups, group_ends, group_count }
            zero_statistics { struct_size, parameter_elements, owned_elements, state_bytes, staging_bytes, control_bytes, copied_bytes, moved_bytes, steps, skipped, nonfinite_elements, gather_seconds, vote_seconds, apply_seconds, publish_seconds, save_seconds, load_seconds, early_elements, early_updates, host_waits, idle_ranks, sent_data_bytes, sent_data_messages, received_data_bytes, received_data_messages, sent_control_bytes, sent_control_messages, received_control_bytes, received_control_messages }
        }
    };
}
