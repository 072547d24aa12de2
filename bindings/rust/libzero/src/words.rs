// SPDX-License-Identifier: Apache-2.0
//! Replaces the names of zero.h with the names of this crate in messages of the library.

/// Functions whose method has an irregular name. Regular names are, for example, `Comm::local` for
/// `zero_comm_create_local`, `Comm::barrier` for `zero_comm_barrier`, and `Optim::step` for
/// `zero_step`.
const CALLS: &[(&str, &str)] = &[
    ("zero_arena_alloc", "Comm::arena"),
    ("zero_arena_free", "Arena::drop"),
    ("zero_bind_params", "Optim::bind_raw"),
    ("zero_comm_abort", "Watcher::abort"),
    ("zero_comm_create_env", "Comm::from_env"),
    ("zero_comm_failure", "Watcher::failure"),
    ("zero_comm_free", "Comm::drop"),
    ("zero_create", "Optim::new"),
    ("zero_free", "Optim::drop"),
    ("zero_group_get", "Optim::get"),
    ("zero_group_set", "Optim::set"),
    ("zero_group_set_from", "Optim::set_from"),
    ("zero_nccl_unique_id", "NcclId::draw"),
    ("zero_param_set_trainable", "Optim::set_trainable"),
    ("zero_partition_plan", "partition_plan"),
    ("zero_register_buffers", "Optim::add_buffers"),
    ("zero_register_params", "Optim::add"),
    ("zero_rule_info", "Optimizer::rule"),
    ("zero_set_interrupt_callback", "set_interrupt"),
    ("zero_set_log_callback", "set_logger"),
    ("zero_state_info", "Optim::state_names"),
    ("zero_state_list", "list_checkpoints"),
    ("zero_state_load", "Optim::load"),
    ("zero_state_prune", "prune_checkpoints"),
    ("zero_state_save", "Optim::save"),
    ("zero_state_save_begin", "Optim::save_begin"),
    ("zero_state_save_poll", "Optim::save_ended"),
    ("zero_state_save_wait", "Optim::save_wait"),
    ("zero_step_result", "Optim::result"),
    ("zero_trace_start", "Comm::trace_start"),
    ("zero_trace_stop", "Comm::trace_stop"),
];
/// Calls that appear in no message, and structs.
const OTHERS: &[&str] = &[
    "zero_buffer",
    "zero_build_info",
    "zero_checkpoint",
    "zero_comm_functions",
    "zero_custom_optimizer",
    "zero_failure",
    "zero_format",
    "zero_last_error",
    "zero_param",
    "zero_plan",
    "zero_result",
    "zero_rule",
    "zero_statistics",
    "zero_status_name",
    "zero_update",
    "zero_version",
];
const CONSTANTS: &[(&str, &str)] = &[
    ("ZERO_BFLOAT16", "Dtype::Bf16"),
    ("ZERO_CUSTOM_WHOLE_TENSORS", "CustomRule::whole_tensors"),
    ("ZERO_DEVICE_CUDA", "Device::Cuda"),
    ("ZERO_DEVICE_HOST", "Device::Host"),
    ("ZERO_FLOAT16", "Dtype::F16"),
    ("ZERO_FLOAT32", "Dtype::F32"),
    ("ZERO_FLOAT64", "Dtype::F64"),
    ("ZERO_INT32", "Dtype::I32"),
    ("ZERO_INT64", "Dtype::I64"),
    ("ZERO_LOAD_KEEP_SETTINGS", "keep_settings = true"),
    ("ZERO_MASTER_FLOAT32", "Master::Float32"),
    ("ZERO_MASTER_NONE", "Master::None"),
    ("ZERO_MASTER_REMAINDER", "Master::Remainder"),
    ("ZERO_MAX", "Operation::Max"),
    ("ZERO_MEMORY_PER_RANK", "Memory::PerRank"),
    ("ZERO_MEMORY_SHARED", "Memory::Shared"),
    ("ZERO_MIN", "Operation::Min"),
    ("ZERO_NONFINITE_ERROR", "Nonfinite::Error"),
    ("ZERO_NONFINITE_IGNORE", "Nonfinite::Ignore"),
    ("ZERO_NONFINITE_SKIP", "Nonfinite::Skip"),
    ("ZERO_OPTIMIZER_CUSTOM", "a CustomRule"),
    ("ZERO_ORDINAL_LOCAL_RANK", "Device::CudaOfLocalRank"),
    ("ZERO_PARTITION_EVEN", "Partition::Even"),
    ("ZERO_PARTITION_GREEDY", "Partition::Greedy"),
    ("ZERO_PARTITION_GREEDY_IN_ORDER", "Partition::GreedyInOrder"),
    ("ZERO_PARTITION_MANUAL", "Partition::Manual"),
    ("ZERO_REDUCE_ACCUMULATE", "Reduction::accumulate"),
    ("ZERO_REDUCE_MEAN", "Reduction::Mean"),
    ("ZERO_REDUCE_NONE", "Reduction::None"),
    ("ZERO_REDUCE_SUM", "Reduction::Sum"),
    ("ZERO_SAVE_REPLACE", "replace = true"),
    ("ZERO_SHARE_KEEP_MASTERS", "keep_masters = true"),
    ("ZERO_STATE_DTYPE_BFLOAT16", "StateDtype::Bf16"),
    ("ZERO_STATE_DTYPE_FULL", "StateDtype::Full"),
    ("ZERO_SUM", "Operation::Sum"),
    ("ZERO_UNEVEN_ACTIVE", "UnevenInputs::Active"),
    ("ZERO_UNEVEN_ERROR", "UnevenInputs::Error"),
    ("ZERO_UNEVEN_OFF", "UnevenInputs::Off"),
    ("ZERO_UNEVEN_WORLD", "UnevenInputs::World"),
];

