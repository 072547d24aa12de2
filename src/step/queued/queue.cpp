// SPDX-License-Identifier: Apache-2.0
#include "step/queued/queue.h"

#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "base/text.h"
#include "step/norm.h"
#include "step/progress.h"
#include "step/queued/upload.h"
#include "step/travel.h"

namespace zero::queued {
namespace {

/// Grow `memory` to hold `bytes`; what is queued may still use the old block, so it ends first.
Status grow(Queue& queue, const std::shared_ptr<Device>& device, Memory& memory, size_t bytes,
            std::string_view what) {
  if (memory.bytes() >= bytes) return Status();
  ZERO_TRY(queue.drain());
  Memory grown = ZERO_TRY(Memory::allocate(device, bytes, what));
  std::swap(memory, grown);
  queue.retire(std::move(grown));
  return Status();
}

Status grow_host(const std::shared_ptr<Device>& device, HostBuffer& buffer, size_t bytes) {
  if (buffer.bytes() < bytes)
    buffer = ZERO_TRY(HostBuffer::allocate(device, bytes, "what a step found"));
  return Status();
}

/// Buffers for what travels packed, and an event for each transfer.
Status make_room(Optimizer& optim, StepMemory& memory, Queue& queue) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const travel::Room room = travel::room_for(optim, memory);
  ZERO_TRY(grow(queue, device, memory.send, room.sent, "transfer buffers"));
  ZERO_TRY(grow(queue, device, memory.receive, room.received, "transfer buffers"));
  const size_t count =
      std::max(optim.plan.transfers(true).size(), optim.plan.transfers(false).size());
  const std::lock_guard lock(queue.waiting);
  for (std::vector<Event>* events : {&queue.summed, &queue.updated, &queue.arrived})
    while (events->size() < count) events->push_back(ZERO_TRY(make_event(device)));
  return Status();
}

MadeOf made_of(const Optimizer& optim, const StepMemory& memory) {
  return {.views = memory.views_number,
          .state = optim.state_bytes(),
          .adds = memory.adds,
          .reduces_in_place = travel::reduces_in_place(optim, memory),
          .publishes_in_place = travel::publishes_in_place(optim, memory),
          .send = memory.send.data(),
          .receive = memory.receive.data()};
}

/// Streams and events that a call waits by.
Status make_frame(const Optimizer& optim, Queue& queue) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  for (Event* event :
       {&queue.given, &queue.measured, &queue.decided, &queue.gathered, &queue.ended})
    *event = ZERO_TRY(make_event(device));
  if (optim.comm->direct()) return Status();
  queue.reduces = ZERO_TRY(make_stream(device));
  queue.gathers = ZERO_TRY(make_stream(device));
  for (Event* event : {&optim.comm->queued()->reduced, &optim.comm->queued()->gathered})
    if (event->handle() == nullptr) *event = ZERO_TRY(make_event(device));
  return Status();
}

/// Nothing of a step before travels any more.
Status await_gathers(Queue& queue, StreamHandle stream) {
  const std::lock_guard lock(queue.waiting);
  if (!queue.gathering) return Status();
  queue.gathering = false;
  return queue.device->wait(stream, queue.gathered.handle(), order::kGathered);
}

}  // namespace

Result<std::unique_ptr<Queue>> Queue::create(const Optimizer& optim) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  auto queue = std::make_unique<Queue>();
  queue->comm = optim.comm;
  queue->device = device.get();
  queue->timeout_ms = patience_ms(*optim.comm);
  queue->tables_upload = ZERO_TRY(Upload::create(optim.comm));
  queue->settings_upload = ZERO_TRY(Upload::create(optim.comm));
  queue->progress_upload = ZERO_TRY(Upload::create(optim.comm));
  queue->looks = ZERO_TRY(make_stream(device));
  queue->looked = ZERO_TRY(make_event(device));
  ZERO_TRY(make_frame(optim, *queue));
  return queue;
}

Queue::~Queue() {
  if (publishing) comm->steps.publishing--;
}

bool Queue::await_end() noexcept {
  if (!in_flight || succeeds([this] { return await_flight(); })) return true;
  for (const auto& arena : leaving) arena->stay();
  return false;
}

bool Queue::await_flight() {
  const Status drained = drain();
  if (drained.ok()) return true;
  const bool late = drained.code() == ZERO_ERR_TIMEOUT && !comm->aborted();
  return !late && await_all_streams();
}

