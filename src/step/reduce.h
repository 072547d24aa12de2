// SPDX-License-Identifier: Apache-2.0
// Computes, measures and clips the sums of gradients of this rank's share.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/pieces.h"

namespace zero {

/// Sets `to` to `from` times `factor`, in the type `sum`.
void scale_sums(DType sum, std::byte* to, const std::byte* from, size_t count, double factor);

/// Sums the gradients of all ranks for this rank's share, in rank order. Stores the sums at the
/// addresses in the views, or adds to the sums there. Returns their record with the p-norm (none if
/// p is 0). Ends early when the comm is aborted.
NormSums reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p);

/// Multiplies the sums of the share by their factor, and clamps the results to [-limit, limit].
void clamp_share(Optimizer& optim, const StepMemory& memory, double limit);

/// Returns the record of the reduced share with the p-norm, or that of the chosen parameters in it.
NormSums norm_of_share(Optimizer& optim, const StepMemory& memory, double p,
                       const Chosen& chosen = {});

/// Multiplies the sums of the chosen parameters by `factor`.
void scale_share(Optimizer& optim, const StepMemory& memory, const Chosen& chosen, double factor);

/// Adds StepMemory::incoming, which has the layout of the share, to the sums of the share. Returns
/// their record with the p-norm.
NormSums add_to_share(Optimizer& optim, const StepMemory& memory, double p);

/// Copies the reduced gradients of a part of this rank's share, multiplied by their factor, to
/// `out`. Must be called in Phase::reduced. Returns false if no rank had a gradient.
Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out);

}  // namespace zero
