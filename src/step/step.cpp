// SPDX-License-Identifier: Apache-2.0
#include "step/step.h"

#include <exception>

#include "base/os.h"
#include "base/text.h"
#include "step/apply.h"
#include "step/background.h"
#include "step/backward.h"
#include "step/clip.h"
#include "step/custom.h"
#include "step/enter.h"
#include "step/gather.h"
#include "step/progress.h"
#include "step/publish.h"
#include "step/queued/queue.h"
#include "step/queued/step.h"
#include "step/reduce.h"
#include "step/stopwatch.h"
#include "step/take.h"
#include "step/views.h"
#include "step/walks.h"

namespace zero {
namespace {

/// Memory that runs out ends a step by an exception: its result says so.
class ExceptionTold {
 public:
  explicit ExceptionTold(Optimizer& optim)
      : optim_(optim), exceptions_(std::uncaught_exceptions()) {}
  ~ExceptionTold() {
    if (std::uncaught_exceptions() > exceptions_) optim_.outcome.status = ZERO_ERR_MEMORY;
  }
  ExceptionTold(const ExceptionTold&) = delete;
  ExceptionTold& operator=(const ExceptionTold&) = delete;

 private:
  Optimizer& optim_;
  const int exceptions_;
};

/// Sum what the backward left, where no rank decides anything by it. Returns how many of those sums
/// are not finite.
uint64_t sum_the_rest(Call& call, Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  const Stopwatch watch(optim.counters.gather_seconds);
  return reduce_share(call, optim, memory, 0).nonfinite;
}

/// Comm::publishing counts this optimizer already.
Status apply_and_publish(Call& call, Optimizer& optim, bool fused) {
  StepMemory& memory = step_memory(optim);
  uint64_t nonfinite = 0;
  const bool sums = !fused || early(memory) != nullptr;
  if (fused && sums) nonfinite = sum_the_rest(call, optim);
  if (memory.backward != nullptr) nonfinite += memory.backward->nonfinite();
  if (fused) end_round(memory);
  {
    const Stopwatch watch(optim.counters.apply_seconds);
    os().reached("apply.begin");
    if (optim.options.custom != nullptr) {
      store_shadow(optim, memory);
    } else {
      nonfinite += ZERO_TRY(update_share(call, optim, memory, memory.state.factor, !sums));
    }
    os().reached("apply.done");
  }
  const Stopwatch watch(optim.counters.publish_seconds);
  ZERO_TRY(optim.comm->direct() ? direct::publish(call, optim, memory, &nonfinite)
                                : collective::publish(call, optim, memory, &nonfinite));
  optim.comm->publishing--;
  if (fused) memory.state.nonfinite = nonfinite;
  count_updates(optim, memory);
  advance(optim, memory);
  optim.comm->steps_done = optim.step;
  return Status();
}

/// Clipping, skipping and norms of gradients must know all of them before any update; otherwise one
/// pass does.
bool one_pass(const Optimizer& optim) {
  const Trust* const trust = optim.options.rule->trust;
  return optim.options.custom == nullptr && (trust == nullptr || trust->of_update) &&
         optim.comm->direct() && optim.phase != Phase::reduced &&
         optim.options.max_grad_norm == 0 && optim.options.nonfinite == ZERO_NONFINITE_IGNORE &&
         !optim.options.loss_scale.dynamic();
}

/// What all ranks decide by the gradients: to clip them, to skip the step, or that there is none.
Status decide(Call& call, Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  const OptimizerOptions& options = optim.options;
  const double p = options.max_grad_norm > 0 ? options.grad_norm_type : 0;
  if (p != 0) ZERO_TRY(know_norm(call, optim, p));
  decide(optim, memory,
         {.records = memory.found.data(),
          .p = p,
          .max_grad_norm = options.max_grad_norm,
          .skips = options.nonfinite == ZERO_NONFINITE_SKIP || options.loss_scale.dynamic(),
          .refuses = options.nonfinite == ZERO_NONFINITE_ERROR,
          .again = true});
  if (memory.state.refusal == Refusal::none) return Status();
  optim.phase = Phase::open;
  return Status(ZERO_ERR_NONFINITE,
                text(memory.state.nonfinite, " elements of the reduced gradients ",
                     "are not finite: step ", optim.step + 1, " was not made"));
}

/// On the optimizer's own thread, to which the call goes over.
void end_in_background(Call& call, Optimizer& optim, bool fused) {
  step_memory(optim).background->begin(std::move(call), [&optim, fused](Call& own) -> Status {
    const ExceptionTold told(optim);
    Status status = apply_and_publish(own, optim, fused);
    if (!status.ok()) optim.outcome.status = status.code();
    return status;
  });
}

Status run_step(Call& call, Optimizer& optim, const Grads& grads, Status local, bool* skip) {
  StepMemory& memory = step_memory(optim);
  const bool fused = one_pass(optim);
  const bool gathers = reduces(optim, grads);
  const double p = optim.options.max_grad_norm > 0 ? optim.options.grad_norm_type : 0;
  Rollback rollback(optim);
  const bool writes = !fused || writes_directions(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, false, writes, std::move(local), {}));
  ZERO_TRY(get_ready(call, optim, true, gathers));
  rollback.keep();
  if (fused) {
    decide(optim, memory, {.factor = mean_of(optim, grads.flags)});
  } else {
    if (gathers) ZERO_TRY(gather(call, optim, grads, p));
    ZERO_TRY(decide(call, optim));
  }
  if (memory.state.skip != 0) {
    advance(optim, memory);
    *skip = true;
    return Status();
  }
  if (optim.options.custom != nullptr)
    ZERO_TRY(update_shadow(call, optim, memory, memory.state.factor));
  if (!updates_announced(memory)) optim.comm->publishing++;
  if (memory.background == nullptr) return apply_and_publish(call, optim, fused);
  end_in_background(call, optim, fused);
  return Status();
}

/// A step that has begun goes on as it began.
Status take_begun_flags(Optimizer& optim, Grads& grads) {
  if (optim.phase != Phase::begun) return Status();
  const int32_t given = std::exchange(grads.flags, step_memory(optim).flags);
  if (given == 0 || given == grads.flags) return Status();
  return Status(ZERO_ERR_ARGUMENT,
                text("reduce flags are ", given, "; the step began with ", grads.flags));
}

}  // namespace

