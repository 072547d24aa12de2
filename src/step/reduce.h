// SPDX-License-Identifier: Apache-2.0
// The sums of gradients of this rank's share: made, measured, brought into limits.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"
#include "step/pieces.h"

namespace zero {

/// to = from * factor, in the type of sums.
void scale_sums(DType sum, std::byte* to, const std::byte* from, size_t count, double factor);

/// What gradients are rounded to before they are summed; what was reduced already is not.
inline Rounding rounding(const Optimizer& optim, const StepMemory& memory, const Section& section) {
  return memory.none ? Rounding{} : optim.rounding_of(section);
}

/// Sum every rank's gradients of this rank's share, in rank order, to where views say, or add the
/// sum to what is there, and take the norm on the way (p = 0: none). Ends early when the comm is
/// aborted.
NormSums reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p);

/// Turn the sums of the share into gradients by their factor, and bring them into [-limit, limit].
void clamp_share(Optimizer& optim, const StepMemory& memory, double limit);

/// The norm of the share, or of what was chosen of it, as it is reduced.
NormSums norm_of_share(Optimizer& optim, const StepMemory& memory, double p,
                       const Chosen& chosen = {});

/// Multiply the sums of what was chosen.
void scale_share(Optimizer& optim, const StepMemory& memory, const Chosen& chosen, double factor);

/// Add StepMemory::incoming, which lies as the share does, to the sums of the share; the norm of
/// what comes of it.
NormSums add_to_share(Optimizer& optim, const StepMemory& memory, double p);

/// Reduced gradients of a part of this rank's share, as an update would see them. Phase::reduced.
/// False if no rank had a gradient.
Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out);

}  // namespace zero
