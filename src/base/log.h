// SPDX-License-Identifier: Apache-2.0
// The process-wide log callback. The library itself never prints.
#pragma once

#include <cstdint>
#include <string_view>

#include "zero.h"

namespace zero {

void set_log(zero_log_fn log, void* ctx, int32_t max_level);

/// Hands `message` to the callback, if one is set and wants this level.
void log(int32_t level, std::string_view message);

}  // namespace zero
