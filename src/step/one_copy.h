// SPDX-License-Identifier: Apache-2.0
// Checks memory that has one copy for all ranks: a parameter must lie at one place, a gradient
// where no other rank has anything.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// True if the arena of a place of this rank's has one copy for all ranks.
bool in_one_copy(const Comm& comm, const Location& place);

/// Checks, inside a seal, that what all ranks have registered lies there as it must.
Status check_one_copy(Call& call, const Optimizer& optim);

/// Checks this rank's gradients of the present call against those of the others, by their tables.
Status check_grads_apart(const Optimizer& optim, const StepMemory& memory);

/// Checks a parameter's place on this rank against that on another.
Status check_same_place(const Optimizer& optim, int64_t param, const Location& own, int32_t rank,
                        const Location& theirs);

// ---- The writers of a tensor that is copied from one rank to all, if ranks share memory.

struct Writers {
  bool mine = true;  // this rank writes its memory, or is the root
  bool any = true;   // some rank does not hold the root's own memory; the same on every rank
};

/// Finds the writers. `locations`: the tensor's place on each rank of a direct comm. Among ranks
/// that hold the same bytes the root writes or, if it is none of them, the lowest.
Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root);

}  // namespace zero
