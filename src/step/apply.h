// SPDX-License-Identifier: Apache-2.0
// The loop over this rank's share that updates it and stores it on every rank.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Update the share: with every rank's gradients summed on the fly (`fused`), or from the reduced
/// ones, and store new parameters to every target. `factor` turns sums into gradients. Returns how
/// many gradients were not finite (0 when not fused: the reduction counted them). Ends early when
/// the comm is aborted. Collective for rules with trust ratios: what ranks tell each other of norms
/// may fail.
Result<uint64_t> update_share(Call& call, Optimizer& optim, StepMemory& memory, double factor,
                              bool fused);

/// Round this rank's owned parameters where they travel in fewer bits than they have.
void round_share(Optimizer& optim);

/// Store this rank's owned parameters as they are to every other target.
void copy_share(const Optimizer& optim, const StepMemory& memory);

}  // namespace zero
