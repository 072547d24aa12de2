// SPDX-License-Identifier: Apache-2.0
// What is registered becomes a plan with state and tables, alike on every rank.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Compare the registration over all ranks, fix the plan, and allocate state and tables. All ranks
/// or none.
Status seal(Call& call, Optimizer& optim);

/// After the plan has changed: nothing lies where it did.
void forget_places(Optimizer& optim, StepMemory& memory);

/// Make the parameters, as they stand, the masters of this rank's share from `first_section` on. On
/// the host it cannot fail.
Status take_masters(Call& call, Optimizer& optim, size_t first_section);

/// Make the parameters, as they stand, every rank's masters, if there are any.
Status retake_masters(Call& call, Optimizer& optim);

/// The vote "ready" of a call that uses gradients, or will. The first one behind a seal compares
/// what was sealed, unless parameters were broadcast or loaded since: ZERO_ERR_MISMATCH where they
/// differ. Nothing is compared in a call that is captured.
Status vote_ready(Call& call, Optimizer& optim, Status ready);

}  // namespace zero
