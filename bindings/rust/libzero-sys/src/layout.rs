// SPDX-License-Identifier: Apache-2.0
//! The layout of 64-bit machines; tests/layout.rs compares every field with what a C compiler says.

use core::mem::offset_of;

use crate::structs::*;

const _: () = assert!(
    size_of::<zero_comm_options>() == 48 && offset_of!(zero_comm_options, gather_on_kernels) == 44
);
const _: () =
    assert!(size_of::<zero_comm_functions>() == 56 && offset_of!(zero_comm_functions, free) == 48);
const _: () = assert!(size_of::<zero_failure>() == 576 && offset_of!(zero_failure, text) == 60);
const _: () =
    assert!(size_of::<zero_update>() == 152 && offset_of!(zero_update, message_bytes) == 144);
const _: () = assert!(
    size_of::<zero_custom_optimizer>() == 80 && offset_of!(zero_custom_optimizer, reserved) == 76
);
const _: () = assert!(
    size_of::<zero_options>() == 144
        && offset_of!(zero_options, custom) == 128
        && offset_of!(zero_options, overlap_gather) == 136
);
const _: () = assert!(
    size_of::<zero_group_options>() == 32 && offset_of!(zero_group_options, setting_count) == 24
);
const _: () = assert!(size_of::<zero_param>() == 88 && offset_of!(zero_param, weight_decay) == 80);
const _: () = assert!(size_of::<zero_buffer>() == 40 && offset_of!(zero_buffer, dtype) == 36);
const _: () =
    assert!(size_of::<zero_step_options>() == 40 && offset_of!(zero_step_options, stream) == 32);
const _: () = assert!(size_of::<zero_result>() == 64 && offset_of!(zero_result, loss_scale) == 56);
const _: () =
    assert!(size_of::<zero_join_options>() == 32 && offset_of!(zero_join_options, stream) == 24);
const _: () =
    assert!(size_of::<zero_save_options>() == 16 && offset_of!(zero_save_options, reserved) == 12);
const _: () =
    assert!(size_of::<zero_load_options>() == 16 && offset_of!(zero_load_options, reserved) == 12);
const _: () =
    assert!(size_of::<zero_plan>() == 64 && offset_of!(zero_plan, grad_arena_bytes) == 56);
const _: () =
    assert!(size_of::<zero_statistics>() == 160 && offset_of!(zero_statistics, host_waits) == 152);
