// SPDX-License-Identifier: Apache-2.0
#include "step/step.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/os.h"
#include "base/text.h"
#include "step/apply.h"
#include "step/backward.h"
#include "step/custom.h"
#include "step/enter.h"
#include "step/publish.h"
#include "step/reduce.h"
#include "step/stopwatch.h"
#include "step/tables.h"
#include "step/views.h"
#include "step/walks.h"

namespace zero {
namespace {

Status check_flags(int32_t flags) {
  const int32_t how = flags & ~ZERO_REDUCE_ACCUMULATE;
  if (how >= ZERO_REDUCE_MEAN && how <= ZERO_REDUCE_NONE) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("reduce flags ", flags, " are unknown"));
}

Status check_norm_type(double p) {
  if (p > 0) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("norm_type is ", p, "; it must be positive or infinite"));
}

/// What turns the sums that a reduction makes into gradients.
double factor_of(const Optimizer& optim, int32_t flags) {
  const bool averages = (flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_MEAN;
  const double mean = averages ? 1.0 / optim.contributors : 1.0;
  return mean / optim.loss_scale.scale;
}

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

/// This call's gradients, and how they are to be reduced.
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

/// The beginning of every call that needs reduced gradients.
Status enter_with_grads(Call& call, Optimizer& optim, const Grads& grads, bool keeps, bool sums,
                        Status local, std::string args) {
  StepMemory& memory = step_memory(optim);
  Entry entry;
  entry.local = std::move(local);
  entry.grads = reduces(optim, grads);
  entry.keeps = keeps;
  entry.sums = sums;
  entry.adds = entry.grads && optim.phase == Phase::reduced;
  entry.args = std::move(args);
  if (entry.local.ok()) entry.local = optim.check_params();
  if (entry.local.ok()) entry.local = optim.check_loaded();
  if (entry.grads) {
    if (entry.local.ok()) entry.local = take(optim, memory, grads, keeps);
    entry.args += text("reduce flags ", grads.flags, "\n");
  } else if (entry.local.ok() && grads.pointers != nullptr) {
    entry.local = optim.check_open();
  }
  const Stopwatch watch(optim.counters.vote_seconds);
  return enter(call, optim, memory, std::move(entry));
}

/// Whatever may fail on one rank alone, before any gradient is touched. `updates`: the call also
/// updates, and uses the sums itself.
Status get_ready(Call& call, Optimizer& optim, bool updates, bool reduces) {
  const Stopwatch watch(optim.counters.vote_seconds);
  Status ready;
  if (reduces) ready = make_views(optim, step_memory(optim), updates, true);
  if (ready.ok() && updates) ready = optim.allocate_slots();
  if (ready.ok() && updates && optim.options.custom != nullptr)
    ready = make_shadow(optim, step_memory(optim));
  os().reached("ready.before");
  ZERO_TRY(call.vote("ready", ready));
  os().reached("ready.after");
  return Status();
}

/// Puts things back as they were, unless they have come to stay: a call that would have added to
/// sums and failed leaves those that it found.
class Rollback {
 public:
  explicit Rollback(Optimizer& optim) : memory_(step_memory(optim)) {
    if (optim.phase == Phase::reduced) before_ = memory_;
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    if (before_) static_cast<StepLayout&>(memory_) = std::move(*before_);
  }
  void keep() { before_.reset(); }

 private:
  StepMemory& memory_;
  std::optional<StepLayout> before_;
};

/// Sum gradients to their owners and agree on what was found.
Status gather(Call& call, Optimizer& optim, const Grads& grads, double p) {
  StepMemory& memory = step_memory(optim);
  if (memory.accumulates && !memory.adds) clear_absent(optim, memory);
  NormRecord mine;
  {
    const Stopwatch watch(optim.counters.gather_seconds);
    mine = optim.comm->direct() ? direct::gather(call, optim, memory, p)
                                : ZERO_TRY(collective::gather(call, optim, memory, p));
  }
  const Stopwatch watch(optim.counters.vote_seconds);
  os().reached("vote.before");
  const std::vector<NormRecord> all = ZERO_TRY(call.exchange("vote", mine));
  os().reached("vote.after");
  NormRecord total;
  for (const NormRecord& record : all) total.add(record);
  memory.factor = factor_of(optim, grads.flags);
  memory.norm_type = p;
  memory.raw_norm = p == 0 ? 0 : norm_of(total, p);
  memory.nonfinite = total.nonfinite;
  memory.grad_norm = -1;
  memory.clip_factor = 1;
  memory.clipped = false;
  memory.flags = grads.flags;
  end_round(memory);
  return Status();
}

/// Take the norm of what is reduced unless it is known, and fold the clip factor in.
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

/// Every parameter with a gradient has made one more update.
void count_step(Optimizer& optim, const StepMemory& memory) {
  int64_t i = 0;
  for (size_t group = 0; group < optim.groups.size(); group++) {
    const Rule& rule = *optim.options.rule;
    const std::span<const double> settings = optim.groups[group].settings;
    const uint32_t used = rule.slots_used(settings);
    for (; i < optim.group_end(group); i++) {
      const auto param = static_cast<size_t>(i);
      if (!memory.present.empty() && !memory.present[param]) continue;
      ParamProgress& progress = optim.progress[param];
      progress.step++;
      if (rule.next_product != nullptr) {
        progress.product = rule.next_product({.settings = settings,
                                              .step = progress.step,
                                              .live_slots = progress.live_slots,
                                              .factor = 1,
                                              .product = progress.product});
      }
      progress.live_slots |= used;
    }
  }
  // Views stay, but a class is found by its steps: a first update also changes which slots are
  // live.
  optim.step++;
  optim.comm->steps_done = optim.step;
}

/// What was not summed during the backward is, where no other rank needs to know. Returns how many
/// sums are not finite.
uint64_t sum_the_rest(Call& call, Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  const Stopwatch watch(optim.counters.gather_seconds);
  return reduce_share(call, optim, memory, 0).nonfinite;
}

Status apply_and_publish(Call& call, Optimizer& optim, bool fused) {
  StepMemory& memory = step_memory(optim);
  uint64_t nonfinite = 0;
  const bool sums = !fused || early(memory) != nullptr;
  if (fused && sums) nonfinite = sum_the_rest(call, optim);
  if (fused) end_round(memory);
  const bool custom = optim.options.custom != nullptr;
  if (custom) ZERO_TRY(update_shadow(call, optim, memory, memory.factor));
  optim.comm->publishing = true;
  {
    const Stopwatch watch(optim.counters.apply_seconds);
    os().reached("apply.begin");
    if (custom) {
      store_shadow(optim, memory);
    } else {
      nonfinite += ZERO_TRY(update_share(call, optim, memory, memory.factor, !sums));
    }
    os().reached("apply.done");
  }
  const Stopwatch watch(optim.counters.publish_seconds);
  ZERO_TRY(optim.comm->direct() ? direct::publish(call, optim, memory, &nonfinite)
                                : collective::publish(call, optim, memory, &nonfinite));
  optim.comm->publishing = false;
  if (fused) memory.nonfinite = nonfinite;
  count_step(optim, memory);
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

/// After a step that was made or skipped: what it found, and the next loss scale.
void conclude(Optimizer& optim, const StepMemory& memory, bool skipped) {
  const OptimizerOptions& options = optim.options;
  if (skipped) optim.skipped++;
  if (options.loss_scale.dynamic())
    optim.loss_scale.update(options.loss_scale, memory.nonfinite > 0);
  optim.phase = Phase::open;
  optim.outcome = {.nonfinite = static_cast<int64_t>(memory.nonfinite),
                   .grad_norm = memory.grad_norm,
                   .clip_factor = memory.clip_factor,
                   .status = skipped ? ZERO_SKIPPED : ZERO_OK};
  optim.counters.nonfinite_elements += static_cast<int64_t>(memory.nonfinite);
}

Status run_step(Call& call, Optimizer& optim, const Grads& grads, bool* skip) {
  StepMemory& memory = step_memory(optim);
  const OptimizerOptions& options = optim.options;
  const bool fused = one_pass(optim);
  const bool clips = options.max_grad_norm > 0;
  const bool gathers = reduces(optim, grads);
  Rollback rollback(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, false, !fused, Status(), {}));
  ZERO_TRY(get_ready(call, optim, true, gathers));
  rollback.keep();
  if (fused) {
    memory.factor = factor_of(optim, grads.flags);
    memory.grad_norm = -1;
    memory.clip_factor = 1;
  } else {
    if (gathers) ZERO_TRY(gather(call, optim, grads, clips ? options.grad_norm_type : 0));
    if (options.nonfinite == ZERO_NONFINITE_ERROR && memory.nonfinite > 0) {
      optim.phase = Phase::open;
      return Status(ZERO_ERR_NONFINITE,
                    text(memory.nonfinite, " elements of the reduced gradients ",
                         "are not finite: step ", optim.step + 1, " was not made"));
    }
    const bool skips = options.nonfinite == ZERO_NONFINITE_SKIP || options.loss_scale.dynamic();
    *skip = skips && memory.nonfinite > 0;
    if (*skip && clips) memory.grad_norm = memory.raw_norm * memory.factor;
    if (!*skip && clips) ZERO_TRY(clip(call, optim, options.max_grad_norm, options.grad_norm_type));
  }
  if (!*skip) ZERO_TRY(apply_and_publish(call, optim, fused));
  conclude(optim, memory, *skip);
  return Status();
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

Status seal_params(Call& call, Optimizer& optim) {
  Entry entry;
  entry.local = optim.check_params();
  return enter(call, optim, step_memory(optim), std::move(entry));
}

Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads) {
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

Result<Code> step(Call& call, Optimizer& optim, const Grads& grads) {
  bool skip = false;
  Status status = run_step(call, optim, grads, &skip);
  if (!status.ok()) {
    optim.outcome.status = status.code();
    return status;
  }
  return skip ? ZERO_SKIPPED : ZERO_OK;
}

Status drop_grads(Optimizer& optim) {
  if (optim.phase == Phase::reducing) {
    StepMemory& memory = step_memory(optim);
    memory.backward->settle();
    end_round(memory);
  }
  optim.phase = Phase::open;
  return Status();
}

Status share_params(Call& call, Optimizer& optim) {
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
