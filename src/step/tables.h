// SPDX-License-Identifier: Apache-2.0
// The tables through which ranks publish the locations of their tensors.
#pragma once

#include "step/memory.h"

namespace zero {

/// Return true if this rank needs staging, or the outbox, for tensors in no arena. Allocating these
/// is collective.
bool wants_staging(const Optimizer& optim, const StepMemory& memory);
bool wants_outbox(const Optimizer& optim, const StepMemory& memory);

/// Determines this rank's placements and writes them to its table. Increments `version` if one has
/// changed or, on a comm whose ranks share no tables, may have changed. Returns false, and writes
/// nothing, if staging is missing. Local.
bool place(Optimizer& optim, StepMemory& memory);

/// Returns the location in staging for a gradient in no arena.
Location staging_of(const Optimizer& optim, const StepMemory& memory, int64_t param);

/// Returns the size of a table for `params` parameters. It has a Placement and a Ready for each,
/// and one Stored.
size_t table_bytes(size_t params);

/// Return the address of this rank's Ready of a gradient, and the present value of any rank's.
Ready* own_ready(const Optimizer& optim, const StepMemory& memory, int64_t param);
Result<Ready> ready_on(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                       int64_t param);

/// Returns the address of a rank's Stored in its table.
Result<Stored*> stored_of(const Optimizer& optim, const StepMemory& memory, int32_t rank);

/// Returns the placement of a parameter on any rank, from its table.
Result<Placement> placement_of(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                               int64_t param);

}  // namespace zero
