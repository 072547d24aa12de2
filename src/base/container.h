// SPDX-License-Identifier: Apache-2.0
// What the machine, and the control groups of a container, leave to this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace zero {

/// What limits memory, and what it leaves.
struct MemoryLimit {
  uint64_t id;  // the same in every process that it holds for, of whichever container
  uint64_t left;
  std::string words;  // "/sys/fs/cgroup/job/memory.max leaves", which the number follows
};

/// Returns the limits of this process: the machine's, and those of its control groups.
std::vector<MemoryLimit> memory_limits();

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
