// SPDX-License-Identifier: Apache-2.0
// The first of two walks for rules that scale each tensor's step by norms of the whole tensor.
#pragma once

#include <functional>
#include <vector>

#include "step/tiles.h"

namespace zero {

/// The first walk's results for the second. Empty for a rule without trust ratios.
struct Trusted {
  std::vector<double> ratios;  // of each view
  // For each view, 1 if the first walk has stepped it. Not of bool, because threads write
  // neighbours.
  std::vector<char> steps;

  double ratio(size_t view) const { return ratios.empty() ? 1 : ratios[view]; }
  bool stepped(size_t view) const { return !steps.empty() && steps[view] != 0; }
};

/// Steps a view with its ratio, on one thread of the first walk.
using StepView = std::function<void(size_t view, double ratio)>;
using MakeStepView = std::function<StepView(int thread)>;

/// Finds the trust ratio of each of this rank's views. If the update makes the direction, it
/// updates moments on the way: from all ranks' gradients (fused), or from the reduced ones. If
/// fused, it adds the number of infinite and NaN gradients to `nonfinite`. A thread that has
/// measured a whole tensor steps it at once, while the end of it is still in the caches. Exchanges
/// the norms of cut parameters, which may fail. Ends early when the comm is aborted.
Result<Trusted> trust_ratios(const Pass& pass, const MakeStepView& stepper, uint64_t* nonfinite);

/// Counts the bytes that trust_ratios() read and wrote.
void count_measured(Optimizer& optim, const StepMemory& memory, bool fused);

}  // namespace zero
