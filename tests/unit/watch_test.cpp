// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.h"

#include <gtest/gtest.h>

#include "base/callers_time.h"
#include "support/system_calls.h"

namespace zero {
namespace {

constexpr int64_t kMs = 1'000'000;
int64_t time_ms = 0;

/// A clock that only tests advance.
class Watches : public ::testing::Test {
 protected:
  /// Returns how long a wait lasts if its rank runs for `run_ms`, then not for `stop_ms`, and so
  /// on.
  static int64_t wait_ms(int64_t limit_ms, int64_t stop_ms, int64_t run_ms) {
    const int64_t begin_ms = time_ms;
    Watch watch({"test", "wait", limit_ms, false});
    while (!watch.is_late(watch.since_ns(0)) && time_ms < begin_ms + 1'000'000) {
      time_ms += run_ms;
      watch.look();
      time_ms += stop_ms;
      watch.look();
    }
    return time_ms - begin_ms;
  }

 private:
  const test::ReplacedCall clock_{&SystemCalls::clock_gettime, [](clockid_t, timespec* time) {
                                    *time = {time_ms / 1000, time_ms % 1000 * kMs};
                                    return 0;
                                  }};
};

TEST_F(Watches, a_rank_that_runs_seldom_waits_for_three_deadlines_at_most) {
  for (const int64_t limit_ms : {1'000, 2'000, 5'000, 60'000})
    for (const int64_t stop_ms : {1'000, 2'000, 3'700})
      EXPECT_LE(wait_ms(limit_ms, stop_ms, 10),
                std::max(3 * limit_ms, stop_ms + limit_ms) + stop_ms)
          << limit_ms << " " << stop_ms;
}

TEST_F(Watches, a_rank_that_runs_most_of_the_time_waits_for_one_deadline) {
  EXPECT_LE(wait_ms(2'000, 990, 10), 2'000 + 1'000);
}

TEST_F(Watches, a_job_that_was_stopped_once_for_longer_than_any_deadline_goes_on) {
  Watch watch({"test", "wait", 1'000, false});
  time_ms += 3'600'000;
  EXPECT_EQ(watch.look(), 3'600'000 * kMs);
  time_ms += 900;
  watch.look();
  EXPECT_FALSE(watch.is_late(watch.since_ns(0)));
  time_ms += 200;
  watch.look();
  EXPECT_TRUE(watch.is_late(watch.since_ns(0)));
}

TEST_F(Watches, time_in_a_function_of_the_callers_is_no_absence) {
  Watch watch({"test", "wait", 2'000, false});
  const int64_t before_ns = CallersTime::spent_ns();
  for (int i = 0; i < 2; i++) {
    const CallersTime spent, inside;
    time_ms += 1'100;
  }
  EXPECT_EQ(CallersTime::spent_ns() - before_ns, 2'200 * kMs);
  EXPECT_EQ(watch.look(), 0);
  EXPECT_TRUE(watch.is_late(watch.since_ns(0)));
}

}  // namespace
}  // namespace zero
