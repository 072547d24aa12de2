// SPDX-License-Identifier: Apache-2.0
// Takes over the gradients passed to a call and the way in which they are reduced.
#pragma once

#include "step/memory.h"

namespace zero {

/// The gradients passed to a call: one pointer for each parameter, or null for the registered
/// gradients.
struct Grads {
  void* const* pointers = nullptr;
  size_t count = 0;
  int32_t flags = ZERO_REDUCE_MEAN;

  bool accumulate() const { return (flags & ZERO_REDUCE_ACCUMULATE) != 0; }
};

/// Returns true if a call with these gradients reduces them, and false if it continues with
/// gradients that have already been reduced.
inline bool reduces(const Optimizer& optim, const Grads& grads) {
  return optim.phase != Phase::reduced || grads.accumulate();
}

/// Returns OK if take() would accept these pointers. `given` must not be null. Local. Changes
/// nothing.
Status check_given(const Optimizer& optim, void* const* given, size_t count);
Status check_flags(int32_t flags);

/// Returns the factor that turns the sums of a reduction with these flags into gradients of the
/// scaled loss.
double mean_of(const Optimizer& optim, int32_t flags);
/// Returns the factor that turns the sums into gradients of the unscaled loss.
double factor_of(const Optimizer& optim, int32_t flags);

/// Takes over the gradients of this call and the way in which they are reduced. `keeps` is true if
/// the sums outlive the call. Local. A failure has no effect.
Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps);

/// Discards this rank's gradients, so that placements are made again.
void forget_grads(const Optimizer& optim, StepMemory& memory);

}  // namespace zero
