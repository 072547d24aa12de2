// SPDX-License-Identifier: Apache-2.0
// A host's addresses by its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/tcp/socket.h"

namespace zero::tcp {

/// At least one. A name that nobody knows is asked for again, as its host may come up later:
/// ZERO_ERR_RENDEZVOUS after `limit_ms`, with the resolver's words.
Result<std::vector<Address>> resolve(const std::string& host, int64_t limit_ms);

}  // namespace zero::tcp
