// SPDX-License-Identifier: Apache-2.0
// Takes the gradients that a call is given, and how to reduce them.
#pragma once

#include "step/memory.h"

namespace zero {

/// The gradients of a call: one pointer per parameter, or null for the registered ones.
struct Grads {
  void* const* pointers = nullptr;
  size_t count = 0;
  int32_t flags = ZERO_REDUCE_MEAN;

  bool accumulate() const { return (flags & ZERO_REDUCE_ACCUMULATE) != 0; }
};

/// True if a call with these gradients reduces them; otherwise it goes on with what is reduced.
inline bool reduces(const Optimizer& optim, const Grads& grads) {
  return optim.phase != Phase::reduced || grads.accumulate();
}

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

/// Forgets this rank's gradients, so that placements are made anew.
void forget_grads(const Optimizer& optim, StepMemory& memory);

}  // namespace zero
