// SPDX-License-Identifier: Apache-2.0
// Reads what the launcher's variables say about this rank, as a pure function of the variables.
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

// ---- Environment variables. Tests can supply their own lookup.

/// Returns the value of a variable, or nullptr.
using Lookup = std::function<const char*(const char* name)>;

/// Returns a variable's value, or nullptr if it is not set, or is empty.
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
  const char* launcher = nullptr;  // nullptr if no launcher started this process
  int32_t rank = 0;
  int32_t world = 1;
  /// Index among the ranks of its host: 0 with one rank, and -1 if unknown.
  int32_t local_rank = 0;
  Hosts hosts = Hosts::one;
  std::string evidence;  // of several hosts: "LOCAL_WORLD_SIZE is 2 and WORLD_SIZE is 4"
  /// A name that is the same on all ranks of this job on this host, and differs from all other
  /// names; "" with one rank, or if unknown.
  std::string job;
  /// The same, if ranks may be on several hosts.
  std::string job_of_all_hosts;
  /// True for Hydra if no variable distinguishes jobs. Then the name from Hydra's proxy takes
  /// precedence over `job`.
  bool hydra = false;
  bool slurm = false;
  bool brings_mpi = false;  // usually
};

/// Fails with ZERO_ERR_ARGUMENT, naming the variable and its value, if variables are incomplete or
/// invalid.
Result<Launched> read_launch(const Lookup& lookup);

/// Returns `given` with each -1 replaced by ZERO_TIMEOUT_MS or a similar variable, or by the
/// default if the variable is not set.
Result<CommOptions> read_timeouts(const Lookup& lookup, CommOptions given);

/// Returns `job` as the name of a local comm, which has at most 64 characters.
std::string comm_name(const std::string& job);

// ---- The address at which the ranks of several hosts find rank 0.

struct Meetpoint {
  std::string host;  // a name or an IP address
  uint16_t port = 0;
  std::string origin;  // for messages: "MASTER_ADDR is 'node1', and the port follows MASTER_PORT"
};

/// Returns nothing if no variable names rank 0's host and no variable shows that there are several
/// hosts. Fails with ZERO_ERR_ARGUMENT, naming the variable, if a port is invalid, or if a variable
/// is required and not set.
Result<std::optional<Meetpoint>> read_meetpoint(const Lookup& lookup, const Launched& launch);

/// Returns the first host of a Slurm host list: "node03" for "node[03-05,9],other".
std::string first_host(std::string_view list);

}  // namespace zero
