// SPDX-License-Identifier: Apache-2.0
// The library's time, which passes as a test says: a busy machine makes nobody late.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "support/system_calls.h"

namespace zero::test {

/// While it lives time stands still, in this process and in those that it forks: each look at the
/// clock takes ten microseconds, and all else takes none. One at a time.
class Clock {
 public:
  /// At first it goes on like the clock on the wall, for so long: a deadline behind that never
  /// comes.
  explicit Clock(int64_t runs_ms = 0);

  /// Lets time pass, 50 ms after the other: each when that many others have looked at the clock
  /// twice since the last, threads of this process or other processes. So nobody is late who was
  /// not waited for, and a wait that has ended too early is a failure.
  static void pass(int64_t ms, int waiting);
  /// The same to a deadline that is so long: first nearly all of it, and then the rest.
  static void reach(int64_t deadline_ms, int waiting);
  /// The same while somebody waits, a step after the other.
  static constexpr int64_t kStepMs = 50;
  static void run(const std::function<int()>& waiting, int64_t step_ms = kStepMs);
  /// The same on a thread of its own, from when `begun()`. The thread joins when it goes.
  [[nodiscard]] static std::jthread run_once(std::function<bool()> begun,
                                             std::function<int()> waiting);
  /// All at once, as it does for who was stopped.
  static void jump(int64_t ms);

  // How soon ranks that are processes are told of the first end of one of them: by what they sleep
  // in between, as a busy machine lets them run when it likes.
  static void note_told(int rank);  // by that rank
  static int64_t slept_ms(int rank);

 private:
  const ReplacedCall time_, futex_, poll_;
};

}  // namespace zero::test
