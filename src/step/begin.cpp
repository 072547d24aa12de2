// SPDX-License-Identifier: Apache-2.0
// Implements zero_step_begin, the first half of a step that updates parameters as soon as their
// gradients arrive.
#include "base/os.h"
#include "base/refusals.h"
#include "step/backward.h"
#include "step/enter.h"
#include "step/seal.h"
#include "step/take.h"
#include "step/views.h"

namespace zero {
namespace {

/// Refuses options that need all gradients before the first update.
Status check_options(const Optimizer& optim) {
  const OptimizerOptions& options = optim.options;
  const auto refused = [](const auto&... what) {
    return wrong_state(
        what...,
        ", which needs all gradients before the first update: call zero_step without "
        "zero_step_begin");
  };
  if (options.max_grad_norm > 0) return refused("max_grad_norm is ", options.max_grad_norm);
  if (options.scales_loss()) return refused("the loss scale is dynamic");
  if (options.nonfinite != ZERO_NONFINITE_IGNORE)
    return refused("nonfinite is ", options.nonfinite, ", not ZERO_NONFINITE_IGNORE");
  for (const Group& group : optim.groups) {
    if (is_custom(*group.rule)) return refused(group.rule->name, " is the caller's own function");
    if (has_trust(*group.rule)) return refused(group.rule->name, " takes norms of whole tensors");
  }
  return Status();
}

Status check_begin(const Optimizer& optim, int32_t flags) {
  ZERO_TRY(optim.check_host("zero_step_begin"));
  ZERO_TRY(optim.check_params());
  ZERO_TRY(optim.check_loaded());
  ZERO_TRY(optim.check_open());
  ZERO_TRY(check_flags(flags));
  if ((flags & ZERO_REDUCE_ACCUMULATE) != 0)
    return bad_argument(
        "ZERO_REDUCE_ACCUMULATE adds up micro-batches before a step, but this call begins one");
  if (optim.frozen() == optim.params.size())
    return wrong_state("every parameter is frozen: there is nothing to train");
  return check_options(optim);
}

/// Does everything that may fail on a single rank. Comms that are not direct do nothing early.
Status prepare_step(Optimizer& optim, StepMemory& memory, int32_t flags) {
  ZERO_TRY(optim.allocate_slots());
  if (!optim.comm->direct()) return Status();
  ZERO_TRY(make_views(optim, memory, Views::of_params));
  if (memory.backward == nullptr) memory.backward = std::make_unique<Backward>(optim, memory);
  return memory.backward->begin_updates(factor_of(optim, flags));
}

}  // namespace

Status step_begin(Call& call, Optimizer& optim, int32_t flags) {
  StepMemory& memory = step_memory(optim);
  Entry entry{.local = check_begin(optim, flags), .reduce_flags = flags, .begins = true};
  if (entry.local.ok()) entry.local = take(optim, memory, {nullptr, 0, flags}, false);
  ZERO_TRY(enter(call, optim, std::move(entry)));
  Status ready = prepare_step(optim, memory, flags);
  os().reached("begin.before");
  const Status agreed = vote_ready(call, optim, std::move(ready));
  if (!agreed.ok()) {
    if (memory.backward != nullptr) memory.backward->forget();
    return agreed;
  }
  os().reached("begin.after");
  memory.flags = flags;
  optim.phase = Phase::begun;
  return Status();
}

Status drop_begun(Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  if (memory.backward != nullptr && memory.backward->announced())
    return wrong_state(
        "gradients of the step that has begun are announced, and updates may be made: "
        "call zero_step to finish it");
  if (memory.backward != nullptr) memory.backward->pause();
  give_up_begun(optim, memory);
  return Status();
}

Status drop_grads(Optimizer& optim) {
  if (optim.phase == Phase::begun) return drop_begun(optim);
  if (optim.phase == Phase::reducing) {
    StepMemory& memory = step_memory(optim);
    memory.backward->pause();
    end_round(memory);
  }
  optim.phase = Phase::open;
  return Status();
}

}  // namespace zero
