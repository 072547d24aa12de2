// SPDX-License-Identifier: Apache-2.0
//! Every struct has the layout that a C compiler gives it: layout.c prints it as JSON, the macro below
//! prints the same for the Rust declarations. ZERO_LAYOUT names a built layout program.
use std::env;
use std::fs;
use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use libzero_sys::*;

fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($($name:ident { $($field:ident),* },)*) => {{
        let structs: Vec<String> = vec![$({
            let fields: Vec<String> = vec![$(format!(
                r#""{}":{{"offset":{},"size":{}}}"#,
                stringify!($field),
                offset_of!($name, $field),
                size_of_field(|it: &$name| &it.$field),
            )),*];
            format!(
                r#""{}":{{"size":{},"align":{},"fields":{{{}}}}}"#,
                stringify!($name),
                size_of::<$name>(),
                align_of::<$name>(),
                fields.join(","),
            )
        }),*];
        format!("{{{}}}", structs.join(","))
    }};
}

fn rust_layout() -> String {
    layout! {
        zero_comm_options {
            struct_size, timeout_ms, late_ms, rendezvous_ms, device, device_ordinal, reduce_ctas,
            gather_on_kernels
        },
        zero_comm_functions { struct_size, exchange, all_gather, all_to_all, reduce_scatter, split, free },
        zero_failure { struct_size, status, rank, step, params_consistent, phase, text },
        zero_rule { struct_size, name, setting_names, setting_defaults, setting_ranges, setting_count, slots, slot_settings, slot_count },
        zero_update { struct_size, param, name, shape, ndim, dtype, first, count, values, gradient, slots, slot_count, step, lr, weight_decay, setting_names, setting_values, setting_count, message, message_bytes },
        zero_custom_optimizer { struct_size, name, update, ctx, slots, slot_count, setting_names, setting_values, setting_count, flags, reserved },
        zero_options { struct_size, optimizer, partition, bucket_bytes, max_grad_norm, grad_norm_type, nonfinite, threads, names, values, setting_count, master, wire_dtype, loss_scale, growth_factor, backoff_factor, growth_interval, uneven_inputs, share_dtype, predivide_factor, custom, overlap_gather, instances },
        zero_group_options { struct_size, names, values, setting_count },
        zero_param { struct_size, name, data, grad, shape, ndim, dtype, owner, flags, order, grad_dtype, reserved, lr_scale, weight_decay },
        zero_buffer { struct_size, name, data, shape, ndim, dtype },
        zero_step_options { struct_size, grads, grad_count, reduce_flags, reserved, stream },
        zero_result { struct_size, step, skipped, nonfinite, grad_norm, clip_factor, status, reserved, loss_scale },
        zero_join_options { struct_size, grads, grad_count, stream },
        zero_save_options { struct_size, flags, reserved },
        zero_load_options { struct_size, flags, reserved },
        zero_checkpoint { struct_size, step, bytes, world, reserved, name },
        zero_plan { struct_size, offsets, owners, elements, arena_bytes, state_bytes, grad_offsets, grad_arena_bytes, comm },
        zero_statistics { struct_size, parameter_elements, owned_elements, state_bytes, staging_bytes, control_bytes, copied_bytes, moved_bytes, steps, skipped, nonfinite_elements, gather_seconds, vote_seconds, apply_seconds, publish_seconds, save_seconds, load_seconds, early_elements, early_updates, host_waits, idle_ranks, sent_data_bytes, sent_data_messages, received_data_bytes, received_data_messages, sent_control_bytes, sent_control_messages, received_control_bytes, received_control_messages },
    }
}

fn layout_program() -> PathBuf {
    if let Some(program) = env::var_os("ZERO_LAYOUT") {
        return program.into();
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let made = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = made.join("layout");
    let rows = Command::new("python3")
        .arg(checkout.join("tests/abi/layout_rows.py"))
        .arg(checkout.join("include/zero.h"))
        .output();
    fs::write(made.join("layout_rows.h"), rows.expect("Python runs").stdout)
        .expect("rows are written");
    let built = Command::new(env::var("CC").unwrap_or("cc".into()))
        .arg("-I")
        .arg(checkout.join("include"))
        .arg("-I")
        .arg(made)
        .arg(checkout.join("tests/abi/layout.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.expect("a C compiler runs").success());
    program
}

#[test]
fn structs_lie_in_memory_as_in_c() {
    let output = Command::new(layout_program()).output().expect("layout runs");
    let printed = String::from_utf8(output.stdout).expect("layout prints text");
    let c_layout: String = printed.split_whitespace().collect();
    assert!(c_layout.len() > 1000, "too little was printed: {c_layout}");
    assert_eq!(rust_layout(), c_layout);
}
