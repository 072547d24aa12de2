// SPDX-License-Identifier: Apache-2.0
// Turns registrations into a plan with state and tables, alike on every rank.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Compares the registration over all ranks, fixes the plan, and allocates state and tables.
/// Succeeds on all ranks or on none.
Status seal(Call& call, Optimizer& optim);

/// Forgets all places, because after a change of the plan nothing lies where it did.
void forget_places(Optimizer& optim, StepMemory& memory);

/// Makes masters of this rank's share from the parameters as they are, from `first_section` on. On
/// the host it cannot fail.
Status take_masters(Call& call, Optimizer& optim, size_t first_section);

/// Makes every rank's masters from the parameters as they are, if there are masters.
Status retake_masters(Call& call, Optimizer& optim);

/// Makes the vote "ready" of a call that uses gradients, or will. The first one behind a seal
/// compares the sealed parameters, unless they were broadcast, shared or loaded since, and fails
/// with ZERO_ERR_MISMATCH if they differ. A captured call compares nothing.
Status vote_ready(Call& call, Optimizer& optim, Status ready);

}  // namespace zero
