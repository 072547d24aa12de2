// SPDX-License-Identifier: Apache-2.0
#include "step/queued/queue.h"

#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "step/progress.h"

namespace zero::queued {

Result<Upload> Upload::create(const std::shared_ptr<Comm>& comm) {
  Upload upload;
  upload.comm_ = comm;
  for (Slot& slot : upload.slots_) slot.read = ZERO_TRY(make_event(comm->device()));
  return upload;
}

/// Waits until the device has read the previous content.
Status Upload::await(const Slot& slot) const {
  return zero::await(*comm_->device(), slot.read.handle(), patience_ms(*comm_), "reading a table",
                     [this] { return comm_->check(); });
}

Status Upload::reserve(size_t bytes) {
  for (Slot& slot : slots_) {
    if (slot.buffer.bytes() >= bytes) continue;
    ZERO_TRY(await(slot));
    slot.buffer = ZERO_TRY(HostBuffer::allocate(comm_->device(), bytes, "tables in transit"));
  }
  return Status();
}

Status Upload::put(StreamHandle stream, void* to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return Status();
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  ZERO_TRY(await(slot));
  std::memcpy(slot.buffer.data(), bytes.data(), bytes.size());
  Device& device = *comm_->device();
  ZERO_TRY(device.copy(stream, to, slot.buffer.data(), bytes.size()));
  return device.record(slot.read.handle(), stream);
}

// ---- The data that steps keep between calls.

Result<std::unique_ptr<Queue>> Queue::create(const Optimizer& optim) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  auto queue = std::make_unique<Queue>();
  queue->comm = optim.comm;
  queue->device = device.get();
  queue->timeout_ms = patience_ms(*optim.comm);
  for (Upload* const upload :
       {&queue->tables_upload, &queue->settings_upload, &queue->progress_upload})
    *upload = ZERO_TRY(Upload::create(optim.comm));
  queue->looks = ZERO_TRY(make_stream(device));
  queue->looked = ZERO_TRY(make_event(device));
  ZERO_TRY(queue->make_frame());
  return queue;
}

Status Queue::make_frame() {
  const std::shared_ptr<Device>& its = comm->device();
  for (Event* event : {&given, &measured, &decided, &gathered, &ended})
    *event = ZERO_TRY(make_event(its));
  if (comm->direct()) return Status();
  reduces = ZERO_TRY(make_stream(its));
  gathers = ZERO_TRY(make_stream(its));
  for (Event* event : {&comm->queued()->reduced, &comm->queued()->gathered})
    if (event->handle() == nullptr) *event = ZERO_TRY(make_event(its));
  return Status();
}

Queue::~Queue() {
  if (publishing) comm->steps.publishing--;
}

bool Queue::await_end() noexcept {
  return !in_flight || succeeds([this] { return await_flight(); });
}

bool Queue::await_flight() {
  const Status drained = drain();
  if (drained.ok()) return true;
  const bool late = drained.code() == ZERO_ERR_TIMEOUT && !comm->aborted();
  return !late && await_all_streams();
}

/// Waits until the work on all streams of a broken comm has ended. Queued work no longer waits for
/// other ranks, because gates are open, NCCL communicators are aborted, and a host that waits for
/// other ranks queues nothing before they arrive. But the work uses this memory until it ends.
/// After a call that failed, `ended` does not cover the work on the side streams.
bool Queue::await_all_streams() {
  const Deadline deadline(timeout_ms);
  const auto await = [&](const Event& event) {
    return zero::await(*device, event.handle(), deadline.left_ms(), "the steps so far").ok();
  };
  if (!await(ended)) return false;
  for (const Stream* side : {&reduces, &gathers, &looks}) {
    if (side->handle() == nullptr) continue;
    if (!device->record(given.handle(), side->handle()).ok() || !await(given)) return false;
  }
  return true;
}

Status Queue::await(const Event& event, std::string_view what) const {
  return zero::await(*device, event.handle(), timeout_ms, what, [this] { return comm->check(); });
}

Status Queue::await_looks() {
  ZERO_TRY(device->record(looked.handle(), looks.handle()));
  return await(looked, "copies from the host");
}

Status Queue::drain() const {
  ZERO_TRY(await(ended, "the steps so far"));
  ZERO_TRY(await(gathered, "gathering parameters"));
  return await(looked, "copies to the host");
}

void Queue::note_publishing() {
  if (!std::exchange(publishing, true)) comm->steps.publishing++;
}

void Queue::note_published() {
  if (!replays() && std::exchange(publishing, false)) comm->steps.publishing--;
}

Status note_announced(Optimizer& optim, StreamHandle stream) {
  Queue* const queue = step_memory(optim).queue.get();
  if (queue == nullptr) return Status();
  std::vector<Announcing>& all = queue->announcing;
  const uint64_t number = ZERO_TRY(queue->device->number_of(stream));
  auto found = std::ranges::find(all, number, &Announcing::stream);
  if (found == all.end()) {
    Event event = ZERO_TRY(make_event(optim.comm->device()));
    found = all.insert(all.end(), {number, std::move(event), true});
  }
  ZERO_TRY(queue->device->record(found->event.handle(), stream));
  found->waited = false;
  return Status();
}

Status wait_for_param(Optimizer& optim, int64_t param, StreamHandle stream) {
  Queue& queue = *step_memory(optim).queue;
  const std::lock_guard lock(queue.waiting);
  const Frame& frame = queue.aside != nullptr ? *queue.aside : queue;
  if (!queue.gathering || param == ZERO_ALL_PARAMS)
    return queue.device->wait(stream, frame.gathered.handle(), order::kArrived);
  const int32_t last = (*queue.last_gathers)[static_cast<size_t>(param)];
  if (last < 0) return Status();
  return queue.device->wait(stream, frame.arrived[static_cast<size_t>(last)].handle(),
                            order::kArrived);
}

// ---- Waits of the host for the device, and the results of steps.

bool may_have_skipped(const Optimizer& optim, const StepMemory& memory) {
  const OptimizerOptions& options = optim.options;
  if (memory.apart) return false;  // classes do not depend on progress
  return memory.queue != nullptr && memory.queue->in_flight &&
         (options.nonfinite != ZERO_NONFINITE_IGNORE || options.scales_loss());
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
    const bool reads = !queue.host_is_newer;  // otherwise, the host's progress was never sent
    const size_t bytes = std::min(queue.progress.bytes(), queue.progress_read.bytes());
    if (reads) {
      ZERO_TRY(device.copy(stream, queue.progress_read.data(), queue.progress.data(), bytes));
      ZERO_TRY(device.copy(stream, queue.state_read.data(), queue.state.data(), sizeof(StepState)));
    }
    ZERO_TRY(device.record(queue.looked.handle(), stream));
    ZERO_TRY(queue.await(queue.looked, "the steps so far"));
    if (queue.comm->aborted()) return queue.comm->failure_status();  // the results are not valid
    if (reads) {
      std::memcpy(&queue.known, queue.state_read.data(), sizeof queue.known);
      optim.state = queue.known;
      optim.last_step = code_of(optim.state);
      const size_t rows = std::min(optim.progress.size(), bytes / sizeof(ParamProgress));
      std::memcpy(optim.progress.data(), queue.progress_read.data(), rows * sizeof(ParamProgress));
    }
    queue.note_published();
    const std::lock_guard lock(queue.waiting);
    queue.gathering = false;
    queue.in_flight = false;
  }
  if (!queue.replays()) queue.host_is_newer = true;
  if (queue.failed != ZERO_OK) optim.last_step = queue.failed;
  return Status();
}

}  // namespace zero::queued
