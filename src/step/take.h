// SPDX-License-Identifier: Apache-2.0
// What a call is given to reduce, and how.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/step.h"

namespace zero {

Status check_flags(int32_t flags);

/// What turns the sums that a reduction with these flags makes into gradients of the loss as it was
/// scaled.
double mean_of(const Optimizer& optim, int32_t flags);
/// What turns them into gradients.
double factor_of(const Optimizer& optim, int32_t flags);

/// This call's gradients, and how they are to be reduced. `keeps`: the call returns before they are
/// used.
Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps);

}  // namespace zero
