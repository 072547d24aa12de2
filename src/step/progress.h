// SPDX-License-Identifier: Apache-2.0
// What a step knows and decides, on the host: the functions that devices run, on the same record.
#pragma once

#include "kernels/launches.h"
#include "step/memory.h"

namespace zero {

/// How the latest step ended, as zero_step_result tells it.
Code code_of(const StepState& state);

/// Decide on the host by the ranks' records, or without any where `by` has no p and is no
/// beginning.
void decide(Optimizer& optim, launch::Decide by);
/// A step was made or skipped.
void advance(Optimizer& optim);
/// Every parameter with a gradient has made one more update.
void count_updates(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
