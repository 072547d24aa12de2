// SPDX-License-Identifier: Apache-2.0
// Prepares, begins and ends the work of a call on a device.
#include "step/queued/walk.h"

#include <algorithm>
#include <cmath>

#include "base/refusals.h"
#include "step/progress.h"
#include "step/travel.h"

namespace zero::queued {
namespace {

Status check_power(double p) {
  if (p == 1 || p == 2 || (std::isinf(p) && p > 0)) return Status();
  return unsupported("norm_type is ", p, "; on a device it must be 1, 2 or infinite");
}

/// Grows `memory` to at least `bytes` bytes. Waits first, because queued work may still use the old
/// block.
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
    buffer = ZERO_TRY(HostBuffer::allocate(device, bytes, "results of a step"));
  return Status();
}

/// Allocates buffers for packed transfers, and events for all transfers.
Status make_room(const Optimizer& optim, StepMemory& memory) {
  Queue& queue = *memory.queue;
  const std::shared_ptr<Device>& device = optim.comm->device();
  const travel::Room room = travel::room_for(optim, memory);
  ZERO_TRY(grow(queue, device, memory.send.on_device, room.sent, "transfer buffers"));
  ZERO_TRY(grow(queue, device, memory.receive.on_device, room.received, "transfer buffers"));
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
          .places = memory.places_made,
          .adds = memory.adds,
          .reduces_in_place = travel::reduces_in_place(optim, memory),
          .publishes_in_place = travel::publishes_in_place(optim, memory),
          .send = memory.send.data(),
          .receive = memory.receive.data()};
}

}  // namespace

Status check_rule(const Comm& comm, const Rule& rule) {
  if (!has_trust(rule) && !is_custom(rule)) return Status();
  return unsupported(
      is_custom(rule) ? std::string("your own update function") : text("optimizer ", rule.name),
      " is not supported on a ", comm.device()->kind(), " device");
}

