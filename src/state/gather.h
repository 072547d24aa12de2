// SPDX-License-Identifier: Apache-2.0
// One tensor of the state from all its owners, whole, to one rank or to all.
#pragma once

#include <cstdint>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Inside a collective Call that has not entered yet. `to`: a rank, or ZERO_ALL_RANKS; `values` has
/// room for `count` elements where this rank is one of them.
Status gather_state(Call& call, Optimizer& optim, int64_t param, const char* name, int32_t to,
                    void* values, size_t count);

}  // namespace zero
