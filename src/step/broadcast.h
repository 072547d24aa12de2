// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers travel whole, as they stand: those of one rank, or what each rank owns.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// zero_broadcast_params, zero_broadcast_buffers.
Status broadcast_params(Call& call, Optimizer& optim, int32_t root);
Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root);

/// Publish what owners wrote into their own parameters. `flags`: ZERO_SHARE_*.
Status share_by_hand(Call& call, Optimizer& optim, int32_t flags);

/// The memory that copy_buffers needs. Local, to be voted on.
Status make_batch(StepMemory& memory);

/// The copies themselves, inside a call that has entered: the host's walk.
Status copy_params(Call& call, Optimizer& optim, int32_t root);
Status copy_buffers(Call& call, Optimizer& optim, int32_t root);

}  // namespace zero
