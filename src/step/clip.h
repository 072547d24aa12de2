// SPDX-License-Identifier: Apache-2.0
// Gradients by norm and by value, inside a step or by calls of their own (step.h).
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// The norm for this p of reduced gradients, unless it is known.
Status take_norm(Call& call, Optimizer& optim, double p);
/// Take the norm of what is reduced unless it is known, and fold the clip factor in.
Status clip(Call& call, Optimizer& optim, double max_norm, double p);

}  // namespace zero
