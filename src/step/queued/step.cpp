// SPDX-License-Identifier: Apache-2.0
#include "step/queued/step.h"

#include <cmath>

#include "base/text.h"
#include "step/backward.h"
#include "step/gather.h"
#include "step/progress.h"
#include "step/queued/capture.h"
#include "step/queued/walk.h"
#include "step/take.h"

namespace zero::queued {
namespace {

double power_of(const OptimizerOptions& options) {
  return options.max_grad_norm > 0 ? options.grad_norm_type : 0;
}

/// Clipping and skipping must know all gradients before any update.
bool decides(const Optimizer& optim) {
  const OptimizerOptions& options = optim.options;
  return optim.phase == Phase::reduced || options.max_grad_norm > 0 ||
         options.nonfinite != ZERO_NONFINITE_IGNORE || options.loss_scale.dynamic();
}

/// Let `work` queue this call's part. What cannot be queued on this rank cannot be taken back from
/// the others.
template <class Work>
Status queue(Call& call, Optimizer& optim, StreamHandle stream, const Work& work) {
  StepMemory& memory = step_memory(optim);
  const HostShare host(optim);
  const auto queue_all = [&]() -> Status {
    ZERO_TRY(begin(optim, memory, stream));
    Walk walk(optim, memory, stream);
    return work(walk);
  };
  Status status = queue_all();
  Status ended = end(*memory.queue, stream);  // behind a part of it, too: its memory is in use
  if (status.ok()) status = std::move(ended);
  if (memory.capture != 0) return call.vote("captured", status);  // nothing is under way
  return status.ok() ? status : call.abort(status, "queue");
}

/// Zeros where nothing is reduced to, as later calls may add to it.
Status clear_absent(const Optimizer& optim, const StepMemory& memory, StreamHandle stream) {
  for (const View& view : memory.views) {
    const Section& section = optim.plan.section(view.segment.section);
    if (view.cls >= 0 || !is_floating(section.dtype)) continue;
    ZERO_TRY(memory.queue->device->fill(
        stream, view.reduced, 0, static_cast<size_t>(view.segment.count) * size_of(section.sum())));
  }
  return Status();
}

/// Sums, their norm for p, and the factor that makes gradients of them.
Status gather(Optimizer& optim, StepMemory& memory, Walk& walk, const Grads& grads, double p) {
  if (memory.accumulates && !memory.adds) ZERO_TRY(clear_absent(optim, memory, grads.stream));
  ZERO_TRY(walk.reduce(true));
  ZERO_TRY(walk.await_sums());
  ZERO_TRY(walk.measure(p, true));
  memory.flags = grads.flags;
  memory.clipped = false;
  memory.queue->reduced_in = memory.capture;
  end_round(memory);
  return walk.decide({.factor = mean_of(optim, grads.flags), .p = p, .records = true});
}

/// The norm for p of sums that stand, unless it is known.
Status know_norm(const StepMemory& memory, Walk& walk, double p) {
  return memory.norm_type == p ? Status() : walk.measure(p, false);
}

/// What a call that keeps the sums begins with, after its entry.
Status reduce_unless_done(Call& call, Optimizer& optim, const Grads& grads, double p) {
  StepMemory& memory = step_memory(optim);
  const bool done = optim.phase == Phase::reduced && !grads.accumulate();
  ZERO_TRY(get_ready(call, optim, false, !done));
  if (!done) {
    ZERO_TRY(queue(call, optim, grads.stream,
                   [&](Walk& walk) { return gather(optim, memory, walk, grads, p); }));
  }
  optim.phase = Phase::reduced;
  return Status();
}

Status check_norm(double max_norm, double p) {
  if (!(p == 1 || p == 2 || (std::isinf(p) && p > 0)))
    return Status(ZERO_ERR_UNSUPPORTED,
                  text("norm_type is ", p, "; on a device it must be 1, 2 or infinite"));
  if (max_norm > 0) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("max_norm is ", max_norm, "; it must be positive"));
}

/// The host's count goes on as if every step were made; what was skipped is known when it asks.
void count_step(Optimizer& optim) {
  optim.step++;
  optim.queued_steps++;
  optim.comm->steps_done = optim.step;
  optim.phase = Phase::open;
}

}  // namespace

