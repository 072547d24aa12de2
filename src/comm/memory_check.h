// SPDX-License-Identifier: Apache-2.0
// Memory that several ranks take at once. Each alone may find room in a control group that they
// share, and the system ends processes when all of them use it.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/comm.h"

namespace zero {

/// Checks, before it is taken, that this rank's `bytes` and those of all ranks of the comm that the
/// same limit holds for have room. Ranks are compared by the machine's and the control groups'
/// identity. Fails with ZERO_ERR_MEMORY, which names `what` and the limit, or with ZERO_ERR_PEER.
///
/// Collective, inside a Call. It is one combine() where the memory that the tightest limit of any
/// rank leaves is enough for all ranks together, and brings together every rank's words otherwise.
Status check_memory_of_ranks(Call& call, uint64_t bytes, std::string_view what);

}  // namespace zero
