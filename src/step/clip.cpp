// SPDX-License-Identifier: Apache-2.0
#include "step/clip.h"

#include <cmath>

#include "base/text.h"
#include "step/gather.h"
#include "step/reduce.h"

namespace zero {
namespace {

Status check_norm_type(double p) {
  if (p > 0) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("norm_type is ", p, "; it must be positive or infinite"));
}

/// What a clip by itself begins with, after its entry.
Status reduce_unless_done(Call& call, Optimizer& optim, const Grads& grads, double p) {
  if (optim.phase == Phase::reduced) return Status();
  ZERO_TRY(get_ready(call, optim, false, true));
  ZERO_TRY(gather(call, optim, grads, p));
  optim.phase = Phase::reduced;
  return Status();
}

}  // namespace

Status clip(Call& call, Optimizer& optim, double max_norm, double p) {
  StepMemory& memory = step_memory(optim);
  if (memory.norm_type != p) {
    const NormRecord mine = norm_of_share(optim, memory, p);
    const std::vector<NormRecord> all = ZERO_TRY(call.exchange("norm", mine));
    NormRecord total;
    for (const NormRecord& record : all) total.add(record);
    memory.raw_norm = norm_of(total, p);
    memory.norm_type = p;
  }
  memory.grad_norm = memory.raw_norm * memory.factor;
  const double clip_factor = max_norm / (memory.grad_norm + 1e-6);
  if (clip_factor < 1 && std::isfinite(memory.grad_norm)) {
    memory.factor *= clip_factor;
    memory.clip_factor *= clip_factor;
  }
  return Status();
}

Status clip_grad_norm(Call& call, Optimizer& optim, double max_norm, double norm_type, double* norm,
                      const Grads& grads) {
  Status local = check_norm_type(norm_type);
  if (local.ok() && !(max_norm > 0)) {
    local = Status(ZERO_ERR_ARGUMENT, text("max_norm is ", max_norm, "; it must be positive"));
  }
  const std::string args = text("max_norm ", max_norm, "\nnorm_type ", norm_type, "\n");
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local), args));
  ZERO_TRY(reduce_unless_done(call, optim, grads, norm_type));
  step_memory(optim).clipped = true;
  ZERO_TRY(clip(call, optim, max_norm, norm_type));
  if (norm != nullptr) *norm = step_memory(optim).grad_norm;
  return Status();
}

Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads) {
  Status local;
  if (!(max_value > 0))
    local = Status(ZERO_ERR_ARGUMENT, text("max_value is ", max_value, "; it must be positive"));
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local),
                            text("max_value ", hex_double(max_value), "\n")));
  ZERO_TRY(reduce_unless_done(call, optim, grads, 0));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  clamp_share(optim, memory, memory.factor, max_value);
  memory.factor = 1;
  memory.norm_type = 0;  // of the sums, which are no more
  return Status();
}

}  // namespace zero
