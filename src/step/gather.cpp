// SPDX-License-Identifier: Apache-2.0
#include "step/gather.h"

#include "base/os.h"
#include "base/text.h"
#include "step/alike.h"
#include "step/background.h"
#include "step/backward.h"
#include "step/custom.h"
#include "step/enter.h"
#include "step/progress.h"
#include "step/queued/queue.h"
#include "step/queued/step.h"
#include "step/reduce.h"
#include "step/stopwatch.h"
#include "step/take.h"
#include "step/views.h"
#include "step/walks.h"

namespace zero {

Status enter_with_grads(Call& call, Optimizer& optim, const Grads& grads, bool keeps, bool sums,
                        Status local, std::string args) {
  StepMemory& memory = step_memory(optim);
  if (memory.backward != nullptr) memory.backward->settle();  // it reads what changes here
  Entry entry;
  entry.local = std::move(local);
  entry.grads = reduces(optim, grads);
  entry.keeps = keeps;
  entry.sums = sums;
  entry.adds = entry.grads && optim.phase == Phase::reduced;
  entry.args = std::move(args);
  if (optim.comm->device() != nullptr)
    entry.args += memory.capture != 0 ? "a captured call\n" : "a call that is not captured\n";
  if (entry.local.ok()) entry.local = optim.check_params();
  if (entry.local.ok()) entry.local = optim.check_loaded();
  if (entry.local.ok() && call.operation() != Operation::step) entry.local = optim.check_ended();
  if (entry.grads) {
    if (entry.local.ok()) entry.local = take(optim, memory, grads, keeps);
    entry.args += text("reduce flags ", grads.flags, "\n");
  } else if (entry.local.ok() && grads.pointers != nullptr) {
    entry.local = optim.check_open();
  }
  const Stopwatch watch(optim.counters.vote_seconds);
  return enter(call, optim, memory, std::move(entry));
}

Status get_ready(Call& call, Optimizer& optim, bool updates, bool reduces) {
  const Stopwatch watch(optim.counters.vote_seconds);
  Status ready;
  if (reduces) ready = make_views(optim, step_memory(optim), updates, true);
  if (ready.ok() && updates) ready = optim.allocate_slots();
  if (ready.ok() && updates && optim.options.custom != nullptr)
    ready = make_shadow(optim, step_memory(optim));
  Background* const background = step_memory(optim).background;
  if (ready.ok() && updates && background != nullptr)
    ready = background->watch(optim, step_memory(optim));
  if (ready.ok() && optim.comm->device() != nullptr)
    ready = queued::prepare(optim, step_memory(optim));
  os().reached("ready.before");
  ZERO_TRY(vote_ready(call, optim, std::move(ready)));
  os().reached("ready.after");
  return Status();
}

Status gather(Call& call, Optimizer& optim, const Grads& grads, double p) {
  StepMemory& memory = step_memory(optim);
  if (memory.accumulates && !memory.adds) clear_absent(optim, memory);
  NormSums mine;
  {
    const Stopwatch watch(optim.counters.gather_seconds);
    mine = optim.comm->direct() ? direct::gather(call, optim, memory, p)
                                : ZERO_TRY(collective::gather(call, optim, memory, p));
  }
  const Stopwatch watch(optim.counters.vote_seconds);
  os().reached("vote.before");
  memory.found = ZERO_TRY(call.exchange("vote", mine));
  os().reached("vote.after");
  decide(optim, memory,
         {.records = memory.found.data(), .p = p, .factor = mean_of(optim, grads.flags)});
  memory.norm_type = p;
  memory.clipped = false;
  memory.flags = grads.flags;
  end_round(memory);
  return Status();
}

Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads) {
  if (optim.comm->device() != nullptr) return queued::reduce_grads(call, optim, grads);
  const bool gathers = reduces(optim, grads);
  Rollback rollback(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, gathers ? Status() : optim.check_open(),
                            {}));
  const double p = optim.options.max_grad_norm > 0 ? optim.options.grad_norm_type : 0;
  ZERO_TRY(get_ready(call, optim, false, true));
  rollback.keep();
  ZERO_TRY(gather(call, optim, grads, p));
  optim.phase = Phase::reduced;
  return Status();
}

}  // namespace zero
