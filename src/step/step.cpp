// SPDX-License-Identifier: Apache-2.0
// Takes a step, on the host and on devices: enters, gets ready, gathers, votes, applies, publishes.
#include "step/step.h"

#include <optional>
#include <vector>

#include "base/os.h"
#include "base/refusals.h"
#include "kernels/launch_state.h"
#include "step/background.h"
#include "step/backward.h"
#include "step/enter.h"
#include "step/progress.h"
#include "step/queued/queue.h"
#include "step/reduce.h"
#include "step/seal.h"
#include "step/views.h"
#include "step/walk.h"

namespace zero {
namespace {

/// Returns p of the norm by which every step clips, or 0 if steps do not clip.
double power_of(const OptimizerOptions& options) {
  return options.max_grad_norm > 0 ? options.grad_norm_type : 0;
}

/// Returns true if one pass over the share can sum gradients and update parameters. Clipping,
/// skipping and norms of gradients need all gradients before any update.
bool one_pass(const Optimizer& optim, const Walk& walk) {
  const OptimizerOptions& options = optim.options;
  const auto needs_sums = [](const Rule& rule) {
    return is_custom(rule) || (has_trust(rule) && !rule.trust->of_update);
  };
  return !optim.any_rule(needs_sums) && walk.can_let_update_sum() &&
         optim.phase != Phase::reduced && power_of(options) == 0 &&
         options.nonfinite == ZERO_NONFINITE_IGNORE && !options.scales_loss();
}

/// Restores the StepLayout at the end of its lifetime unless keep() was called, because a call that
/// fails before it adds to sums must leave the earlier sums usable.
class Rollback {
 public:
  Rollback(Optimizer& optim, bool gathers) : memory_(step_memory(optim)) {
    if (gathers && optim.phase == Phase::reduced) before_ = memory_;
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

// ---- Enter.

/// Enters a call that needs reduced gradients. Completes `entry`.
Status enter_with_grads(Call& call, Optimizer& optim, const Grads& grads, Entry entry) {
  StepMemory& memory = step_memory(optim);
  if (memory.backward != nullptr) memory.backward->pause();  // its thread reads what changes here
  entry.grads = reduces(optim, grads);
  entry.captured = call.capture() != 0;
  if (entry.local.ok()) entry.local = optim.check_params();
  if (entry.local.ok()) entry.local = optim.check_loaded();
  if (entry.local.ok() && call.operation() != Operation::step) entry.local = optim.check_ended();
  if (entry.grads) {
    if (entry.local.ok()) entry.local = take(optim, memory, grads, entry.keeps);
    entry.reduce_flags = grads.flags;
  } else if (entry.local.ok() && grads.pointers != nullptr) {
    entry.local = optim.check_open();
  }
  const TimedSpan watch(optim.comm->trace, "enter", optim.counters.vote_seconds);
  return enter(call, optim, std::move(entry));
}

/// Does everything that may fail on a single rank, before any gradient is changed.
Status get_ready(Call& call, Optimizer& optim, Walk& walk, Views what, bool gathers) {
  const TimedSpan watch(optim.comm->trace, "ready", optim.counters.vote_seconds);
  const bool updates = what == Views::of_update;
  Status ready;
  if (gathers) {
    walk.stage_grads();
    ready = make_views(optim, step_memory(optim), what);
  }
  if (ready.ok() && updates) ready = optim.allocate_slots();
  if (ready.ok()) ready = walk.get_ready(updates);
  optim.comm->steps.deciding = updates;
  os().reached("ready.before");
  ZERO_TRY(vote_ready(call, optim, std::move(ready)));
  os().reached("ready.after");
  return Status();
}

/// Enters and gets ready for an update, or for sums that are kept until the step. A step like the
/// previous one is ready as soon as it has entered.
Status enter_and_get_ready(Call& call, Optimizer& optim, Walk& walk, const Grads& grads,
                           Entry entry, Views what) {
  const bool gathers = reduces(optim, grads);
  if (entry.local.ok()) entry.local = walk.begin();
  entry.updates = gathers && what == Views::of_update;
  Rollback rollback(optim, gathers);
  ZERO_TRY(enter_with_grads(call, optim, grads, std::move(entry)));
  if (step_memory(optim).ready) return rollback.keep(), Status();
  if (gathers || what == Views::of_update || walk.always_gets_ready())
    ZERO_TRY(get_ready(call, optim, walk, what, gathers));
  rollback.keep();
  return Status();
}

// ---- Gather, and decide based on the records.

/// If later calls will add to the sums, sets those sums to zero for which no rank has a gradient
/// yet.
Status clear_absent(const Optimizer& optim, const StepMemory& memory, Walk& walk) {
  if (!memory.accumulates || memory.adds) return Status();
  for (const View& view : memory.views) {
    const Section& section = optim.plan.section(view.segment.section);
    if (view.cls >= 0 || !is_floating(section.dtype)) continue;
    ZERO_TRY(walk.fill_zeros(view.reduced, size_of(section.sum(), view.segment.count)));
  }
  return Status();
}

/// Computes the sums at their owners, their p-norm (none if p is 0), and the factor that turns sums
/// into gradients.
Status gather(Call& call, Optimizer& optim, Walk& walk, const Grads& grads, double p) {
  StepMemory& memory = step_memory(optim);
  ZERO_TRY(clear_absent(optim, memory, walk));
  ZERO_TRY(walk.sum(p));
  memory.norm_type = p;
  memory.clipped = false;
  memory.flags = grads.flags;
  memory.reduced_in = call.capture();
  end_round(memory);
  return walk.decide({.p = p, .factor = mean_of(optim, grads.flags)}, By::records);
}

/// Measures the p-norm of the present sums, unless it is known.
Status know_norm(StepMemory& memory, Walk& walk, double p) {
  if (memory.norm_type == p) return Status();
  ZERO_TRY(walk.measure(p));
  memory.norm_type = p;
  return Status();
}

/// Decides the clip factor, and whether the step is taken, skipped or refused.
Status decide(const Optimizer& optim, StepMemory& memory, Walk& walk) {
  const OptimizerOptions& options = optim.options;
  const double p = power_of(options);
  if (p != 0) ZERO_TRY(know_norm(memory, walk, p));
  return walk.decide({.p = p,
                      .max_grad_norm = options.max_grad_norm,
                      .skips = options.nonfinite == ZERO_NONFINITE_SKIP || options.scales_loss(),
                      .refuses = options.nonfinite == ZERO_NONFINITE_ERROR,
                      .again = true},
                     By::records);
}

// ---- A step.

/// Replaces the flags by those with which the step has begun. Fails if the call passes other flags.
Status take_begun_flags(Optimizer& optim, Grads& grads) {
  if (optim.phase != Phase::begun) return Status();
  const int32_t given = std::exchange(grads.flags, step_memory(optim).flags);
  if (given == 0 || given == grads.flags) return Status();
  return bad_argument("reduce flags are ", given, "; the step began with ", grads.flags);
}

/// Ends the step on the optimizer's own thread, which takes over the call.
void end_in_background(Call& call, Optimizer& optim, bool fused) {
  step_memory(optim).background->begin(std::move(call), [&optim, fused](Call& own) {
    optim.last_step = ZERO_ERR_MEMORY;  // in case memory runs out
    const auto walk = make_walk(own, optim);
    Status status = walk->apply(fused);
    if (status.ok()) status = walk->publish(fused);
    if (!status.ok()) optim.last_step = status.code();
    return status;
  });
}

/// Gathers, votes, applies and publishes.
Result<Code> make_step(Call& call, Optimizer& optim, Walk& walk, const Grads& grads, bool gathers,
                       bool fused) {
  StepMemory& memory = step_memory(optim);
  if (fused) {
    ZERO_TRY(walk.let_update_sum());
    ZERO_TRY(walk.decide({.factor = mean_of(optim, grads.flags)}, By::nothing));
  } else {
    ZERO_TRY(gathers ? gather(call, optim, walk, grads, power_of(optim.options))
                     : walk.find_summed());
    ZERO_TRY(decide(optim, memory, walk));
  }
  const Code code = ZERO_TRY(walk.vote());
  if (code != ZERO_OK) return code;
  if (memory.background != nullptr) {
    end_in_background(call, optim, fused);
    return code;
  }
  ZERO_TRY(walk.apply(fused));
  ZERO_TRY(walk.publish(fused));
  return code;
}

// ---- Calls that keep the sums for the step.

/// Computes the sums if necessary, keeps them for the step, and calls use() to work on them.
template <class Use>
Status with_sums(Call& call, Optimizer& optim, Walk& walk, const Grads& grads, Entry entry,
                 double p, const Use& use) {
  const bool gathers = reduces(optim, grads);
  entry.keeps = entry.sums = true;
  ZERO_TRY(enter_and_get_ready(call, optim, walk, grads, std::move(entry), Views::of_sums));
  if (gathers) ZERO_TRY(run(walk, [&] { return gather(call, optim, walk, grads, p); }));
  optim.phase = Phase::reduced;
  return use();
}

// ---- Clipping.

Result<Chosen> choose(const Optimizer& optim, const Clip& clip) {
  if (!clip.some) return Chosen();
  Chosen chosen(optim.params.size());
  for (const int64_t param : clip.params) {
    ZERO_TRY(optim.check_param(param));
    const auto index = static_cast<size_t>(param);
    if (chosen[index])
      return bad_argument("parameter ", param, ", '", optim.params[index].name,
                          "', is listed twice");
    chosen[index] = true;
  }
  return chosen;
}

Status check_clip(const Call& call, const Optimizer& optim, const Walk& walk, const Clip& clip,
                  const double* norm) {
  ZERO_TRY(walk.check_norm_type(clip.norm_type));
  if (!(clip.max_norm > 0))
    return bad_argument("max_norm is ", clip.max_norm, "; it must be positive");
  if (norm != nullptr && call.capture() != 0)
    return unsupported(
        "the stream is being captured: there is no norm yet, so `norm` must be NULL");
  return clip.some ? optim.check_host("the norm of some parameters") : Status();
}

std::string lines_of(const Clip& clip) {
  std::string lines = text("max_norm ", clip.max_norm, "\nnorm_type ", clip.norm_type, "\n");
  if (clip.some) lines += text(clip.params.size(), " parameters listed\n");
  for (const int64_t param : clip.params) lines += text("parameter ", param, " listed next\n");
  return lines;
}

/// Clips all gradients by changing the factor of the sums. Returns the norm before clipping.
Result<double> clip_all(Optimizer& optim, Walk& walk, const Clip& clip, bool returns) {
  StepMemory& memory = step_memory(optim);
  ZERO_TRY(run(walk, [&]() -> Status {
    ZERO_TRY(know_norm(memory, walk, clip.norm_type));
    return walk.decide({.p = clip.norm_type, .max_grad_norm = clip.max_norm, .again = true},
                       By::records);
  }));
  if (returns) ZERO_TRY(queued::settle(optim));
  return optim.state.grad_norm;
}

/// Clips the gradients of the chosen parameters by scaling their sums. Returns the norm before
/// clipping.
Result<double> clip_some(Call& call, Optimizer& optim, const Clip& clip, const Chosen& chosen) {
  StepMemory& memory = step_memory(optim);
  const NormSums mine = norm_of_share(optim, memory, clip.norm_type, chosen);
  const NormSums all = ZERO_TRY(call.combine("norm of some", optim.counted(mine)));
  const double raw = launch::norm_of_records(&all, 1, clip.norm_type);
  const double norm = raw * optim.state.factor;
  if (const double factor = launch::clip_factor(clip.max_norm, norm); factor < 1) {
    scale_share(optim, memory, chosen, factor);
    memory.norm_type = 0;  // the norm was that of the old sums
  }
  return norm;
}

}  // namespace

Status seal_params(Call& call, Optimizer& optim) {
  return enter(call, optim, {.local = optim.check_params()});
}

Result<Code> step(Call& call, Optimizer& optim, const Grads& given) try {
  const bool captured = call.capture() != 0;
  const auto walk = make_walk(call, optim);
  const bool fused = one_pass(optim, *walk);
  const bool gathers = reduces(optim, given);
  Grads grads = given;
  Result<Code> made = ZERO_OK;
  Entry entry{.local = take_begun_flags(optim, grads),
              .sums = !fused || writes_directions(optim),
              .fused = fused};
  Status status =
      enter_and_get_ready(call, optim, *walk, grads, std::move(entry), Views::of_update);
  if (status.ok()) {
    status = walk->begin_work();
    if (status.ok()) {
      made = make_step(call, optim, *walk, grads, gathers, fused);
      status = made.failure();
    }
    status = walk->end_work(std::move(status));
    if (status.ok()) walk->count_step();
  }
  if (!captured) {  // a captured step is taken when its graph is launched
    walk->note(status.code());
    if (!status.ok()) optim.last_step = status.code();
  }
  if (!status.ok()) return status;
  return made;
} catch (...) {  // memory has run out
  optim.last_step = ZERO_ERR_MEMORY;
  throw;
}

Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads) {
  const auto walk = make_walk(call, optim);
  Status local = reduces(optim, grads) ? Status() : optim.check_open();
  return with_sums(call, optim, *walk, grads, {.local = std::move(local)}, power_of(optim.options),
                   [] { return Status(); });
}

Status clip_grad_norm(Call& call, Optimizer& optim, const Clip& clip, double* norm,
                      const Grads& grads) {
  const auto walk = make_walk(call, optim);
  const auto chosen = choose(optim, clip);
  Entry entry{.local = chosen.ok() ? check_clip(call, optim, *walk, clip, norm) : chosen.failure(),
              .args = lines_of(clip)};
  const double p = clip.some ? 0 : clip.norm_type;
  return with_sums(call, optim, *walk, grads, std::move(entry), p, [&]() -> Status {
    step_memory(optim).clipped = true;
    const double found = ZERO_TRY(clip.some ? clip_some(call, optim, clip, *chosen)
                                            : clip_all(optim, *walk, clip, norm != nullptr));
    if (norm != nullptr) *norm = found;
    return Status();
  });
}

Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads) {
  const auto walk = make_walk(call, optim);
  Entry entry{.args = text("max_value ", hex_double(max_value), "\n")};
  if (!(max_value > 0))
    entry.local = bad_argument("max_value is ", max_value, "; it must be positive");
  return with_sums(call, optim, *walk, grads, std::move(entry), 0, [&]() -> Status {
    StepMemory& memory = step_memory(optim);
    memory.clipped = true;
    memory.norm_type = 0;  // the norm was that of the old sums
    return run(*walk, [&]() -> Status {
      ZERO_TRY(walk->clamp(max_value));
      return walk->decide({.again = true, .gradients = true}, By::nothing);
    });
  });
}

}  // namespace zero
