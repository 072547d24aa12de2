// SPDX-License-Identifier: Apache-2.0
// How long ranks wait if the program is slow in its own functions.
#include <gtest/gtest.h>

#include <string>

#include "base/text.h"
#include "support/clock.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace zero::test {
namespace {

/// Shared by the ranks.
struct Asked {
  std::atomic<int> times, done;
};

/// Returns rank 0's result of a barrier to which rank 1 does not come, and counts its calls of a
/// function that takes `call_ms`.
std::string lonely_barrier(CommKind kind, int64_t deadline_ms, int64_t call_ms, Asked& asked) {
  static int64_t takes_ms;
  static Asked* told;
  takes_ms = call_ms;
  told = &asked;
  const Clock clock;
  const Meeting meeting(kind, 2, deadline_ms);
  const auto said = results_of(
      meeting,
      [&](zero_comm* comm, int rank) -> std::string {
        EXPECT_OK(zero_comm_barrier(comm));
        if (rank == 1) {
          for (int i = 0; i < 20'000 && asked.done == 0; i++) usleep(1000);
          return "";
        }
        zero_set_interrupt_callback(
            [](void*) {
              ++told->times;
              Clock::jump(takes_ms);
              return int32_t{told->times > 100};
            },
            nullptr);
        const std::jthread time =
            Clock::run_once([] { return true; }, [&] { return asked.done == 0 ? 1 : 0; });
        const zero_status status = zero_comm_barrier(comm);
        zero_set_interrupt_callback(nullptr, nullptr);
        asked.done = 1;
        return zero_status_name(status);
      },
      RankKind::processes);
  return said[0];
}

TEST(Waits, no_wait_is_longer_than_its_deadline_and_one_call_of_the_interrupt_function) {
  const SharedMemory memory(sizeof(Asked));
  for (const CommKind kind : {CommKind::local, CommKind::clustered}) {
    for (const int64_t call_ms : {0, 900, 1'100, 3'000}) {
      SCOPED_TRACE(text(name_of(kind), ", ", call_ms, " ms"));
      Asked& asked = *memory.as<Asked>();
      asked.times = 0, asked.done = 0;
      EXPECT_EQ(lonely_barrier(kind, 2'000, call_ms, asked), "ZERO_ERR_TIMEOUT");
      EXPECT_TRUE(call_ms == 0 || asked.times <= 2'000 / call_ms + 1) << asked.times;
    }
  }
}

}  // namespace
}  // namespace zero::test
