// SPDX-License-Identifier: Apache-2.0
// Numbers and public names of the collective calls.
#pragma once

#include <cstdint>

namespace zero {

/// The collective calls. Records carry them, so that ranks in different calls are detected.
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
  roll_call,  // precedes one of the others if inputs are uneven
  step_begin,
  create_env,
  save_begin,
  save_wait,
};
/// Returns the public name of the call, such as "zero_step".
const char* operation_name(Operation operation);

}  // namespace zero
