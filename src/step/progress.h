// SPDX-License-Identifier: Apache-2.0
// Runs the decisions of a step on the host, with the same functions and state as on a device.
#pragma once

#include "kernels/launches.h"
#include "step/memory.h"

namespace zero {

/// Returns the outcome of the latest step, as zero_step_result reports it.
Code code_of(const StepState& state);

/// Decides on the host. Uses the combined record of the ranks if `by` has one.
void decide(Optimizer& optim, launch::Decide by);
/// Advances the state after a step that was taken or skipped.
void advance(Optimizer& optim);
/// Counts one more update of every parameter with a gradient.
void count_updates(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
