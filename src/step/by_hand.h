// SPDX-License-Identifier: Apache-2.0
// Steps that the caller makes himself: what a reduction found, and new parameters for all ranks.
#pragma once

#include <cstdint>

#include "comm/comm.h"
#include "optim/optimizer.h"
#include "step/memory.h"

namespace zero {

/// Reduced gradients of a part of this rank's share, as an update would see them. Phase::reduced.
/// False if no rank had a gradient.
Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out);

/// Publish what owners wrote into their own parameters. `flags`: ZERO_SHARE_*.
Status share_by_hand(Call& call, Optimizer& optim, int32_t flags);

}  // namespace zero
