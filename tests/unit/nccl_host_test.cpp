// SPDX-License-Identifier: Apache-2.0
// What a call of NCCL costs the host where NCCL takes it in on a thread of its own, as it does.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "base/os.h"
#include "nccl_seat.h"
#include "support/replaced_calls.h"

namespace zero::test {
namespace {

/// How often the last call slept.
int sleeps;

int count_and_sleep(uint32_t* word, int operation, uint32_t value, const timespec* timeout) {
  if (timeout != nullptr) ++sleeps;
  return real_system_calls().futex(word, operation, value, timeout);
}

TEST(NcclHost, a_call_sleeps_a_few_times_however_long_nccl_takes) {
  SystemCalls calls = real_system_calls();
  calls.futex = count_and_sleep;
  for (const auto& [takes_us, count] : {std::pair(200, 201), std::pair(20'000, 21)}) {
    const NcclRanks ranks(1);
    const Seat seat = made(ranks.join(0));
    Queue queue(*seat->device());
    char* const data = queue.put<char>(std::vector<char>(16));
    ranks.knobs().busy_polls = 0;
    ranks.knobs().takes_us = takes_us;
    const ReplacedCalls replaced(calls);
    std::vector<int> slept;
    for (int i = 0; i < count; i++) {
      sleeps = 0;
      expect_ok(seat->queued()->all_gather(data, data, 16, queue.stream()));
      slept.push_back(sleeps);
    }
    ranks.knobs().takes_us = 0;
    std::nth_element(slept.begin(), slept.begin() + count / 2, slept.end());
    EXPECT_LE(slept[static_cast<size_t>(count) / 2], 8) << takes_us;
  }
}

TEST(NcclHost, what_a_call_began_is_queued_when_it_returns) {
  const NcclRanks ranks(2);
  ranks.knobs().takes_us = 3'000;
  run(ranks, 2, [](const Seat& seat, int rank) {
    Queue queue(*seat->device());
    const auto own = static_cast<char>('a' + rank);
    char* const all = queue.put<char>({rank == 0 ? own : '-', rank == 1 ? own : '-'});
    for (int i = 0; i < 5; i++)
      expect_ok(seat->queued()->all_gather(all + rank, all, 1, queue.stream()));
    EXPECT_EQ(queue.get(all, 2), (std::vector<char>{'a', 'b'}));
  });
}

}  // namespace
}  // namespace zero::test
