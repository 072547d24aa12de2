// SPDX-License-Identifier: Apache-2.0
// Resources that the machine and the control groups of a container leave to this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace zero {

/// A memory limit, and the memory that it leaves.
struct MemoryLimit {
  uint64_t id;  // the same in all processes and containers that share the limit
  uint64_t left;
  std::string words;  // "/sys/fs/cgroup/job/memory.max leaves"; the number follows
};

/// Returns the limits of this process: that of the machine and those of its control groups.
std::vector<MemoryLimit> memory_limits();

/// Returns how much memory the machine and the control groups (v1 or v2) of this process leave.
/// File cache and swap count as free. Without information there is no limit. If less than `bytes`
/// is left, touching them would get processes killed. Then fails with ZERO_ERR_MEMORY, naming
/// `what` and the limit.
Result<uint64_t> check_available(uint64_t bytes, std::string_view what);

/// Returns the CPU quota of this process's control groups in cores, rounded up, or nothing if there
/// is none.
std::optional<int> granted_cores();

/// Returns how many cores this thread can use at once, given affinity and control groups. The
/// result is at least 1.
int usable_cores();

}  // namespace zero
