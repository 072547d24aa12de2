// SPDX-License-Identifier: Apache-2.0
// Calls a function at every point that the library passes. For ranks that are threads; points.h is
// for processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "support/system_calls.h"

namespace zero::test {

/// Calls a function at each of the library's points, on any thread.
class Watched : public ReplacedCall {
 public:
  explicit Watched(void (*reached)(const char*)) : ReplacedCall(&SystemCalls::reached, reached) {}
};

/// Sleeps at some points on any thread, so that owners fall behind.
inline void dawdle(const char*) {
  static std::atomic<uint32_t> turn{0};
  if ((turn++ * 2654435761u >> 16) % 23 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(300));
}

}  // namespace zero::test
