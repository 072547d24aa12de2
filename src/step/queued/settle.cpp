// SPDX-License-Identifier: Apache-2.0
// The host waits for the device, and takes over what the steps have found.
#include <algorithm>
#include <cstring>

#include "step/queued/queue.h"

namespace zero::queued {
namespace {

/// As zero_step_result tells it.
Code code_of(const launch::State& state) {
  if (state.last_ending != launch::Ending::refused)
    return state.last_ending == launch::Ending::skipped ? ZERO_SKIPPED : ZERO_OK;
  switch (state.last_refusal) {
    case launch::Refusal::broken:
      return ZERO_ERR_COMM;
    case launch::Refusal::outdated:
      return ZERO_ERR_STATE;
    case launch::Refusal::setting:
      return ZERO_ERR_ARGUMENT;
    default:
      return ZERO_ERR_NONFINITE;
  }
}

/// What the device found, as the host tells it and goes on from.
void adopt(Optimizer& optim, const Queue& queue, size_t params) {
  const launch::State& known = queue.known;
  const auto* const rows = reinterpret_cast<const launch::Progress*>(queue.progress_read.data());
  for (size_t i = 0; i < params; i++)
    optim.progress[i] = {rows[i].step, rows[i].live_slots, rows[i].product};
  optim.step = known.steps;
  optim.skipped = known.skipped;
  optim.loss_scale.scale = known.loss_scale;
  optim.loss_scale.good_steps = known.good_steps;
  optim.counters.nonfinite_elements = static_cast<int64_t>(known.all_nonfinite);
  optim.outcome = {.nonfinite = static_cast<int64_t>(known.last_nonfinite),
                   .grad_norm = known.last_norm,
                   .clip_factor = known.last_clip_factor,
                   .status = code_of(known)};
}

}  // namespace

Status finish(const Optimizer& optim, StreamHandle stream, std::string_view what) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const Event done = ZERO_TRY(make_event(device));
  ZERO_TRY(device->record(done.handle(), stream));
  const auto stop = [&] { return optim.comm->check(); };
  return await_end(*device, done.handle(), patience_ms(*optim.comm), what, stop);
}

bool may_have_skipped(const Optimizer& optim, const StepMemory& memory) {
  const OptimizerOptions& options = optim.options;
  if (memory.apart) return false;  // classes do not depend on it
  return memory.queue != nullptr && memory.queue->in_flight &&
         (options.nonfinite != ZERO_NONFINITE_IGNORE || options.loss_scale.dynamic());
}

Status settle(Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  if (memory.queue == nullptr) return Status();
  Queue& queue = *memory.queue;
  Device& device = *queue.device;
  const StreamHandle stream = queue.looks.handle();
  if (queue.in_flight || queue.replays()) {
    ZERO_TRY(device.wait(stream, queue.ended.handle(), order::kLooked));
    ZERO_TRY(device.wait(stream, queue.gathered.handle(), order::kLooked));
    const bool reads = !queue.host_is_newer;  // what was queued never got the host's, if it is
    const size_t bytes = std::min(queue.progress.bytes(), queue.progress_read.bytes());
    if (reads) {
      ZERO_TRY(device.copy(stream, queue.progress_read.data(), queue.progress.data(), bytes));
      ZERO_TRY(
          device.copy(stream, queue.state_read.data(), queue.state.data(), sizeof(launch::State)));
    }
    ZERO_TRY(device.record(queue.looked.handle(), stream));
    ZERO_TRY(queue.await(queue.looked, "the steps so far"));
    if (queue.comm->aborted()) return queue.comm->failure_status();  // they ended, but not as steps
    if (reads) {
      std::memcpy(&queue.known, queue.state_read.data(), sizeof queue.known);
      adopt(optim, queue, std::min(optim.progress.size(), bytes / sizeof(launch::Progress)));
    }
    queue.note_published();
    const std::lock_guard lock(queue.waiting);
    queue.gathering = false;
    queue.in_flight = false;
  }
  if (!queue.replays()) queue.host_is_newer = true;
  if (queue.failed != ZERO_OK) optim.outcome.status = queue.failed;
  return Status();
}

}  // namespace zero::queued
