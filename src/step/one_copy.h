// SPDX-License-Identifier: Apache-2.0
// What ranks put into memory of which there is one copy for all: a parameter lies at one place, a
// gradient where nobody else has anything.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Inside a seal: whether what is registered lies there as it must, on all ranks together.
Status check_one_copy(Call& call, const Optimizer& optim);

/// This rank's gradients of the call at hand against those of the others, whose tables are read.
Status check_grads_apart(const Optimizer& optim, const StepMemory& memory);

/// A parameter's place on this rank against that on another.
Status check_same_place(const Optimizer& optim, int64_t param, const Location& own, int32_t rank,
                        const Location& theirs);

// ---- Who writes a tensor that is copied from one rank to all, where ranks share memory.

struct Writers {
  bool mine = true;  // this rank writes its memory, or is the root
  bool any = true;   // some rank does not hold the root's own memory; the same on every rank
};

/// `locations`: where the tensor lies on each rank of a direct comm. Of the ranks that hold the
/// same bytes, the root writes, else the lowest.
Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root);

}  // namespace zero
