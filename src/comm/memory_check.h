// SPDX-License-Identifier: Apache-2.0
// Checks memory that several ranks allocate at the same time. Each rank alone may find enough room
// in a control group that they share, and the system would kill processes when all of them use it.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/comm.h"

namespace zero {

/// Checks, before the allocation, that each memory limit has room for the `bytes` of all ranks of
/// the comm that share it. Ranks share a limit if the machine and the control group are the same.
/// Fails with ZERO_ERR_MEMORY, naming `what` and the limit, or with ZERO_ERR_PEER.
///
/// Collective, inside a Call. This is one combine() if the tightest limit of any rank has room for
/// all ranks together. Otherwise it gathers the limits of every rank.
Status check_memory_of_ranks(Call& call, uint64_t bytes, std::string_view what);

}  // namespace zero
