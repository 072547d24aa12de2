// SPDX-License-Identifier: Apache-2.0
// Save parameters, state, settings and step as one checkpoint.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Inside a collective Call that has entered: parameters bound and sealed, Phase::open. `flags`:
/// ZERO_SAVE_*. Changes nothing of the optimizer.
Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

}  // namespace zero
