// SPDX-License-Identifier: Apache-2.0
// A step's decisions on the host: the functions that devices run, on the same record.
#pragma once

#include "kernels/launches.h"
#include "step/memory.h"

namespace zero {

/// Returns how the latest step ended, as zero_step_result tells it.
Code code_of(const StepState& state);

/// Decides on the host, by the ranks' records or, if `by` has none, without them.
void decide(Optimizer& optim, launch::Decide by);
/// Advances the state after a step that was made or skipped.
void advance(Optimizer& optim);
/// Counts one more update of every parameter with a gradient.
void count_updates(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
