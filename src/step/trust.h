// SPDX-License-Identifier: Apache-2.0
// The first of two walks for rules that scale each tensor's step by norms of the whole tensor.
#pragma once

#include <functional>
#include <vector>

#include "step/tiles.h"

namespace zero {

/// What the first walk leaves to the second; of a rule without trust ratios nothing.
struct Trusted {
  std::vector<double> ratios;  // of each view
  // Whether the first walk has stepped each view. Not of bool: threads write neighbours.
  std::vector<char> steps;

  double ratio(size_t view) const { return ratios.empty() ? 1 : ratios[view]; }
  bool stepped(size_t view) const { return !steps.empty() && steps[view] != 0; }
};

/// Steps a view with its ratio, on one thread of the first walk.
using StepView = std::function<void(size_t view, double ratio)>;
using MakeStepView = std::function<StepView(int thread)>;

/// The trust ratio of each of this rank's views. Where the direction is of the update, moments are
/// updated on the way: from all ranks' gradients (fused), whose count of infinities and NaNs is
/// added to `nonfinite`, or from the reduced ones. A tensor that one thread has measured whole is
/// stepped by it at once, while what was last read of it is still in the caches. Norms of cut
/// parameters are exchanged, which may fail. Ends early when the comm is aborted.
Result<Trusted> trust_ratios(const Pass& pass, const MakeStepView& stepper, uint64_t* nonfinite);

/// Count what that read and wrote.
void count_measured(Optimizer& optim, const StepMemory& memory, bool fused);

}  // namespace zero
