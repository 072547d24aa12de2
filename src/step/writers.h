// SPDX-License-Identifier: Apache-2.0
// Who writes a tensor that is copied from one rank to all, where ranks share memory.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"

namespace zero {

struct Writers {
  bool mine = true;  // this rank writes its memory, or is the root
  bool any = true;   // some rank does not hold the root's own memory; the same on every rank
};

/// `locations`: where the tensor lies on each rank of a direct comm. Of the ranks that hold the
/// same bytes, the root writes, else the lowest.
Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root);

}  // namespace zero
