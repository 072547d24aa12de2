// SPDX-License-Identifier: Apache-2.0
// Interrupts a call of the main thread, the only thread that is asked whether to go on.
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
