// SPDX-License-Identifier: Apache-2.0
// Implements the first of two walks for rules with trust ratios, which scale the step of each
// tensor by norms of the whole tensor.
#pragma once

#include <functional>
#include <vector>

#include "step/tiles.h"

namespace zero {

/// The results of the first walk, for use by the second. Empty for a rule without trust ratios.
struct Trusted {
  std::vector<double> ratios;  // by view
  // By view, 1 if the first walk has already applied the step. Not vector<bool>, because different
  // threads store adjacent elements.
  std::vector<char> steps;

  double ratio(size_t view) const { return ratios.empty() ? 1 : ratios[view]; }
  bool stepped(size_t view) const { return !steps.empty() && steps[view] != 0; }
};

/// Applies the step to a view with its ratio, on one thread of the first walk.
using StepView = std::function<void(size_t view, double ratio)>;
using MakeStepView = std::function<StepView(int thread)>;

/// Computes the trust ratio of each of this rank's views. If the ratio depends on the direction of
/// the update, it also updates moments, using gradients of all ranks if fused and reduced gradients
/// otherwise. If fused, adds the number of infinite and NaN gradients to `*nonfinite`. A thread
/// that has measured a whole tensor applies its step at once, while its end is still in the caches.
/// Exchanges the norms of cut parameters, which may fail. Ends early when the comm is aborted.
Result<Trusted> trust_ratios(const Pass& pass, const MakeStepView& stepper, uint64_t* nonfinite);

/// Counts the bytes that trust_ratios() read and wrote.
void count_measured(Optimizer& optim, const StepMemory& memory, bool fused);

}  // namespace zero
