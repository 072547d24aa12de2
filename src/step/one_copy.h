// SPDX-License-Identifier: Apache-2.0
// Checks the use of memory with one copy for all ranks. A parameter must have the same location on
// all ranks. A gradient must not overlap anything of another rank.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Returns true if a location of this rank is in an arena with one copy for all ranks.
bool in_one_copy(const Comm& comm, const Location& place);

/// Checks the registered tensors of all ranks in such memory. Collective, inside a seal.
Status check_one_copy(Call& call, const Optimizer& optim);

/// Checks the gradients of the present call in such memory, using the tables of all ranks.
Status check_grads_apart(const Optimizer& optim, const StepMemory& memory);

/// Checks the location of a parameter on this rank against its location on rank `rank`.
Status check_same_place(const Optimizer& optim, int64_t param, const Location& own, int32_t rank,
                        const Location& theirs);

// ---- The ranks that write a tensor when one rank copies it to all ranks.

struct Writers {
  bool mine = true;  // this rank writes its memory, or is the root
  bool any = true;   // some rank does not share the root's memory; the same on every rank
};

/// Finds the writers. `locations` has the location of the tensor on each rank of a direct comm.
/// Among ranks that share memory, the root writes or, if it is not among them, the lowest rank.
Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root);

}  // namespace zero
