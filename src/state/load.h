// SPDX-License-Identifier: Apache-2.0
// Load a checkpoint into parameters, state, settings and step: any world, any partition, bit for
// bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Inside a collective Call that has entered: parameters bound and sealed, Phase::open. `flags`:
/// ZERO_LOAD_*. A failure before all files are verified changes nothing; a later one leaves
/// optim.not_loaded set on every rank.
Status load_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

}  // namespace zero
