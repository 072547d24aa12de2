// SPDX-License-Identifier: Apache-2.0
// A call that ends on another thread than it began on, and those that come after it.
#include <algorithm>
#include <chrono>

#include "base/os.h"
#include "base/text.h"
#include "comm/comm.h"

namespace zero {

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
  Failure cause;
  cause.code = ZERO_ERR_TIMEOUT;
  cause.rank = rank_;
  cause.step = steps_done.load();
  cause.params_consistent = publishing == 0;
  cause.phase = text(operation_name(operation), ": begin");
  cause.text = text(cause.phase, ": the step before did not end within ", options_.late_ms, " ms");
  abort(cause);
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
