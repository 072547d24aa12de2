/* SPDX-License-Identifier: Apache-2.0 */
/* Prints size, alignment, offsets and field sizes of every struct of zero.h as JSON: the one truth
 * that the bindings' tests compare their own declarations with. check_layout.py keeps it complete.
 */
#include <stddef.h>
#include <stdio.h>

#include "zero.h"

/* clang-format off */
static const char *g_between = "";

#define STRUCT(type)                                                                             \
  printf("%s\n  \"%s\": {\"size\": %zu, \"align\": %zu, \"fields\": {", g_between, #type,         \
         sizeof(type), offsetof(struct { char before; type it; }, it));                          \
  g_between = "";

#define FIELD(type, field)                                                                       \
  printf("%s\n    \"%s\": {\"offset\": %zu, \"size\": %zu}", g_between, #field,                   \
         offsetof(type, field), sizeof(((type *)0)->field));                                     \
  g_between = ",";

#define END()      \
  printf("}}");    \
  g_between = ",";

int main(void) {
  printf("{");

  STRUCT(zero_comm_options)
  FIELD(zero_comm_options, struct_size)
  FIELD(zero_comm_options, timeout_ms)
  FIELD(zero_comm_options, late_ms)
  FIELD(zero_comm_options, rendezvous_ms)
  FIELD(zero_comm_options, device)
  FIELD(zero_comm_options, device_ordinal)
  FIELD(zero_comm_options, reduce_ctas)
  FIELD(zero_comm_options, gather_on_kernels)
  END()

  STRUCT(zero_comm_functions)
  FIELD(zero_comm_functions, struct_size)
  FIELD(zero_comm_functions, exchange)
  FIELD(zero_comm_functions, all_gather)
  FIELD(zero_comm_functions, all_to_all)
  FIELD(zero_comm_functions, reduce_scatter)
  FIELD(zero_comm_functions, split)
  FIELD(zero_comm_functions, free)
  END()

  STRUCT(zero_failure)
  FIELD(zero_failure, struct_size)
  FIELD(zero_failure, status)
  FIELD(zero_failure, rank)
  FIELD(zero_failure, step)
  FIELD(zero_failure, params_consistent)
  FIELD(zero_failure, phase)
  FIELD(zero_failure, text)
  END()

  STRUCT(zero_update)
  FIELD(zero_update, struct_size)
  FIELD(zero_update, param)
  FIELD(zero_update, name)
  FIELD(zero_update, shape)
  FIELD(zero_update, ndim)
  FIELD(zero_update, dtype)
  FIELD(zero_update, first)
  FIELD(zero_update, count)
  FIELD(zero_update, values)
  FIELD(zero_update, gradient)
  FIELD(zero_update, slots)
  FIELD(zero_update, slot_count)
  FIELD(zero_update, step)
  FIELD(zero_update, lr)
  FIELD(zero_update, weight_decay)
  FIELD(zero_update, setting_names)
  FIELD(zero_update, setting_values)
  FIELD(zero_update, setting_count)
  FIELD(zero_update, message)
  FIELD(zero_update, message_bytes)
  END()

  STRUCT(zero_custom_optimizer)
  FIELD(zero_custom_optimizer, struct_size)
  FIELD(zero_custom_optimizer, name)
  FIELD(zero_custom_optimizer, update)
  FIELD(zero_custom_optimizer, ctx)
  FIELD(zero_custom_optimizer, slots)
  FIELD(zero_custom_optimizer, slot_count)
  FIELD(zero_custom_optimizer, setting_names)
  FIELD(zero_custom_optimizer, setting_values)
  FIELD(zero_custom_optimizer, setting_count)
  FIELD(zero_custom_optimizer, flags)
  FIELD(zero_custom_optimizer, reserved)
  END()

  STRUCT(zero_options)
  FIELD(zero_options, struct_size)
  FIELD(zero_options, optimizer)
  FIELD(zero_options, partition)
  FIELD(zero_options, bucket_bytes)
  FIELD(zero_options, max_grad_norm)
  FIELD(zero_options, grad_norm_type)
  FIELD(zero_options, nonfinite)
  FIELD(zero_options, threads)
  FIELD(zero_options, names)
  FIELD(zero_options, values)
  FIELD(zero_options, setting_count)
  FIELD(zero_options, master)
  FIELD(zero_options, wire_dtype)
  FIELD(zero_options, loss_scale)
  FIELD(zero_options, growth_factor)
  FIELD(zero_options, backoff_factor)
  FIELD(zero_options, growth_interval)
  FIELD(zero_options, uneven_inputs)
  FIELD(zero_options, share_dtype)
  FIELD(zero_options, predivide_factor)
  FIELD(zero_options, custom)
  FIELD(zero_options, overlap_gather)
  FIELD(zero_options, reserved)
  END()

  STRUCT(zero_group_options)
  FIELD(zero_group_options, struct_size)
  FIELD(zero_group_options, names)
  FIELD(zero_group_options, values)
  FIELD(zero_group_options, setting_count)
  END()

  STRUCT(zero_param)
  FIELD(zero_param, struct_size)
  FIELD(zero_param, name)
  FIELD(zero_param, data)
  FIELD(zero_param, grad)
  FIELD(zero_param, shape)
  FIELD(zero_param, ndim)
  FIELD(zero_param, dtype)
  FIELD(zero_param, owner)
  FIELD(zero_param, flags)
  FIELD(zero_param, order)
  FIELD(zero_param, grad_dtype)
  FIELD(zero_param, reserved)
  FIELD(zero_param, lr_scale)
  FIELD(zero_param, weight_decay)
  END()

  STRUCT(zero_buffer)
  FIELD(zero_buffer, struct_size)
  FIELD(zero_buffer, name)
  FIELD(zero_buffer, data)
  FIELD(zero_buffer, shape)
  FIELD(zero_buffer, ndim)
  FIELD(zero_buffer, dtype)
  END()

  STRUCT(zero_step_options)
  FIELD(zero_step_options, struct_size)
  FIELD(zero_step_options, grads)
  FIELD(zero_step_options, grad_count)
  FIELD(zero_step_options, reduce_flags)
  FIELD(zero_step_options, reserved)
  FIELD(zero_step_options, stream)
  END()

  STRUCT(zero_result)
  FIELD(zero_result, struct_size)
  FIELD(zero_result, step)
  FIELD(zero_result, skipped)
  FIELD(zero_result, nonfinite)
  FIELD(zero_result, grad_norm)
  FIELD(zero_result, clip_factor)
  FIELD(zero_result, status)
  FIELD(zero_result, reserved)
  FIELD(zero_result, loss_scale)
  END()

  STRUCT(zero_join_options)
  FIELD(zero_join_options, struct_size)
  FIELD(zero_join_options, grads)
  FIELD(zero_join_options, grad_count)
  FIELD(zero_join_options, stream)
  END()

  STRUCT(zero_save_options)
  FIELD(zero_save_options, struct_size)
  FIELD(zero_save_options, flags)
  FIELD(zero_save_options, reserved)
  END()

  STRUCT(zero_load_options)
  FIELD(zero_load_options, struct_size)
  FIELD(zero_load_options, flags)
  FIELD(zero_load_options, reserved)
  END()

  STRUCT(zero_rule)
  FIELD(zero_rule, struct_size)
  FIELD(zero_rule, name)
  FIELD(zero_rule, setting_names)
  FIELD(zero_rule, setting_defaults)
  FIELD(zero_rule, setting_ranges)
  FIELD(zero_rule, setting_count)
  FIELD(zero_rule, slots)
  FIELD(zero_rule, slot_settings)
  FIELD(zero_rule, slot_count)
  END()

  STRUCT(zero_plan)
  FIELD(zero_plan, struct_size)
  FIELD(zero_plan, offsets)
  FIELD(zero_plan, owners)
  FIELD(zero_plan, elements)
  FIELD(zero_plan, arena_bytes)
  FIELD(zero_plan, state_bytes)
  FIELD(zero_plan, grad_offsets)
  FIELD(zero_plan, grad_arena_bytes)
  END()

  STRUCT(zero_statistics)
  FIELD(zero_statistics, struct_size)
  FIELD(zero_statistics, parameter_elements)
  FIELD(zero_statistics, owned_elements)
  FIELD(zero_statistics, state_bytes)
  FIELD(zero_statistics, staging_bytes)
  FIELD(zero_statistics, control_bytes)
  FIELD(zero_statistics, copied_bytes)
  FIELD(zero_statistics, moved_bytes)
  FIELD(zero_statistics, steps)
  FIELD(zero_statistics, skipped)
  FIELD(zero_statistics, nonfinite_elements)
  FIELD(zero_statistics, gather_seconds)
  FIELD(zero_statistics, vote_seconds)
  FIELD(zero_statistics, apply_seconds)
  FIELD(zero_statistics, publish_seconds)
  FIELD(zero_statistics, save_seconds)
  FIELD(zero_statistics, load_seconds)
  FIELD(zero_statistics, early_elements)
  FIELD(zero_statistics, early_updates)
  FIELD(zero_statistics, host_waits)
  END()

  printf("\n}\n");
  return 0;
}
