// SPDX-License-Identifier: Apache-2.0
// Declares the collective operations on the state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Saves parameters, state, settings and step as one checkpoint.
///
/// Must run inside a collective Call that has entered, with parameters bound and sealed, in
/// Phase::open. `flags` are ZERO_SAVE_*. Does not change the optimizer.
Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Fails unless all ranks pass the same arguments to a save. Errors name the operation of `call`.
Status agree_save(Call& call, const Optimizer& optim, std::string_view directory, int32_t flags);

/// Loads a checkpoint into parameters, state, settings and step, bit for bit. The checkpoint may
/// have any world size and any partition.
///
/// Must run inside a collective Call that has entered, with parameters bound and sealed, in
/// Phase::open. `flags` are ZERO_LOAD_*. A failure before all files are verified changes nothing. A
/// later failure leaves optim.not_loaded set on every rank.
Status load_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Gathers one whole tensor of the state from its owners to one rank or to all ranks.
///
/// Must run inside a collective Call that has not entered yet. `to` is a rank or ZERO_ALL_RANKS. On
/// a rank that receives the tensor, `values` must have room for `count` elements.
Status gather_state(Call& call, Optimizer& optim, int64_t param, const char* name, int32_t to,
                    void* values, size_t count);

/// Repartitions everything, and moves state to its new owners (zero_rebalance).
///
/// Must run inside a collective Call that has not entered yet. `owners`: one per parameter, or
/// empty.
Status rebalance(Call& call, Optimizer& optim, std::span<const int32_t> owners);

}  // namespace zero
