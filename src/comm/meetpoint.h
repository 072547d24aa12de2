// SPDX-License-Identifier: Apache-2.0
// Where the ranks of several hosts find rank 0: a pure function of a launcher's variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/launch.h"

namespace zero {

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
