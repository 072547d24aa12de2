// SPDX-License-Identifier: Apache-2.0
// Buffers travel whole from one rank to all, as parameters do by themselves: the host's walk.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// zero_broadcast_buffers.
Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root);

/// The memory that copy_buffers needs. Local, to be voted on.
Status make_batch(StepMemory& memory);

/// The copies themselves, inside a call that has entered.
Status copy_params(Call& call, Optimizer& optim, int32_t root);
Status copy_buffers(Call& call, Optimizer& optim, int32_t root);

}  // namespace zero
