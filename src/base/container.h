// SPDX-License-Identifier: Apache-2.0
// What the machine, and the control groups of a container, leave to this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace zero {

/// Returns OK unless the machine, or the control group (v1 or v2) of this process or one above it,
/// plainly has not so much memory left: to touch it would end processes, not fail. Then
/// ZERO_ERR_MEMORY names `what` and the limit. File cache counts as left, and so does swap.
Status check_available(uint64_t bytes, std::string_view what);

/// Returns how many cores' worth of time control groups grant this process, rounded up, if they
/// limit it.
std::optional<int> granted_cores();

/// Returns how many cores this thread can use at once, by affinity and by control groups, at
/// least 1.
int usable_cores();

}  // namespace zero
