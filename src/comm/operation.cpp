// SPDX-License-Identifier: Apache-2.0
#include "comm/operation.h"

#include <cstddef>
#include <iterator>

namespace zero {

const char* operation_name(Operation operation) {
  // In the order of the Operation enumerators.
  constexpr const char* kNames[] = {"zero_comm_create",
                                    "zero_comm_barrier",
                                    "zero_comm_broadcast",
                                    "zero_comm_all_reduce",
                                    "zero_comm_split",
                                    "zero_arena_alloc",
                                    "zero_seal",
                                    "zero_broadcast_params",
                                    "zero_reduce_grads",
                                    "zero_clip_grad_norm",
                                    "zero_step",
                                    "zero_state_save",
                                    "zero_state_load",
                                    "zero_clip_grad_value",
                                    "zero_state_gather",
                                    "zero_share_params",
                                    "zero_broadcast_buffers",
                                    "zero_join",
                                    "zero_rebalance",
                                    "an optimizer with uneven_inputs",
                                    "zero_step_begin",
                                    "zero_comm_create_env",
                                    "zero_state_save_begin",
                                    "zero_state_save_wait"};
  static_assert(std::size(kNames) == static_cast<size_t>(Operation::save_wait));
  const size_t number = static_cast<size_t>(operation) - 1;
  return number < std::size(kNames) ? kNames[number] : "an unknown call";
}

}  // namespace zero
