// SPDX-License-Identifier: Apache-2.0
// The process-wide log. It calls the program's callback or, if there is none, prints on standard
// error up to the level in ZERO_LOG.
#pragma once

#include <cstdint>
#include <string_view>

#include "zero.h"

namespace zero {

void set_log(zero_log_fn log, void* ctx, int32_t max_level);

/// Passes `message` to the callback if there is one, and otherwise prints it, if `level` is
/// enabled.
void log(int32_t level, std::string_view message);

/// Sets the rank in the lines that this thread prints later. A process may have several ranks, and
/// a thread several comms, so the rank is that of the comm used last.
void log_as(int32_t rank);

}  // namespace zero
