// SPDX-License-Identifier: Apache-2.0
// The tables in which ranks tell each other where things are.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// What this rank lacks for its foreign memory; allocation is collective.
bool wants_staging(const Optimizer& optim, const StepMemory& memory);
bool wants_outbox(const Optimizer& optim, const StepMemory& memory);

/// Work out this rank's placements and write them into its table, raising `version` if one changed.
/// False if staging is lacking; nothing is written then. Local.
bool place(Optimizer& optim, StepMemory& memory);

/// Copy gradients that are in no arena to staging. Local.
void stage_grads(Optimizer& optim, StepMemory& memory);

/// Where a gradient in no arena is staged.
Location staging_of(const Optimizer& optim, const StepMemory& memory, int64_t param);

/// Bytes of a table of this many parameters: their placements, who is ready, and Stored.
size_t table_bytes(size_t params);

/// This rank's own word about a gradient, and any rank's, as they stand.
Ready* own_ready(const Optimizer& optim, const StepMemory& memory, int64_t param);
Result<Ready> ready_on(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                       int64_t param);

/// How far a rank is, as it stands.
Result<Stored*> stored_of(const Optimizer& optim, const StepMemory& memory, int32_t rank);

/// The placement of a parameter on any rank, from its table.
Result<Placement> placement_of(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                               int64_t param);

}  // namespace zero
