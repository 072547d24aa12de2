// SPDX-License-Identifier: Apache-2.0
// zero_rebalance: everything is dealt out anew, and state moves to its new owners.
#pragma once

#include <cstdint>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Inside a collective Call that has not entered yet. `owners`: one for each parameter, or null.
Status rebalance(Call& call, Optimizer& optim, const int32_t* owners, size_t count);

}  // namespace zero
