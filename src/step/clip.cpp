// SPDX-License-Identifier: Apache-2.0
#include "step/clip.h"

#include "base/text.h"
#include "kernels/launch_state.h"
#include "step/gather.h"
#include "step/progress.h"
#include "step/queued/step.h"
#include "step/reduce.h"

namespace zero {
namespace {

Status check_norm(double max_norm, double p) {
  if (!(p > 0))
    return Status(ZERO_ERR_ARGUMENT, text("norm_type is ", p, "; it must be positive or infinite"));
  if (max_norm > 0) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("max_norm is ", max_norm, "; it must be positive"));
}

Result<Chosen> choose(const Optimizer& optim, std::span<const int64_t> params) {
  Chosen chosen(optim.params.size());
  for (const int64_t param : params) {
    if (param < 0 || static_cast<size_t>(param) >= chosen.size())
      return Status(ZERO_ERR_ARGUMENT,
                    text("parameter ", param, " does not exist: there are ", chosen.size()));
    const auto index = static_cast<size_t>(param);
    if (chosen[index])
      return Status(ZERO_ERR_ARGUMENT, text("parameter ", param, ", '", optim.params[index].name,
                                            "', is listed twice"));
    chosen[index] = true;
  }
  return chosen;
}

std::string lines(double max_norm, double p) {
  return text("max_norm ", max_norm, "\nnorm_type ", p, "\n");
}

/// Every rank's record to all.
Result<double> total_norm(Call& call, const char* phase, double p, const NormSums& mine) {
  const std::vector<NormSums> all = ZERO_TRY(call.exchange(phase, mine));
  return launch::norm_of_records(all.data(), static_cast<uint32_t>(all.size()), p);
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

Status know_norm(Call& call, Optimizer& optim, double p) {
  StepMemory& memory = step_memory(optim);
  if (memory.norm_type == p) return Status();
  memory.found = ZERO_TRY(call.exchange("norm", norm_of_share(optim, memory, p)));
  memory.norm_type = p;
  return Status();
}

Status clip_grad_norm(Call& call, Optimizer& optim, double max_norm, double norm_type, double* norm,
                      const Grads& grads) {
  if (optim.comm->device() != nullptr)
    return queued::clip_grad_norm(call, optim, max_norm, norm_type, norm, grads);
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, check_norm(max_norm, norm_type),
                            lines(max_norm, norm_type)));
  ZERO_TRY(reduce_unless_done(call, optim, grads, norm_type));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  ZERO_TRY(know_norm(call, optim, norm_type));
  decide(
      optim, memory,
      {.records = memory.found.data(), .p = norm_type, .max_grad_norm = max_norm, .again = true});
  if (norm != nullptr) *norm = memory.state.grad_norm;
  return Status();
}

Status clip_grad_norm_of(Call& call, Optimizer& optim, std::span<const int64_t> params,
                         double max_norm, double norm_type, double* norm, const Grads& grads) {
  auto chosen = choose(optim, params);
  Status local = chosen.ok() ? check_norm(max_norm, norm_type) : chosen.failure();
  if (local.ok()) local = optim.check_host("zero_clip_grad_norm_of");
  std::string args = lines(max_norm, norm_type);
  args += text(params.size(), " parameters listed\n");
  for (const int64_t param : params) args += text("parameter ", param, " in its turn\n");
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local), std::move(args)));
  ZERO_TRY(reduce_unless_done(call, optim, grads, 0));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  const NormSums mine = norm_of_share(optim, memory, norm_type, *chosen);
  const double raw = ZERO_TRY(total_norm(call, "norm of some", norm_type, mine));
  const double found = raw * memory.state.factor;
  if (const double factor = launch::clip_factor(max_norm, found); factor < 1) {
    scale_share(optim, memory, *chosen, factor);
    memory.norm_type = 0;  // of the sums, which are no more
  }
  if (norm != nullptr) *norm = found;
  return Status();
}

Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads) {
  if (optim.comm->device() != nullptr)
    return queued::clip_grad_value(call, optim, max_value, grads);
  Status local;
  if (!(max_value > 0))
    local = Status(ZERO_ERR_ARGUMENT, text("max_value is ", max_value, "; it must be positive"));
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local),
                            text("max_value ", hex_double(max_value), "\n")));
  ZERO_TRY(reduce_unless_done(call, optim, grads, 0));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  clamp_share(optim, memory, memory.state.factor, max_value);
  decide(optim, memory, {.again = true, .gradients = true});
  memory.norm_type = 0;  // of the sums, which are no more
  return Status();
}

}  // namespace zero
