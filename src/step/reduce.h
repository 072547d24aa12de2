// SPDX-License-Identifier: Apache-2.0
// The sums of gradients of this rank's share: made, measured, brought into limits.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero {

/// What gradients are rounded to before they are summed; what was reduced already is not.
inline Rounding rounding(const Optimizer& optim, const StepMemory& memory, const Section& section) {
  return memory.none ? Rounding{} : optim.rounding_of(section);
}

/// Sum every rank's gradients of this rank's share, in rank order, to where views say, or add the
/// sum to what is there, and take the norm on the way (p = 0: none). Ends early when the comm is
/// aborted.
NormSums reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p);

/// Turn the sums of the share into gradients by `factor`, and bring them into [-limit, limit].
void clamp_share(Optimizer& optim, const StepMemory& memory, double factor, double limit);

/// Some parameters, by their numbers; none given: all.
using Chosen = std::vector<bool>;

/// The norm of the share, or of what was chosen of it, as it is reduced.
NormSums norm_of_share(Optimizer& optim, const StepMemory& memory, double p,
                       const Chosen& chosen = {});

/// Multiply the sums of what was chosen.
void scale_share(Optimizer& optim, const StepMemory& memory, const Chosen& chosen, double factor);

/// Add `sums`, which lie as the share does, to those of the share; the norm of what comes of it.
NormSums add_to_share(Optimizer& optim, const StepMemory& memory, const std::byte* sums, double p);

}  // namespace zero
