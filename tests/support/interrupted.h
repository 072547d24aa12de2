// SPDX-License-Identifier: Apache-2.0
// A call that the program wants to end, on the main thread, which alone is asked.
#pragma once

#include "base/interrupt.h"

namespace zero::test {

class Interrupted {
 public:
  Interrupted() {
    set_interrupt([](void*) { return 1; }, nullptr);
  }
  ~Interrupted() { set_interrupt(nullptr, nullptr); }
  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;

  bool heeded() const { return call_.heeds(); }

 private:
  const InterruptibleCall call_;
};

}  // namespace zero::test
