// SPDX-License-Identifier: Apache-2.0
// The sums of gradients of this rank's share: made, measured, brought into limits.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/pieces.h"

namespace zero {

/// Sets to = from * factor, in the type of sums.
void scale_sums(DType sum, std::byte* to, const std::byte* from, size_t count, double factor);

/// Sums every rank's gradients of this rank's share, in rank order, to the places that views name,
/// or adds them to the sums there. Returns the norm, which it takes on the way (p = 0: none). Ends
/// early when the comm is aborted.
NormSums reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p);

/// Turns the sums of the share into gradients by their factor, and brings them into [-limit,
/// limit].
void clamp_share(Optimizer& optim, const StepMemory& memory, double limit);

/// Returns the norm of the reduced share, or of the chosen parameters in it.
NormSums norm_of_share(Optimizer& optim, const StepMemory& memory, double p,
                       const Chosen& chosen = {});

/// Multiplies the sums of the chosen parameters by `factor`.
void scale_share(Optimizer& optim, const StepMemory& memory, const Chosen& chosen, double factor);

/// Adds StepMemory::incoming, which lies as the share does, to the sums of the share. Returns their
/// norm.
NormSums add_to_share(Optimizer& optim, const StepMemory& memory, double p);

/// Copies reduced gradients of a part of this rank's share, as an update would see them. Only in
/// Phase::reduced. Returns false if no rank had a gradient.
Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out);

}  // namespace zero
