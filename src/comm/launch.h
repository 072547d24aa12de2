// SPDX-License-Identifier: Apache-2.0
// What a launcher's variables say about this rank: a pure function of the variables.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/status.h"
#include "base/text.h"
#include "comm/comm.h"

namespace zero {

// ---- Variables of the environment, looked up so that a test can have its own.

/// The value of a variable, or nullptr.
using Lookup = std::function<const char*(const char* name)>;

/// A variable's value; a variable set to nothing counts as not set.
inline const char* value_of(const Lookup& lookup, const char* name) {
  const char* value = name == nullptr ? nullptr : lookup(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

inline Result<int64_t> number(const char* name, std::string_view value, int64_t least,
                              int64_t most) {
  int64_t parsed = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < least || parsed > most) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(name, " is '", value, "', not a number from ", least, " to ", most));
  }
  return parsed;
}

// ---- Launchers.

enum class Hosts { unknown, one, several };

struct Launched {
  const char* launcher = nullptr;  // nullptr: nobody launched this
  int32_t rank = 0;
  int32_t world = 1;
  /// Its place among the ranks of its host, 0 with one rank; -1 if unknown.
  int32_t local_rank = 0;
  Hosts hosts = Hosts::one;
  std::string evidence;  // of several hosts: "LOCAL_WORLD_SIZE is 2 and WORLD_SIZE is 4"
  /// The same on all ranks of this job on this host and on no others; "" with one rank, or if
  /// unknown.
  std::string job;
  /// The same where ranks may be on several hosts.
  std::string job_of_all_hosts;
  /// No variable tells Hydra's jobs apart: `job` is the second choice then.
  bool hydra = false;
  bool slurm = false;
};

/// ZERO_ERR_ARGUMENT naming variable and value for sets that are half set or nonsense.
Result<Launched> read_launch(const Lookup& lookup);

/// `given`, with ZERO_TIMEOUT_MS and the like, else the defaults, where it has -1.
Result<CommOptions> read_timeouts(const Lookup& lookup, CommOptions given);

/// `job` as the name of a local comm, which has at most 64 characters.
std::string comm_name(const std::string& job);

// ---- Where the ranks of several hosts find rank 0.

struct Meetpoint {
  std::string host;  // a name or an address
  uint16_t port = 0;
  std::string origin;  // "MASTER_ADDR is 'node1', and the port follows MASTER_PORT", for texts
};

/// Nothing where no variable names rank 0's host, and the ranks are on one host for all that is
/// known. ZERO_ERR_ARGUMENT names a variable that is no port, or that is needed and not set.
Result<std::optional<Meetpoint>> read_meetpoint(const Lookup& lookup, const Launched& launch);

/// Of Slurm's list "node[03-05,9],other": "node03".
std::string first_host(std::string_view list);

}  // namespace zero