/// Of a broken comm: what is queued waits for no other rank any more. Gates are open, NCCL's
/// communicators are aborted, and hosts that wait for others queue nothing before those have come.
/// It uses this memory on its way to its end, on the side streams also behind a call that failed.
bool Queue::await_all_streams() {
  const int64_t until_ms = now_ms() + timeout_ms;
  const auto await = [&](const Event& event) {
    const int64_t left_ms = std::max<int64_t>(until_ms - now_ms(), 0);
    return zero::await(*device, event.handle(), left_ms, "the steps so far").ok();
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
  return await(looked, "what the host has sent");
}

Status Queue::drain() const {
  ZERO_TRY(await(ended, "the steps so far"));
  ZERO_TRY(await(gathered, "parameters on their way"));
  return await(looked, "what the host reads");
}

void Queue::note_publishing() {
  if (!std::exchange(publishing, true)) comm->steps.publishing++;
}

void Queue::note_published() {
  if (!replays() && std::exchange(publishing, false)) comm->steps.publishing--;
}

Status Queue::let_go() {
  if (leaving.empty() || !ZERO_TRY(device->done(ended.handle())) ||
      !ZERO_TRY(device->done(gathered.handle())))
    return Status();
  leaving.clear();
  return Status();
}

Status prepare(Optimizer& optim, StepMemory& memory) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  Queue& queue = *memory.queue;
  if (queue.ended.handle() == nullptr) ZERO_TRY(make_frame(optim, queue));
  if (!optim.comm->direct()) ZERO_TRY(make_room(optim, memory, queue));
  const Tables& tables = queue.tables;
  if (const MadeOf wanted = made_of(optim, memory); tables.made_of != wanted) {
    Tables made = make_tables(optim, memory);
    made.made_of = wanted;
    // What fails behind a new block leaves the old tables, which are then no longer there.
    if (queue.table_memory.bytes() < made.bytes.size()) queue.tables_uploaded = false;
    ZERO_TRY(grow(queue, device, queue.table_memory, made.bytes.size(), "tables of a step"));
    ZERO_TRY(queue.tables_upload.reserve(made.bytes.size()));
    queue.tables = std::move(made);
    queue.tables_uploaded = false;
  }
  const size_t settings = settings_of_now(optim, queue).bytes().size();
  if (queue.settings.bytes() < settings) queue.settings_sent.clear();
  ZERO_TRY(grow(queue, device, queue.settings, settings, "settings"));
  ZERO_TRY(queue.settings_upload.reserve(settings));
  const size_t progress = optim.progress.size() * sizeof(ParamProgress);
  if (queue.progress.bytes() < progress) {
    ZERO_TRY(settle(optim));
    queue.host_is_newer = true;
  }
  ZERO_TRY(grow(queue, device, queue.progress, progress, "steps of parameters"));
  ZERO_TRY(grow(queue, device, queue.state, sizeof(StepState), "the state of a step"));
  ZERO_TRY(grow(queue, device, queue.scalars, tables.classes * sizeof(Scalars), "scalars"));
  const size_t records = static_cast<size_t>(optim.world()) * sizeof(NormSums);
  queue.shared_records = memory.records;
  if (memory.records == nullptr) ZERO_TRY(grow(queue, device, queue.records, records, "norms"));
  ZERO_TRY(queue.progress_upload.reserve(std::max(progress, sizeof(StepState))));
  ZERO_TRY(grow_host(device, queue.progress_read, progress));
  ZERO_TRY(grow_host(device, queue.state_read, sizeof(StepState)));
  if (queue.capture == 0) return Status();
  ZERO_TRY(send(optim, memory, queue.looks.handle()));
  return queue.await_looks();
}

Status begin(Optimizer& optim, StepMemory& memory, StreamHandle stream) {
  Queue& queue = *memory.queue;
  Device& device = *queue.device;
  if (queue.capture != 0) return fork(optim, queue, stream);
  if (stream != queue.last_stream)
    ZERO_TRY(device.wait(stream, queue.ended.handle(), order::kEnded));
  ZERO_TRY(await_gathers(queue, stream));
  for (Announcing& one : queue.announcing) {
    if (std::exchange(one.waited, true)) continue;
    ZERO_TRY(device.wait(stream, one.event.handle(), order::kAnnounced));
  }
  ZERO_TRY(queue.let_go());
  constexpr size_t kKnownStreams = 16;  // an engine may have a new one each step
  if (queue.announcing.size() > kKnownStreams) queue.announcing.clear();
  queue.in_flight = true;
  queue.last_stream = stream;
  return send(optim, memory, stream);
}

Status end(Queue& queue, StreamHandle stream) {
  if (queue.capture != 0) ZERO_TRY(join(queue, stream));
  return queue.device->record(queue.ended.handle(), stream);
}

Status note_announced(Optimizer& optim, StreamHandle stream) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  std::vector<Announcing>& all = step_memory(optim).queue->announcing;
  auto found = std::ranges::find(all, stream, &Announcing::stream);
  if (found == all.end()) {
    Event event = ZERO_TRY(make_event(device));
    found = all.insert(all.end(), {stream, std::move(event), true});
  }
  ZERO_TRY(device->record(found->event.handle(), stream));
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

// ---- The host waits for the device, and takes over what the steps have found.

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
