// SPDX-License-Identifier: Apache-2.0
// The host waits for the device, and takes over what the steps have found.
#include <algorithm>
#include <cstring>

#include "step/progress.h"
#include "step/queued/queue.h"

namespace zero::queued {
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
      ZERO_TRY(device.copy(stream, queue.state_read.data(), queue.state.data(), sizeof(StepState)));
    }
    ZERO_TRY(device.record(queue.looked.handle(), stream));
    ZERO_TRY(queue.await(queue.looked, "the steps so far"));
    if (queue.comm->aborted()) return queue.comm->failure_status();  // they ended, but not as steps
    if (reads) {
      std::memcpy(&memory.state, queue.state_read.data(), sizeof memory.state);
      adopt(optim, memory.state);
      const size_t rows = std::min(optim.progress.size(), bytes / sizeof(ParamProgress));
      std::memcpy(optim.progress.data(), queue.progress_read.data(), rows * sizeof(ParamProgress));
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
