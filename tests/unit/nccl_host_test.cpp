// SPDX-License-Identifier: Apache-2.0
// What a call of NCCL costs the host where NCCL takes it in on a thread of its own, as it does.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/os.h"
#include "nccl_seat.h"

namespace zero::test {
namespace {

int64_t processor_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

int64_t median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

thread_local int64_t slept_ns =
    0;  // of the processor's time: what it takes to fall asleep and wake

template <class Call>
auto sleeping(const Call& call) {
  const int64_t before_ns = processor_ns();
  const auto outcome = call();
  slept_ns += processor_ns() - before_ns;
  return outcome;
}

/// Each of them on a seat of one rank.
struct Costs {
  std::vector<int64_t> looks, own_ns, slept_ns, inside_ns, wall_ns;
};

Costs costs(int takes_us, int calls) {
  const NcclRanks ranks(1);
  const Seat seat = std::move(ranks.join(0)).value();
  Queue queue(*seat->device());
  char* const data = queue.put<char>(std::vector<char>(16));
  FakeNcclKnobs& knobs = ranks.knobs();
  knobs.busy_polls = 0;
  knobs.takes_us = takes_us;
  Costs all;
  SystemCalls system = real_system_calls();
  system.futex = [](auto... arguments) {
    return sleeping([&] { return real_system_calls().futex(arguments...); });
  };
  system.poll = [](auto... arguments) {
    return sleeping([&] { return real_system_calls().poll(arguments...); });
  };
  replace_system_calls(&system);
  for (int i = 0; i < calls; i++) {
    slept_ns = 0;
    const int64_t looks = knobs.looks, inside = knobs.inside_ns(), processor = processor_ns();
    const int64_t wall = now_ns();
    expect_ok(seat->queued()->all_gather(data, data, 16, queue.stream()));
    all.wall_ns.push_back(now_ns() - wall);
    all.inside_ns.push_back(knobs.inside_ns() - inside);
    all.slept_ns.push_back(slept_ns);
    all.own_ns.push_back(processor_ns() - processor - slept_ns - all.inside_ns.back());
    all.looks.push_back(knobs.looks - looks);
  }
  replace_system_calls(nullptr);
  knobs.takes_us = 0;
  return all;
}

TEST(NcclHost, a_call_looks_at_nccl_a_few_times_however_long_it_takes) {
  for (const auto& [takes_us, calls] : {std::pair(200, 200), std::pair(20'000, 21)}) {
    const Costs all = costs(takes_us, calls);
    std::printf(
        "NCCL takes %d us: a call takes %.1f us of the processor in libzero, %.1f us in sleeps, "
        "%.1f us in NCCL; %lld looks, %.0f us in all\n",
        takes_us, 1e-3 * static_cast<double>(median(all.own_ns)),
        1e-3 * static_cast<double>(median(all.slept_ns)),
        1e-3 * static_cast<double>(median(all.inside_ns)),
        static_cast<long long>(median(all.looks)), 1e-3 * static_cast<double>(median(all.wall_ns)));
    EXPECT_LE(median(all.looks), 8) << takes_us;
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
