// SPDX-License-Identifier: Apache-2.0
// Collective calls and kinds of memory by the names that callers know.
#include "comm/comm.h"

namespace zero {

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::create:
      return "zero_comm_create";
    case Operation::create_env:
      return "zero_comm_create_env";
    case Operation::barrier:
      return "zero_comm_barrier";
    case Operation::broadcast:
      return "zero_comm_broadcast";
    case Operation::all_reduce:
      return "zero_comm_all_reduce";
    case Operation::split:
      return "zero_comm_split";
    case Operation::arena_alloc:
      return "zero_arena_alloc";
    case Operation::seal:
      return "zero_seal";
    case Operation::broadcast_params:
      return "zero_broadcast_params";
    case Operation::reduce_grads:
      return "zero_reduce_grads";
    case Operation::clip_grad_value:
      return "zero_clip_grad_value";
    case Operation::clip_grad_norm:
      return "zero_clip_grad_norm";
    case Operation::step_begin:
      return "zero_step_begin";
    case Operation::step:
      return "zero_step";
    case Operation::save:
      return "zero_state_save";
    case Operation::load:
      return "zero_state_load";
    case Operation::state_gather:
      return "zero_state_gather";
    case Operation::share_params:
      return "zero_share_params";
    case Operation::broadcast_buffers:
      return "zero_broadcast_buffers";
    case Operation::join:
      return "zero_join";
    case Operation::rebalance:
      return "zero_rebalance";
    case Operation::roll_call:
      return "an optimizer with uneven_inputs";
  }
  return "an unknown call";
}

const char* memory_kind_name(int32_t kind) {
  switch (kind) {
    case ZERO_MEMORY_PER_RANK:
      return "ZERO_MEMORY_PER_RANK";
    case ZERO_MEMORY_SHARED:
      return "ZERO_MEMORY_SHARED";
  }
  return "an unknown kind";
}

}  // namespace zero
