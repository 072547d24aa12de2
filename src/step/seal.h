// SPDX-License-Identifier: Apache-2.0
// Turns registrations into a plan, state and tables, consistently on all ranks.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Compares the registration over all ranks, fixes the plan, and allocates state and tables.
/// Succeeds on all ranks or on none.
Status seal(Call& call, Optimizer& optim);

/// Discards all placements, because a change of the plan moves everything.
void forget_places(Optimizer& optim, StepMemory& memory);

/// Sets the master weights of this rank's share, in the sections from `first_section` on, to the
/// present values of the parameters. Cannot fail on the host.
Status take_masters(Call& call, Optimizer& optim, size_t first_section);

/// Sets the master weights of every rank, if there are any, to the present parameters. Collective.
Status retake_masters(Call& call, Optimizer& optim);

/// Holds the "ready" vote of a call that uses gradients or begins a step. The first vote after a
/// seal compares the values of the sealed parameters, unless they have been broadcast, shared or
/// loaded since, and fails with ZERO_ERR_MISMATCH if they differ. A captured call compares nothing.
Status vote_ready(Call& call, Optimizer& optim, Status ready);

}  // namespace zero
