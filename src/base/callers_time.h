// SPDX-License-Identifier: Apache-2.0
// The time that a thread spends in functions of the caller's, which waits must tell from time in
// which the thread did not run.
#pragma once

#include <cstdint>

#include "base/os.h"

namespace zero {

class CallersTime {
 public:
  CallersTime() : begin_ns_(now_ns()), before_ns_(spent_ns_) {}
  /// A function inside another one counts once.
  ~CallersTime() { spent_ns_ = before_ns_ + (now_ns() - begin_ns_); }
  CallersTime(const CallersTime&) = delete;
  CallersTime& operator=(const CallersTime&) = delete;

  /// Returns how long this thread has been in such functions so far.
  static int64_t spent_ns() { return spent_ns_; }

 private:
  static inline thread_local int64_t spent_ns_ = 0;
  const int64_t begin_ns_, before_ns_;
};

}  // namespace zero
