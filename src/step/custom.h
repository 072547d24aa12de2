// SPDX-License-Identifier: Apache-2.0
// A step by an update function of the caller: it works on copies of the share, and what it made is
// stored once all ranks agree.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Room for the copies. Local.
Status make_shadow(Optimizer& optim, StepMemory& memory);

/// Let the function update a copy of each range with a gradient, on all ranks or in vain: a failure
/// changes nothing but the shadow, and forgets what is reduced. `factor` turns sums into gradients.
Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory, double factor);

/// Store what the function made, parameters to every target.
void store_shadow(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
