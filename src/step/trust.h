// SPDX-License-Identifier: Apache-2.0
// The first of two walks for rules that scale each tensor's step by norms of the whole tensor.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// The parameters with a gradient, in order, that lie on more than one rank: the same on every
/// rank.
std::vector<int64_t> cut_params(const Optimizer& optim, const StepMemory& memory);

/// The trust ratio of each of this rank's views. Where the direction is of the update, moments are
/// updated on the way: from all ranks' gradients (`fused`), whose count of infinities and NaNs is
/// added to `nonfinite`, or from the reduced ones. Norms of cut parameters are exchanged, which may
/// fail. Ends early when the comm is aborted.
Result<std::vector<double>> trust_ratios(Call& call, Optimizer& optim, const StepMemory& memory,
                                         const std::vector<Scalars>& scalars, bool fused,
                                         uint64_t* nonfinite);

}  // namespace zero
