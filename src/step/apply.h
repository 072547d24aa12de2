// SPDX-License-Identifier: Apache-2.0
// The loops over elements: reduce this rank's share, update it, store it.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero {

/// Sum every rank's gradients of this rank's share, in rank order, to where views say, and take the
/// norm on the way (p = 0: none). Ends early when the comm is aborted.
NormRecord reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p);

/// Turn the sums of the share into gradients by `factor`, and bring them into [-limit, limit].
void clamp_share(Optimizer& optim, const StepMemory& memory, double factor, double limit);

/// The norm of the share as it is reduced.
NormRecord norm_of_share(Optimizer& optim, const StepMemory& memory, double p);

/// Update the share: with every rank's gradients summed on the fly (`fused`), or from the reduced
/// ones, and store new parameters to every target. `factor` turns sums into gradients. Returns how
/// many gradients were not finite (0 when not fused: the reduction counted them). Ends early when
/// the comm is aborted.
uint64_t update_share(Call& call, Optimizer& optim, StepMemory& memory, double factor, bool fused);

/// Store this rank's owned parameters as they are to every other target.
void copy_share(const Optimizer& optim, const StepMemory& memory);

}  // namespace zero
