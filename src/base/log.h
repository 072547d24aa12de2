// SPDX-License-Identifier: Apache-2.0
// The process-wide log: the program's callback, or, if it has none, lines on standard error as far
// as ZERO_LOG asks for them.
#pragma once

#include <cstdint>
#include <string_view>

#include "zero.h"

namespace zero {

void set_log(zero_log_fn log, void* ctx, int32_t max_level);

/// Hands `message` to the callback, if one is set and wants this level, or prints it, if ZERO_LOG
/// asks for that.
void log(int32_t level, std::string_view message);

/// From now on lines that this thread prints are rank `rank`'s. A process may have several ranks,
/// and a thread several comms: it speaks as a rank of the one that it used last.
void log_as(int32_t rank);

}  // namespace zero
