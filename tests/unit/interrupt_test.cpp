// SPDX-License-Identifier: Apache-2.0
// When the program is asked whether a call should end, and the effect of its answer.
#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/os.h"
#include "support/clock.h"

namespace zero {
namespace {

/// Counts how often it is asked, and gives a set answer.
struct Program {
  int asked = 0;
  bool ends = false;

  Program() {
    set_interrupt(
        [](void* ctx) -> int32_t {
          auto* const self = static_cast<Program*>(ctx);
          self->asked++;
          return self->ends;
        },
        this);
  }
  ~Program() { set_interrupt(nullptr, nullptr); }
};

TEST(Interrupt, a_wait_asks_after_a_while_and_then_now_and_then) {
  const test::Clock clock;
  Program program;
  const InterruptibleCall call;
  EXPECT_FALSE(interrupted());
  EXPECT_EQ(program.asked, 0);
  for (int k = 1; k <= 3; k++) {
    test::Clock::jump(60);
    EXPECT_FALSE(interrupted());
    EXPECT_FALSE(interrupted());
    EXPECT_EQ(program.asked, k);
  }
}

TEST(Interrupt, nobody_is_asked_outside_of_a_call_or_on_another_thread) {
  const test::Clock clock;
  Program program;
  program.ends = true;
  const auto waits = [] {
    const bool at_once = interrupted();
    test::Clock::jump(60);
    return at_once || interrupted();
  };
  EXPECT_FALSE(waits());
  std::thread([&] {
    const InterruptibleCall call;
    EXPECT_FALSE(waits());
  }).join();
  EXPECT_EQ(program.asked, 0);
}

TEST(Interrupt, an_answer_holds_until_the_call_heeds_it) {
  const test::Clock clock;
  Program program;
  program.ends = true;
  {
    const InterruptibleCall call;
    EXPECT_FALSE(interrupted());
    test::Clock::jump(60);
    EXPECT_TRUE(interrupted());
    const InterruptibleCall inner;  // a callback calls the library
    EXPECT_FALSE(inner.heeds());
    EXPECT_TRUE(interrupted());
  }
  EXPECT_FALSE(interrupted());
  const InterruptibleCall next;
  EXPECT_FALSE(next.heeds());  // it has not waited
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(program.asked, 1);
  EXPECT_TRUE(next.heeds());
  EXPECT_FALSE(interrupted());
  EXPECT_FALSE(next.heeds());
}

}  // namespace
}  // namespace zero
