// SPDX-License-Identifier: Apache-2.0
// Gradients by norm and by value, inside a step or by calls of their own (step.h).
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Take the norm of what is reduced unless it is known, and fold the clip factor in.
Status clip(Call& call, Optimizer& optim, double max_norm, double p);

}  // namespace zero
