// SPDX-License-Identifier: Apache-2.0
// A mutex that is waited for under a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace zero::nccl {

/// For std::unique_lock, as std::timed_mutex is. That one waits by a call of POSIX that some
/// sanitizers of threads do not know: they take what follows for a race.
class Turn {
 public:
  bool try_lock() { return try_lock_for(std::chrono::milliseconds(0)); }

  bool try_lock_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    // Wait: the limit.
    if (!free_.wait_for(lock, limit, [this] { return !taken_; })) return false;
    taken_ = true;
    return true;
  }

  void unlock() {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    free_.notify_one();  // within: whoever takes it next may end it
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

}  // namespace zero::nccl
