// SPDX-License-Identifier: Apache-2.0
//! Functions.

use core::ffi::{c_char, c_void};

use crate::structs::*;
use crate::zero_status;

functions! {
    pub safe fn zero_version() -> u32;
    pub safe fn zero_build_info() -> *const c_char;
    pub safe fn zero_last_error() -> *const c_char;
    pub safe fn zero_status_name(status: zero_status) -> *const c_char;
    pub fn zero_set_log_callback(log: zero_log_fn, ctx: *mut c_void, max_level: i32)
    -> zero_status;
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
        parent: *mut zero_comm,
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
    pub fn zero_register_buffers(
        optim: *mut zero_optim,
        buffers: *const zero_buffer,
        count: usize,
    ) -> zero_status;
    pub fn zero_bind_params(
        optim: *mut zero_optim,
        data: *const *mut c_void,
        grads: *const *mut c_void,
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
    pub fn zero_param_set_trainable(optim: *mut zero_optim, param: i64, trainable: i32) -> zero_status;
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
    pub fn zero_grad_ready(
        optim: *mut zero_optim,
        param: i64,
        grad: *mut c_void,
        stream: *mut c_void,
    ) -> zero_status;
    pub fn zero_broadcast_buffers(
        optim: *mut zero_optim,
        root: i32,
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
    pub fn zero_param_wait(optim: *mut zero_optim, param: i64, stream: *mut c_void) -> zero_status;
    pub fn zero_step_begin(
        optim: *mut zero_optim,
        options: *const zero_step_options,
    ) -> zero_status;
    pub fn zero_step(optim: *mut zero_optim, options: *const zero_step_options) -> zero_status;
    pub fn zero_step_result(optim: *const zero_optim, result: *mut zero_result) -> zero_status;
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
    pub fn zero_rule_info(optimizer: i32, rule: *mut zero_rule) -> zero_status;
    pub fn zero_stats(optim: *const zero_optim, statistics: *mut zero_statistics) -> zero_status;
}
