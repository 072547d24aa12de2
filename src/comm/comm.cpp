// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include <algorithm>
#include <chrono>

#include "base/os.h"
#include "base/text.h"

namespace zero {

// ---- Collective calls and kinds of memory, by the names that callers know.

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::create:
      return "zero_comm_create";
    case Operation::create_env:
      return "zero_comm_create_env";
    case Operation::barrier:
      return "zero_comm_barrier";
    case Operation::broadcast:
      return "zero_comm_broadcast";
    case Operation::all_reduce:
      return "zero_comm_all_reduce";
    case Operation::split:
      return "zero_comm_split";
    case Operation::arena_alloc:
      return "zero_arena_alloc";
    case Operation::seal:
      return "zero_seal";
    case Operation::broadcast_params:
      return "zero_broadcast_params";
    case Operation::reduce_grads:
      return "zero_reduce_grads";
    case Operation::clip_grad_value:
      return "zero_clip_grad_value";
    case Operation::clip_grad_norm:
      return "zero_clip_grad_norm";
    case Operation::step_begin:
      return "zero_step_begin";
    case Operation::step:
      return "zero_step";
    case Operation::save:
      return "zero_state_save";
    case Operation::load:
      return "zero_state_load";
    case Operation::state_gather:
      return "zero_state_gather";
    case Operation::share_params:
      return "zero_share_params";
    case Operation::broadcast_buffers:
      return "zero_broadcast_buffers";
    case Operation::join:
      return "zero_join";
    case Operation::rebalance:
      return "zero_rebalance";
    case Operation::roll_call:
      return "an optimizer with uneven_inputs";
  }
  return "an unknown call";
}

const char* memory_kind_name(int32_t kind) {
  switch (kind) {
    case ZERO_MEMORY_PER_RANK:
      return "ZERO_MEMORY_PER_RANK";
    case ZERO_MEMORY_SHARED:
      return "ZERO_MEMORY_SHARED";
  }
  return "an unknown kind";
}

// ---- Calls that begin.

Result<Call> Comm::begin(Operation operation, uint32_t object) {
  ZERO_TRY(await_background(operation));
  if (aborted()) return failure_status();
  if (in_call_.exchange(true, std::memory_order_acquire))
    return Status(ZERO_ERR_BUSY, text(operation_name(operation),
                                      ": another thread is inside a collective call of this comm"));
  return Call(shared_from_this(), operation, object);
}

Status Comm::failure_status() const { return failure().status(); }

// ---- A call that ends on another thread than it began on, and those that come after it.

/// The other ranks wait for this one meanwhile, for no longer than that either.
Status Comm::await_background(Operation operation) {
  using std::chrono::milliseconds;
  constexpr int64_t kLookMs = 50;
  std::unique_lock lock(background_mutex_);
  for (const int64_t until = now_ms() + options_.late_ms; in_background_;) {
    if (aborted()) return failure_status();
    const int64_t left_ms = until - now_ms();
    if (left_ms <= 0) break;
    // Wait: at most late_ms, and until the comm breaks.
    background_done_.wait_for(lock, milliseconds(std::min(left_ms, kLookMs)));
  }
  if (!in_background_) return {};
  lock.unlock();
  const std::string where = text(operation_name(operation), ": begin");
  abort(steps.fail(ZERO_ERR_TIMEOUT, rank_, where,
                   text(where, ": the step before did not end within ", options_.late_ms, " ms")));
  return failure_status();
}

void Comm::leave_background() {
  // Told under the lock: who waits may be the last to hold the comm.
  const std::lock_guard lock(background_mutex_);
  in_background_ = false;
  background_done_.notify_all();
}

void Call::go_to_background() {
  in_background_ = true;
  const std::lock_guard lock(comm_->background_mutex_);
  comm_->in_background_ = true;
}

}  // namespace zero