Status seal_params(Call& call, Optimizer& optim) {
  Entry entry;
  entry.local = optim.check_params();
  return enter(call, optim, step_memory(optim), std::move(entry));
}

Result<Code> step(Call& call, Optimizer& optim, const Grads& grads) {
  bool skip = false;
  const ExceptionTold told(optim);
  if (optim.comm->device() != nullptr) {
    Status queued = queued::step(call, optim, grads);
    StepMemory& memory = step_memory(optim);
    const bool captured = memory.capture != 0;  // the latest step is that of a launch
    if (memory.queue != nullptr && !captured) memory.queue->failed = queued.code();
    if (queued.ok()) return ZERO_OK;
    if (!captured) optim.outcome.status = queued.code();
    return queued;
  }
  Grads taken = grads;
  Status local = take_begun_flags(optim, taken);
  Status status = run_step(call, optim, taken, std::move(local), &skip);
  if (!status.ok()) {
    optim.outcome.status = status.code();
    return status;
  }
  return skip ? ZERO_SKIPPED : ZERO_OK;
}

Status drop_grads(Optimizer& optim) {
  if (optim.phase == Phase::begun) return drop_begun(optim);
  if (optim.phase == Phase::reducing) {
    StepMemory& memory = step_memory(optim);
    memory.backward->settle();
    end_round(memory);
  }
  optim.phase = Phase::open;
  return Status();
}

Status share_params(Call& call, Optimizer& optim) {
  if (optim.comm->device() != nullptr) return queued::share_params(call, optim);
  StepMemory& memory = step_memory(optim);
  ZERO_TRY(sync_placements(call, optim, memory));
  ZERO_TRY(call.vote("views", make_views(optim, memory, false, false)));
  round_share(optim);
  copy_share(optim, memory);
  uint64_t none = 0;
  return optim.comm->direct() ? direct::publish(call, optim, memory, &none)
                              : collective::publish(call, optim, memory, &none);
}

}  // namespace zero
