// SPDX-License-Identifier: Apache-2.0
// Takes the gradients that a call is given, and how to reduce them.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/step.h"

namespace zero {

/// Returns OK if take() would take these pointers, which must not be null. Local, without effect.
Status check_given(const Optimizer& optim, void* const* given, size_t count);
Status check_flags(int32_t flags);

/// Returns the factor that turns sums of a reduction with these flags into gradients of the scaled
/// loss.
double mean_of(const Optimizer& optim, int32_t flags);
/// Returns the factor that turns them into gradients of the loss itself.
double factor_of(const Optimizer& optim, int32_t flags);

/// Takes this call's gradients, and how to reduce them: those given, one per parameter, or the
/// registered ones if that is null. `keeps`: the call returns before they are used. Local; a
/// refusal has no effect.
Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps);

/// Forgets this rank's gradients and all placements.
void forget_grads(const Optimizer& optim, StepMemory& memory);

}  // namespace zero