/// Returns the message with the names of this crate. Quoted text and paths belong to the program,
/// and are not changed.
pub(crate) fn in_rust(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_of_word) {
        let (before, from) = rest.split_at(at);
        told.push_str(before);
        let (word, behind) = from.split_at(from.find(|one| !is_of_word(one)).unwrap_or(from.len()));
        rest = behind;
        if told.ends_with(['\'', '"', '/', '.', '-']) {
            told.push_str(word);
        } else if is_struct(word) && rest.starts_with('.') && rest[1..].starts_with(is_of_word) {
            // Keep only the field. The rest is copied unchanged.
            let field = &rest[1..];
            let end = field.find(|one| !is_of_word(one)).unwrap_or(field.len());
            told.push_str(&field[..end]);
            rest = &field[end..];
        } else {
            told.push_str(&word_of(word));
        }
    }
    told + rest
}

fn is_of_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}

fn is_struct(word: &str) -> bool {
    word.starts_with("zero_") && word.ends_with("_options")
}

fn word_of(word: &str) -> String {
    if let Some((_, told)) = CALLS.iter().chain(CONSTANTS).find(|(known, _)| *known == word) {
        return (*told).to_owned();
    }
    match word.strip_prefix("zero_") {
        Some(call) if is_call(word) => match call.strip_prefix("comm_") {
            Some(of_comm) => {
                format!("Comm::{}", of_comm.strip_prefix("create_").unwrap_or(of_comm))
            }
            None => format!("Optim::{call}"),
        },
        _ => word.to_owned(),
    }
}

/// Returns whether a word is the name of a call that has a method.
fn is_call(word: &str) -> bool {
    word.starts_with("zero_") && !word.ends_with("_options") && !OTHERS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::{CALLS, in_rust, is_call, word_of};

    fn source_has(method: &str) -> bool {
        let sources = concat!(
            include_str!("arena.rs"),
            include_str!("buffers.rs"),
            include_str!("checkpoints.rs"),
            include_str!("comm.rs"),
            include_str!("extras.rs"),
            include_str!("inspect.rs"),
            include_str!("interrupt.rs"),
            include_str!("join.rs"),
            include_str!("log.rs"),
            include_str!("optim.rs"),
            include_str!("plan.rs"),
            include_str!("register.rs"),
            include_str!("rules.rs"),
            include_str!("saves.rs"),
            include_str!("settings.rs"),
            include_str!("state.rs"),
            include_str!("steps.rs"),
        );
        [format!("fn {method}("), format!("fn {method}<")].iter().any(|one| sources.contains(one))
    }

    #[test]
    fn every_call_is_told_by_a_method_that_exists() {
        let functions = include_str!("../../libzero-sys/src/zero_h.rs");
        let names = functions.split("fn zero_").skip(1).filter_map(|one| one.split('(').next());
        let calls: Vec<String> =
            names.map(|one| format!("zero_{one}")).filter(|one| is_call(one)).collect();
        assert!(calls.len() > 50, "{calls:?}");
        for call in &calls {
            let told = word_of(call);
            let method = told.rsplit("::").next().unwrap_or(&told);
            assert!(source_has(method), "{call}: {told}");
        }
        for (call, _) in CALLS {
            assert!(calls.iter().any(|one| one == call), "{call}");
        }
    }

    #[test]
    fn words_of_the_header_alone_are_replaced() {
        for (text, told) in [
            (
                "zero_step: rank 1 in zero_broadcast_params",
                "Optim::step: rank 1 in Optim::broadcast_params",
            ),
            ("zero_join needs zero_options.uneven_inputs.", "Optim::join needs uneven_inputs."),
            ("save elsewhere, or with ZERO_SAVE_REPLACE", "save elsewhere, or with replace = true"),
            ("'zero_step' of /run/zero_step", "'zero_step' of /run/zero_step"),
            ("set ZERO_MASTER_ADDR (ZERO_ERR_STATE)", "set ZERO_MASTER_ADDR (ZERO_ERR_STATE)"),
            ("größer als zero_step", "größer als Optim::step"),
        ] {
            assert_eq!(in_rust(text), told);
        }
    }
}
