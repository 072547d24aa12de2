// SPDX-License-Identifier: Apache-2.0
// Measures the time that a thread spends in functions of the caller. Waits must distinguish it from
// time in which the thread did not run.
#pragma once

#include <cstdint>

#include "base/os.h"

namespace zero {

class CallersTime {
 public:
  CallersTime() : begin_ns_(now_ns()), before_ns_(spent_ns_) {}
  /// Nested functions count once.
  ~CallersTime() { spent_ns_ = before_ns_ + (now_ns() - begin_ns_); }
  CallersTime(const CallersTime&) = delete;
  CallersTime& operator=(const CallersTime&) = delete;

  /// Returns the total time that this thread has spent in such functions.
  static int64_t spent_ns() { return spent_ns_; }

 private:
  static inline thread_local int64_t spent_ns_ = 0;
  const int64_t begin_ns_, before_ns_;
};

}  // namespace zero
