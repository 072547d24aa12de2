// SPDX-License-Identifier: Apache-2.0
// Work on the state that all ranks do together.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Saves parameters, state, settings and step as one checkpoint.
///
/// Inside a collective Call that has entered: parameters bound and sealed, Phase::open. `flags`:
/// ZERO_SAVE_*. Changes nothing of the optimizer.
Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Agrees on the arguments of a save, in the name of the call.
Status agree_save(Call& call, const Optimizer& optim, std::string_view directory, int32_t flags);

/// Loads a checkpoint into parameters, state, settings and step: of any world and any partition,
/// bit for bit.
///
/// Inside a collective Call that has entered: parameters bound and sealed, Phase::open. `flags`:
/// ZERO_LOAD_*. A failure before all files are verified changes nothing; a later one leaves
/// optim.not_loaded set on every rank.
Status load_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Gathers one tensor of the state whole, from all its owners, to one rank or to all.
///
/// Inside a collective Call that has not entered yet. `to`: a rank, or ZERO_ALL_RANKS. If this rank
/// is one of those, `values` has room for `count` elements.
Status gather_state(Call& call, Optimizer& optim, int64_t param, const char* name, int32_t to,
                    void* values, size_t count);

/// Deals out everything anew, and moves state to its new owners (zero_rebalance).
///
/// Inside a collective Call that has not entered yet. `owners`: one for each parameter, or empty.
Status rebalance(Call& call, Optimizer& optim, std::span<const int32_t> owners);

}  // namespace zero
