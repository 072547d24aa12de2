// SPDX-License-Identifier: Apache-2.0
// What a call is given to reduce, and how.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/step.h"

namespace zero {

/// Whether take() would take these pointers, which are not null. Local, without effect.
Status check_given(const Optimizer& optim, void* const* given, size_t count);
Status check_flags(int32_t flags);

/// What turns the sums that a reduction with these flags makes into gradients of the loss as it was
/// scaled.
double mean_of(const Optimizer& optim, int32_t flags);
/// What turns them into gradients.
double factor_of(const Optimizer& optim, int32_t flags);

/// This call's gradients, and how they are to be reduced: those given, one per parameter, or the
/// registered ones where that is null. `keeps`: the call returns before they are used. Local; what
/// is refused has no effect.
Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps);

/// No gradient is in use: nothing of them is placed.
void forget_grads(const Optimizer& optim, StepMemory& memory);

}  // namespace zero
