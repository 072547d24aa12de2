// SPDX-License-Identifier: Apache-2.0
// Sends parameters and buffers whole, as they are: those of one rank, or those that each rank owns.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Do the work of zero_broadcast_params and zero_broadcast_buffers.
Status broadcast_params(Call& call, Optimizer& optim, int32_t root);
Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root);

/// Publishes the values that owners wrote into their own parameters. `flags`: ZERO_SHARE_*.
Status share_by_hand(Call& call, Optimizer& optim, int32_t flags);

/// Makes the memory that copy_buffers needs. Local; the ranks must vote on it.
Status make_batch(StepMemory& memory);

/// Make the copies on the host, inside a call that has entered.
Status copy_params(Call& call, Optimizer& optim, int32_t root);
Status copy_buffers(Call& call, Optimizer& optim, int32_t root);

}  // namespace zero
