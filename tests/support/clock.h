// SPDX-License-Identifier: Apache-2.0
// Replaces the library's clock by one that tests advance, so that a busy machine makes no rank
// late.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "support/system_calls.h"

namespace zero::test {

/// Stops time in this process and in its forked children. Each look at the clock advances it by ten
/// microseconds, and nothing else does. Only one may exist.
class Clock {
 public:
  /// For the first `runs_ms` the clock follows the wall clock. Later deadlines are not reached
  /// until the test advances the clock.
  explicit Clock(int64_t runs_ms = 0);

  /// Lets `ms` pass in steps of 50 ms. Before each step, `waiting` others (threads of this process,
  /// or other processes) must have looked at the clock twice since the previous step. Therefore
  /// only a rank that was waited for is late, and a wait that ends too early is a failure.
  static void pass(int64_t ms, int waiting);
  /// Does the same for a deadline: nearly all of `deadline_ms` first, and then the rest.
  static void reach(int64_t deadline_ms, int waiting);
  /// Does the same, step by step, while `waiting()` is positive.
  static constexpr int64_t kStepMs = 50;
  static void run(const std::function<int()>& waiting, int64_t step_ms = kStepMs);
  /// Does the same on a new thread as soon as `begun()` is true. The returned thread joins at its
  /// end.
  [[nodiscard]] static std::jthread run_once(std::function<bool()> begun,
                                             std::function<int()> waiting);
  /// Lets `ms` pass in one step, as for a process that was stopped.
  static void jump(int64_t ms);

  // These measure how soon rank processes are told of the first end of a rank. The unit is the time
  // that they sleep until then, because a busy machine may run them at any time.
  static void note_told(int rank);  // called by that rank
  static int64_t slept_ms(int rank);

 private:
  const ReplacedCall time_, futex_, poll_;
};

}  // namespace zero::test