Status check_options(const Comm& comm, const OptimizerOptions& options) {
  const auto cannot = [&](std::string_view what) {
    return unsupported(what, " is not supported on a ", comm.device()->kind(), " device");
  };
  ZERO_TRY(check_rule(comm, *options.rule));
  if (options.uneven_inputs != ZERO_UNEVEN_OFF) return cannot("uneven_inputs");
  if (options.predivide_factor != 1) return cannot("predivide_factor");
  if (options.instances > 1 && !comm.direct())
    return unsupported("instances is ", options.instances, ", which is not supported where ",
                       comm.device()->kind(), " devices cannot access each other's memory");
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

Status Walk::get_ready(bool) {
  const std::shared_ptr<Device>& device = optim_.comm->device();
  Queue& queue = *memory_.queue;
  if (queue.ended.handle() == nullptr) ZERO_TRY(queue.make_frame());
  if (!optim_.comm->direct()) ZERO_TRY(make_room(optim_, memory_));
  const Tables& tables = queue.tables;
  if (const MadeOf wanted = made_of(optim_, memory_); tables.made_of != wanted) {
    Tables made = make_tables(optim_, memory_);
    made.made_of = wanted;
    // If a later step fails, queue.tables keeps the old tables, which the new block does not hold.
    if (queue.table_memory.bytes() < made.bytes.size()) queue.tables_uploaded = false;
    ZERO_TRY(grow(queue, device, queue.table_memory, made.bytes.size(), "tables of a step"));
    ZERO_TRY(queue.tables_upload.reserve(made.bytes.size()));
    queue.tables = std::move(made);
    queue.tables_uploaded = false;
  }
  const size_t settings = settings_of_now(optim_, queue).bytes().size();
  if (queue.settings.bytes() < settings) queue.settings_sent.clear();
  ZERO_TRY(grow(queue, device, queue.settings, settings, "settings"));
  ZERO_TRY(queue.settings_upload.reserve(settings));
  const size_t progress = optim_.progress.size() * sizeof(ParamProgress);
  if (queue.progress.bytes() < progress) {
    ZERO_TRY(settle(optim_));
    queue.host_is_newer = true;
  }
  ZERO_TRY(grow(queue, device, queue.progress, progress, "steps of parameters"));
  ZERO_TRY(grow(queue, device, queue.state, sizeof(StepState), "the state of a step"));
  ZERO_TRY(grow(queue, device, queue.scalars, tables.classes * sizeof(Scalars), "scalars"));
  const size_t records = static_cast<size_t>(optim_.world()) * sizeof(NormSums);
  queue.shared_records = memory_.records;
  if (memory_.records == nullptr) ZERO_TRY(grow(queue, device, queue.records, records, "norms"));
  ZERO_TRY(queue.progress_upload.reserve(std::max(progress, sizeof(StepState))));
  ZERO_TRY(grow_host(device, queue.progress_read, progress));
  ZERO_TRY(grow_host(device, queue.state_read, sizeof(StepState)));
  if (queue.capture == 0) return Status();
  ZERO_TRY(send(optim_, memory_, queue.looks.handle()));
  return queue.await_looks();
}

Status Walk::begin_work() {
  host_share_.emplace(optim_);
  if (call_.operation() == Operation::step) queue().note_publishing();
  if (queue().capture != 0) return fork();
  ZERO_TRY(device().wait(stream(), queue().ended.handle(), order::kEnded));
  ZERO_TRY(await_gathers());
  for (Announcing& one : queue().announcing) {
    if (std::exchange(one.waited, true)) continue;
    ZERO_TRY(device().wait(stream(), one.event.handle(), order::kAnnounced));
  }
  ZERO_TRY(let_go());
  constexpr size_t kKnownStreams = 16;  // an engine may use a new stream for each step
  if (queue().announcing.size() > kKnownStreams) queue().announcing.clear();
  queue().in_flight = true;
  return send(optim_, memory_, stream());
}

Status Walk::await_gathers() {
  const std::lock_guard lock(queue().waiting);
  if (!std::exchange(queue().gathering, false)) return Status();
  return device().wait(stream(), queue().gathered.handle(), order::kGathered);
}

Status Walk::let_go() {
  if (!queue().leaving.empty() && ZERO_TRY(device().done(queue().ended.handle())) &&
      ZERO_TRY(device().done(queue().gathered.handle())))
    queue().leaving.clear();
  return Status();
}

Status Walk::fork() {
  queue().layout = layout_of(optim_);
  for (const Frame& before : queue().captured) {
    if (before.capture != queue().capture) continue;
    ZERO_TRY(device().wait(stream(), before.ended.handle(), order::kEnded));
  }
  if (plane_ == nullptr) return Status();
  ZERO_TRY(device().record(queue().given.handle(), stream()));
  for (const Stream* side : {&queue().reduces, &queue().gathers})
    ZERO_TRY(device().wait(side->handle(), queue().given.handle(), order::kForked));
  for (const Event* event : {&plane_->reduced, &plane_->gathered})
    ZERO_TRY(device().record(event->handle(), stream()));
  return Status();
}

Status Walk::join() {
  for (const Stream* side : {&queue().reduces, &queue().gathers}) {
    if (side->handle() != nullptr)
      ZERO_TRY(order(side->handle(), queue().given, stream(), order::kJoined));
  }
  return Status();
}

Status Walk::end() {
  if (queue().capture != 0) ZERO_TRY(join());
  return device().record(queue().ended.handle(), stream());
}

/// Aborts the comm if this rank could not queue its work, because the other ranks cannot withdraw
/// theirs.
Status Walk::end_work(Status status) {
  Status ended = end();  // even after a failure, because queued work is using memory
  if (status.ok()) status = std::move(ended);
  host_share_.reset();
  if (call_.capture() != 0) return call_.vote("captured", status);  // nothing is running
  return status.ok() ? status : call_.abort(status, "queue");
}

Status Walk::fill_zeros(std::byte* data, size_t bytes) {
  return device().fill(stream(), data, 0, bytes);
}

/// Counts every step as taken, because the host finds out later which steps were skipped. Does not
/// count a captured step, which is counted by its launches.
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
