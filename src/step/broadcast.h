// SPDX-License-Identifier: Apache-2.0
// Sends whole parameters and buffers, unchanged: those of one rank, or those that each rank owns.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Implement zero_broadcast_params and zero_broadcast_buffers.
Status broadcast_params(Call& call, Optimizer& optim, int32_t root);
Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root);

/// Publishes the values that owners wrote into their own parameters. `flags` are ZERO_SHARE_*.
Status share_by_hand(Call& call, Optimizer& optim, int32_t flags);

/// Allocates the memory that copy_buffers needs. Local. The ranks must vote on the result.
Status make_batch(StepMemory& memory);

/// Copy the tensors of `root` on the host, inside a call that has entered.
Status copy_params(Call& call, Optimizer& optim, int32_t root);
Status copy_buffers(Call& call, Optimizer& optim, int32_t root);

}  // namespace zero
