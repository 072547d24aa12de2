// SPDX-License-Identifier: Apache-2.0
// What the machine, and the control groups of a container, leave to this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace zero {

/// Returns how much memory the machine, and the control groups (v1 or v2) of this process, leave.
/// File cache counts as left, and so does swap; what nobody tells is without limit. If that is less
/// than `bytes`, to touch so many would end processes, not fail: then ZERO_ERR_MEMORY names `what`
/// and the limit.
Result<uint64_t> check_available(uint64_t bytes, std::string_view what);

/// Returns how many cores' worth of time control groups grant this process, rounded up, if they
/// limit it.
std::optional<int> granted_cores();

/// Returns how many cores this thread can use at once, by affinity and by control groups, at
/// least 1.
int usable_cores();

}  // namespace zero
