// SPDX-License-Identifier: Apache-2.0
// What a walk on a device is around its verbs: when it may begin, and that its work is queued.
#include "step/queued/walk.h"

#include <cmath>

#include "base/refusals.h"
#include "step/progress.h"

namespace zero::queued {
namespace {

Status check_power(double p) {
  if (p == 1 || p == 2 || (std::isinf(p) && p > 0)) return Status();
  return unsupported("norm_type is ", p, "; on a device it must be 1, 2 or infinite");
}

}  // namespace

Status check_options(const Comm& comm, const OptimizerOptions& options) {
  const auto cannot = [&](std::string_view what) {
    return unsupported(what, " is not possible on a ", comm.device()->kind(), " device");
  };
  if (options.custom != nullptr) return cannot("an update function of your own");
  if (options.rule->trust != nullptr) return cannot(text("optimizer ", options.rule->name));
  if (options.uneven_inputs != ZERO_UNEVEN_OFF) return cannot("uneven_inputs");
  if (options.predivide_factor != 1) return cannot("predivide_factor");
  return options.max_grad_norm > 0 ? check_power(options.grad_norm_type) : Status();
}

Walk::Walk(Call& call, Optimizer& optim)
    : call_(call),
      optim_(optim),
      memory_(step_memory(optim)),
      plane_(optim.comm->direct() ? nullptr : optim.comm->queued()),
      gates_(optim.comm->gates()) {}

Status Walk::begin() {
  ZERO_TRY(check_capture(optim_, call_.capture()));
  captured_.emplace(optim_, call_.capture());
  return Status();
}

Status Walk::check_norm_type(double p) const { return check_power(p); }

Status Walk::prepare(bool) { return queued::prepare(optim_, memory_); }

Status Walk::begin_work() {
  host_share_.emplace(optim_);
  if (call_.operation() == Operation::step) queue().note_publishing();
  return queued::begin(optim_, memory_, stream());
}

/// What cannot be queued on this rank cannot be taken back from the others.
Status Walk::end_work(Status status) {
  Status ended = queued::end(queue(), stream());  // behind a part of it, too: its memory is in use
  if (status.ok()) status = std::move(ended);
  host_share_.reset();
  if (call_.capture() != 0) return call_.vote("captured", status);  // nothing is under way
  return status.ok() ? status : call_.abort(status, "queue");
}

Status Walk::fill_zeros(std::byte* data, size_t bytes) {
  return device().fill(stream(), data, 0, bytes);
}

/// The host's count goes on as if every step were made; what was skipped is known when it asks. Of
/// a captured step it is told by launches.
void Walk::count_step() {
  optim_.phase = Phase::open;
  if (call_.capture() != 0) return;
  count_updates(optim_, memory_);
  optim_.state.steps++;
  optim_.queued_steps++;
  optim_.comm->steps.done = optim_.state.steps;
}

void Walk::note(Code code) { queue().failed = code; }

}  // namespace zero::queued
