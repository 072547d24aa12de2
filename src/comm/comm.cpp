// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/memory_check.h"
#include "comm/private_arena.h"

namespace zero {

// ---- Beginning a call.

Result<Call> Comm::begin(Operation operation, uint32_t object) {
  ZERO_TRY(await_background(operation));
  if (aborted()) return failure_status();
  ZERO_TRY(check_caller().within(operation_name(operation)));
  if (in_call_.exchange(true, std::memory_order_acquire))
    return Status(ZERO_ERR_BUSY, text(operation_name(operation),
                                      ": another thread is inside a collective call of this comm"));
  steps.deciding = false;
  return Call(shared_from_this(), operation, object);
}

Status Comm::failure_status() const { return failure().status(); }

void Comm::heed_interrupt(std::string_view where) {
  if (!interrupted() || aborted()) return;
  abort(steps.fail(ZERO_ERR_ABORTED, called(), std::string(where),
                   text(where, ": ", interruption_of(called()))));
}

// ---- The trace.

Status Comm::start_trace(const std::string& directory) {
  return trace.start(directory, {.group = split_, .rank = rank_, .world = world_, .comm = kind()});
}

void Comm::start_asked_trace() {
  const char* const directory = secure_getenv("ZERO_TRACE");
  if (directory == nullptr || *directory == '\0') return;
  const Status started = start_trace(directory);
  if (!started.ok()) log(ZERO_LOG_WARNING, text("ZERO_TRACE: ", started.text()));
}

// ---- Memory, and the data plane of comms that do not implement one.

Location Comm::locate(const void* data, size_t bytes) const {
  bool whole = false;
  const std::shared_ptr<Arena> arena = find_arena(data, bytes, this, &whole);
  if (!arena || !whole || arena->comm().get() != this) return {};
  const auto offset = static_cast<const std::byte*>(data) - arena->data();
  return {.arena = arena->number(), .unused = 0, .offset = static_cast<uint64_t>(offset)};
}

Result<std::shared_ptr<Arena>> Comm::allocate(Call& call, uint32_t number, size_t bytes,
                                              int32_t kind, Side) {
  if (device() == nullptr) ZERO_TRY(check_memory_of_ranks(call, bytes, "an arena"));
  return std::shared_ptr<Arena>(
      ZERO_TRY(PrivateArena::allocate(shared_from_this(), number, bytes, kind)));
}

uint32_t Comm::next_arena() {
  const std::lock_guard lock(arenas_mutex_);
  std::erase_if(arenas_, [](const auto& entry) { return entry.second.expired(); });
  arenas_[++arena_attempts_].reset();  // allocates the entry before other ranks depend on it
  return arena_attempts_;
}

std::shared_ptr<Arena> Comm::arena(const Location& location) const {
  const std::lock_guard lock(arenas_mutex_);
  const auto found = arenas_.find(location.arena);
  return found == arenas_.end() ? nullptr : found->second.lock();
}

Location Comm::place_in_arena(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(arenas_mutex_);
  for (const auto& [number, weak] : arenas_) {
    const std::shared_ptr<Arena> one = weak.lock();
    if (one == nullptr || begin < one->data() || begin > one->data() + one->bytes()) continue;
    const auto offset = static_cast<size_t>(begin - one->data());
    if (bytes <= one->bytes() - offset) return {.arena = number, .unused = 0, .offset = offset};
  }
  return {};
}

Result<std::byte*> Comm::resolve(int32_t rank, const Location&, size_t) const {
  return Status(ZERO_ERR_INTERNAL,
                text("memory of rank ", rank, " is not addressable on a comm of kind ", kind()));
}

Status Comm::all_gather(Call&, std::span<const Gathered>) {
  return Status(ZERO_ERR_INTERNAL, text("all_gather of host memory on a comm of kind ", kind()));
}

Status Comm::gather_among(Call& call, const Ranks& among, std::span<const Gathered> all,
                          std::span<std::byte> scratch) {
  if (among.count == world_) return all_gather(call, all);
  if (among.count > 1) return gather_some(call, among, all, scratch);
  for (const Gathered& one : all)
    if (one.bytes > 0) std::memmove(one.recv, one.send, one.bytes);
  return {};
}

Status Comm::gather_some(Call& call, const Ranks& among, std::span<const Gathered> all,
                         std::span<std::byte> scratch) {
  const size_t most = scratch.size() / static_cast<size_t>(world_);
  for (const auto& [send, recv, bytes, owners] : all) {
    for (size_t done = 0, part = 0; done < bytes; done += part) {
      part = std::min(most, bytes - done);
      ZERO_TRY(all_gather(call, static_cast<const std::byte*>(send) + done, scratch.data(), part));
      for (int32_t i = 0; i < std::min(among.count, owners); ++i) {
        const auto rank = static_cast<size_t>(among.first + i * among.stride);
        std::memcpy(static_cast<std::byte*>(recv) + static_cast<size_t>(i) * bytes + done,
                    &scratch[rank * part], part);
      }
    }
  }
  return {};
}

Status Comm::reduce_scatter(Call&, std::span<const Scattered>, void*) {
  return Status(ZERO_ERR_INTERNAL,
                text("reduce_scatter of host memory on a comm of kind ", kind()));
}

// ---- Calls that end on another thread, and the calls after them.

/// Waits at most late_ms, because the other ranks wait no longer for this rank.
Status Comm::await_background(Operation operation) {
  using std::chrono::milliseconds;
  constexpr int64_t kLookMs = 50;
  std::unique_lock lock(background_mutex_);
  if (!in_background_) return {};
  Watch watch({operation_name(operation), "begin", options_.late_ms, false});
  const std::string where = watch.where();
  for (; in_background_ && !watch.is_late(watch.since_ns(0)); watch.look()) {
    lock.unlock();
    heed_interrupt(where);
    lock.lock();
    if (aborted()) return failure_status();
    // Wait: at most late_ms, and until the comm breaks.
    background_done_.wait_for(lock, milliseconds(kLookMs));
  }
  if (!in_background_) return {};
  lock.unlock();
  abort(steps.fail(
      ZERO_ERR_TIMEOUT, rank_, where,
      text(where, ": the previous step did not finish within ", options_.late_ms, " ms")));
  return failure_status();
}

void Comm::leave_background() {
  // Notifies under the lock, because a waiting thread may release the last reference to the comm.
  const std::lock_guard lock(background_mutex_);
  in_background_ = false;
  background_done_.notify_all();
}

void Call::go_to_background() {
  note_part();
  in_background_ = true;
  const std::lock_guard lock(comm_->background_mutex_);
  comm_->in_background_ = true;
}

}  // namespace zero
