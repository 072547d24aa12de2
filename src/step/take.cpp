// SPDX-License-Identifier: Apache-2.0
#include "step/take.h"

#include "base/text.h"
#include "step/tables.h"

namespace zero {
namespace {

/// Sums can be added to what earlier calls left, if those meant it.
Status check_adding(const StepMemory& memory, const Grads& grads) {
  if (!memory.accumulates)
    return Status(ZERO_ERR_STATE,
                  "gradients are reduced already, without ZERO_REDUCE_ACCUMULATE: step, or drop "
                  "them first");
  if (memory.flags != grads.flags)
    return Status(ZERO_ERR_STATE, text("reduce flags are ", grads.flags, "; the sums so far were ",
                                       "made with ", memory.flags));
  if (memory.clipped)
    return Status(ZERO_ERR_STATE, "the sums so far are clipped already: step, or drop them first");
  return Status();
}

}  // namespace

Status check_flags(int32_t flags) {
  const int32_t how = flags & ~ZERO_REDUCE_ACCUMULATE;
  if (how >= ZERO_REDUCE_MEAN && how <= ZERO_REDUCE_NONE) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("reduce flags ", flags, " are unknown"));
}

double mean_of(const Optimizer& optim, int32_t flags) {
  const bool averages = (flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_MEAN;
  return averages ? 1.0 / optim.contributors : 1.0;
}

double factor_of(const Optimizer& optim, int32_t flags) {
  return mean_of(optim, flags) / optim.loss_scale.scale;
}

Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps) {
  ZERO_TRY(check_flags(grads.flags));
  const bool adds = optim.phase == Phase::reduced;
  if (adds) ZERO_TRY(check_adding(memory, grads));
  const bool none = (grads.flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_NONE;
  if (memory.none != none) memory.placements.clear();
  memory.none = none;
  memory.adds = adds;
  memory.accumulates = grads.accumulate() && (adds || keeps);
  return take_grads(optim, memory, grads.pointers, grads.count);
}

}  // namespace zero
