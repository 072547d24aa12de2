// SPDX-License-Identifier: Apache-2.0
// What a launcher's variables say about this rank: a pure function of the variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/comm.h"

namespace zero {

/// The value of a variable, or nullptr.
using Lookup = std::function<const char*(const char* name)>;

struct Launched {
  const char* launcher = nullptr;  // nullptr: nobody launched this
  int32_t rank = 0;
  int32_t world = 1;
  /// The same on all ranks of this job and on no others; "" with one rank, or if unknown.
  std::string job;
  /// No variable tells Hydra's jobs apart: `job` is the second choice then.
  bool hydra = false;
};

/// ZERO_ERR_ARGUMENT naming variable and value for sets that are half set or nonsense;
/// ZERO_ERR_UNSUPPORTED if ranks are on several hosts.
Result<Launched> read_launch(const Lookup& lookup);

/// `given`, with ZERO_TIMEOUT_MS and the like, else the defaults, where it has -1.
Result<CommOptions> read_timeouts(const Lookup& lookup, CommOptions given);

/// One process as /proc/<pid>/stat tells it.
struct ProcessStat {
  std::string command;  // at most 15 characters
  int64_t parent = 0;
  uint64_t started = 0;  // clock ticks after boot: tells processes apart that had the same number
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);

/// `job` as the name of a local comm, which has at most 64 characters.
std::string comm_name(const std::string& job);

}  // namespace zero