Status check_options(const Comm& comm, const OptimizerOptions& options) {
  const auto cannot = [&](std::string_view what) {
    return Status(ZERO_ERR_UNSUPPORTED,
                  text(what, " is not possible on a ", comm.device()->kind(), " device"));
  };
  if (options.custom != nullptr) return cannot("an update function of your own");
  if (options.rule->trust != nullptr) return cannot(text("optimizer ", options.rule->name));
  if (options.uneven_inputs != ZERO_UNEVEN_OFF) return cannot("uneven_inputs");
  if (options.predivide_factor != 1) return cannot("predivide_factor");
  if (options.max_grad_norm > 0) return check_norm(options.max_grad_norm, options.grad_norm_type);
  return Status();
}

Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads) {
  const bool gathers = reduces(optim, grads);
  step_memory(optim).stream = grads.stream;
  Status local = gathers ? check_capture(optim) : optim.check_open();
  const CapturedCall captured(optim);
  Rollback rollback(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local), {}));
  StepMemory& memory = step_memory(optim);
  ZERO_TRY(get_ready(call, optim, false, true));
  rollback.keep();
  ZERO_TRY(queue(call, optim, grads.stream, [&](Walk& walk) {
    return gather(optim, memory, walk, grads, power_of(optim.options));
  }));
  optim.phase = Phase::reduced;
  return Status();
}

Status clip_grad_norm(Call& call, Optimizer& optim, double max_norm, double norm_type, double* norm,
                      const Grads& grads) {
  step_memory(optim).stream = grads.stream;
  Status local = check_norm(max_norm, norm_type);
  if (local.ok() && norm != nullptr && step_memory(optim).capture != 0)
    local = Status(ZERO_ERR_UNSUPPORTED,
                   "the stream is being captured: there is no norm yet, so `norm` must be NULL");
  if (local.ok()) local = check_capture(optim);
  const CapturedCall captured(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local),
                            text("max_norm ", max_norm, "\nnorm_type ", norm_type, "\n")));
  ZERO_TRY(reduce_unless_done(call, optim, grads, norm_type));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  ZERO_TRY(queue(call, optim, grads.stream, [&](Walk& walk) -> Status {
    ZERO_TRY(know_norm(memory, walk, norm_type));
    return walk.decide({.max_grad_norm = max_norm, .p = norm_type, .records = true, .again = true});
  }));
  if (norm == nullptr) return Status();
  ZERO_TRY(settle(optim));
  *norm = memory.queue->known.grad_norm;
  return Status();
}

Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads) {
  Status local;
  if (!(max_value > 0))
    local = Status(ZERO_ERR_ARGUMENT, text("max_value is ", max_value, "; it must be positive"));
  step_memory(optim).stream = grads.stream;
  if (local.ok()) local = check_capture(optim);
  const CapturedCall captured(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, true, true, std::move(local),
                            text("max_value ", hex_double(max_value), "\n")));
  ZERO_TRY(reduce_unless_done(call, optim, grads, 0));
  StepMemory& memory = step_memory(optim);
  memory.clipped = true;
  memory.norm_type = -1;  // of the sums, which are no more
  return queue(call, optim, grads.stream, [&](Walk& walk) -> Status {
    ZERO_TRY(walk.clamp(max_value));
    return walk.decide({.again = true, .gradients = true});
  });
}

Status step(Call& call, Optimizer& optim, const Grads& grads) {
  StepMemory& memory = step_memory(optim);
  const OptimizerOptions& options = optim.options;
  const bool fused = !decides(optim);
  const bool gathers = reduces(optim, grads);
  const double p = power_of(options);
  memory.stream = grads.stream;
  Status local = check_capture(optim);
  const CapturedCall captured(optim);
  Rollback rollback(optim);
  ZERO_TRY(enter_with_grads(call, optim, grads, false, !fused, std::move(local), {}));
  ZERO_TRY(get_ready(call, optim, true, gathers));
  rollback.keep();
  memory.queue->note_publishing();
  ZERO_TRY(queue(call, optim, grads.stream, [&](Walk& walk) -> Status {
    if (fused) {
      ZERO_TRY(walk.reduce(false));
      end_round(memory);
      ZERO_TRY(walk.decide({.factor = mean_of(optim, grads.flags)}));
    } else {
      ZERO_TRY(gathers ? gather(optim, memory, walk, grads, p) : walk.enter());
      if (p != 0) ZERO_TRY(know_norm(memory, walk, p));
      ZERO_TRY(walk.decide(
          {.max_grad_norm = options.max_grad_norm,
           .p = p,
           .records = true,
           .skips = options.nonfinite == ZERO_NONFINITE_SKIP || options.loss_scale.dynamic(),
           .refuses = options.nonfinite == ZERO_NONFINITE_ERROR,
           .again = true}));
    }
    ZERO_TRY(walk.update_and_publish(fused));
    return walk.finish(fused);
  }));
  if (memory.capture != 0) {
    optim.phase = Phase::open;  // launches make the steps
    return Status();
  }
  count_updates(optim, memory);
  count_step(optim);
  return Status();
}

}  // namespace zero::queued
