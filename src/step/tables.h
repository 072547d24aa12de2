// SPDX-License-Identifier: Apache-2.0
// The tables in which ranks tell each other where things are.
#pragma once

#include "step/memory.h"

namespace zero {

/// True if this rank needs staging, or the outbox, for memory in no arena. Allocation is
/// collective.
bool wants_staging(const Optimizer& optim, const StepMemory& memory);
bool wants_outbox(const Optimizer& optim, const StepMemory& memory);

/// Works out this rank's placements and writes them into its table. Raises `version` if one
/// changed or, on a comm whose ranks share no tables, if one may have. Returns false, and writes
/// nothing, if staging is lacking. Local.
bool place(Optimizer& optim, StepMemory& memory);

/// Returns the place in staging of a gradient in no arena.
Location staging_of(const Optimizer& optim, const StepMemory& memory, int64_t param);

/// Returns the bytes of a table for this many parameters: a Placement and a Ready each, and one
/// Stored.
size_t table_bytes(size_t params);

/// Return this rank's own Ready of a gradient, and that of any rank as it is now.
Ready* own_ready(const Optimizer& optim, const StepMemory& memory, int64_t param);
Result<Ready> ready_on(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                       int64_t param);

/// Returns a rank's Stored, in its table.
Result<Stored*> stored_of(const Optimizer& optim, const StepMemory& memory, int32_t rank);

/// Returns the placement of a parameter on any rank, from its table.
Result<Placement> placement_of(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                               int64_t param);

}  // namespace zero
