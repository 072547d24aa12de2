// SPDX-License-Identifier: Apache-2.0
// Implements calls whose stream is being captured.
#include "base/refusals.h"
#include "step/queued/queue.h"

namespace zero::queued {
namespace {

/// Fails with ZERO_ERR_STATE if the present sums belong to a capture other than `capture`, which is
/// 0 for a call that is not captured.
Status check_sums(Optimizer& optim, uint64_t capture) {
  const StepMemory& memory = step_memory(optim);
  if (optim.phase != Phase::reduced || memory.reduced_in == capture) return Status();
  if (memory.reduced_in == 0)
    return wrong_state(
        "gradients were reduced before the capture began: call zero_step or drop them first");
  return wrong_state(
      "gradients were reduced in a capture, which has not run yet: call zero_step in the "
      "same capture, or drop them first");
}

}  // namespace

Status check_capture(Optimizer& optim, uint64_t capture) {
  ZERO_TRY(check_sums(optim, capture));
  if (capture == 0) return Status();
  if (!optim.sealed())
    return wrong_state(
        "the stream is being captured, but parameters are not sealed yet: call zero_seal, or "
        "take a step, before the capture");
  if (optim.phase == Phase::reducing)
    return wrong_state(
        "gradients were announced outside the capture: call zero_step or drop them first");
  return settle(optim);
}

CapturedCall::CapturedCall(Optimizer& optim, uint64_t capture)
    : optim_(optim),
      memory_(step_memory(optim)),
      captured_(capture != 0),
      counters_(optim.counters) {
  if (!captured_) return;
  if (!std::exchange(memory_.apart, true)) drop_views(memory_);
  Queue& queue = *memory_.queue;
  queue.captured.reserve(queue.captured.size() + 1);
  other_.capture = capture;
  exchange();
}

CapturedCall::~CapturedCall() {
  if (!captured_) return;
  exchange();
  optim_.counters.moved_bytes = counters_.moved_bytes;  // nothing has been moved yet
  optim_.counters.copied_bytes = counters_.copied_bytes;
  if (other_.layout != 0) memory_.queue->captured.push_back(std::move(other_));
}

void CapturedCall::exchange() {
  Queue& queue = *memory_.queue;
  const std::lock_guard lock(queue.waiting);
  std::swap(static_cast<Frame&>(queue), other_);
  queue.aside = queue.capture != 0 ? &other_ : nullptr;
  if (optim_.comm->direct()) return;
  QueuedPlane& plane = *optim_.comm->queued();
  Frame& captured = queue.capture != 0 ? static_cast<Frame&>(queue) : other_;
  std::swap(plane.reduced, captured.plane_reduced);
  std::swap(plane.gathered, captured.plane_gathered);
}

}  // namespace zero::queued
