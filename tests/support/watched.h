// SPDX-License-Identifier: Apache-2.0
// Every point that the library passes, seen by a function. For ranks that are threads; points.h is
// for processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "support/system_calls.h"

namespace zero::test {

/// Lets a function see every point of the library's that any thread passes.
class Watched : public ReplacedCall {
 public:
  explicit Watched(void (*reached)(const char*)) : ReplacedCall(&SystemCalls::reached, reached) {}
};

/// Sleeps now and then, on whichever thread: owners fall behind.
inline void dawdle(const char*) {
  static std::atomic<uint32_t> turn{0};
  if ((turn++ * 2654435761u >> 16) % 23 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(300));
}

}  // namespace zero::test
