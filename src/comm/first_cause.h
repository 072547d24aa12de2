// SPDX-License-Identifier: Apache-2.0
// What broke a seat, kept in this process: the first cause stands.
#pragma once

#include <atomic>
#include <mutex>

#include "comm/comm.h"

namespace zero {

class FirstCause {
 public:
  bool is_set() const { return set_.load(std::memory_order_acquire); }

  void set(const Failure& cause) {
    const std::lock_guard lock(mutex_);
    if (is_set()) return;
    cause_ = cause;
    set_.store(true, std::memory_order_release);
  }

  Failure get() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};
  Failure cause_;
};

}  // namespace zero
