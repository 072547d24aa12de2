// SPDX-License-Identifier: Apache-2.0
// Gradients by norm and by value, inside a step or by calls of their own (step.h).
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Every rank's record for the norm with this p of reduced gradients, unless they are known.
Status know_norm(Call& call, Optimizer& optim, double p);

}  // namespace zero
