// SPDX-License-Identifier: Apache-2.0
// The collective calls, by number and by the names that callers know.
#pragma once

#include <cstdint>

namespace zero {

/// The collective calls. A record carries its operation, so ranks in different calls notice.
enum class Operation : uint32_t {
  create = 1,
  barrier,
  broadcast,
  all_reduce,
  split,
  arena_alloc,
  seal,
  broadcast_params,
  reduce_grads,
  clip_grad_norm,
  step,
  save,
  load,
  clip_grad_value,
  state_gather,
  share_params,
  broadcast_buffers,
  join,
  rebalance,
  roll_call,  // in front of one of the others, with uneven inputs
  step_begin,
  create_env,
  save_begin,
  save_wait,
};
/// Returns "zero_step" and so on, as callers know it.
const char* operation_name(Operation operation);

}  // namespace zero
