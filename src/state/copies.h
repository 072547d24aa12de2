// SPDX-License-Identifier: Apache-2.0
// Compares the copies of the state that instances keep.
#pragma once

#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Votes as Call::vote() does, and fails if two ranks that keep copies of one share have different
/// values or state in it. It fails with ZERO_ERR_MISMATCH on these two ranks and with ZERO_ERR_PEER
/// on the others. The text names both ranks.
Status vote_alike(Call& call, Optimizer& optim, std::string_view phase, Status mine);

}  // namespace zero
