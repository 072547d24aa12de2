// SPDX-License-Identifier: Apache-2.0
// A call that ends on another thread than it began on, and those that come after it.
#include "comm/comm.h"

namespace zero {

void Comm::await_background() {
  std::unique_lock lock(background_mutex_);
  background_done_.wait(lock, [this] { return !in_background_; });
}

void Comm::leave_background() {
  // Told under the lock: who waits may be the last to hold the comm.
  const std::lock_guard lock(background_mutex_);
  in_background_ = false;
  background_done_.notify_all();
}

void Call::go_to_background() {
  in_background_ = true;
  exceptions_ = 0;  // in flight on the thread that ends it
  const std::lock_guard lock(comm_->background_mutex_);
  comm_->in_background_ = true;
}

}  // namespace zero
