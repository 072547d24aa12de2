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

double median_us(std::vector<int64_t> values_ns) {
  std::sort(values_ns.begin(), values_ns.end());
  return 1e-3 * static_cast<double>(values_ns[values_ns.size() / 2]);
}

/// How long the last call slept, each time.
std::vector<timespec> sleeps;

int note_and_sleep(uint32_t* word, int operation, uint32_t value, const timespec* timeout) {
  if (timeout != nullptr) sleeps.push_back(*timeout);
  return real_system_calls().futex(word, operation, value, timeout);
}

/// A seat of one rank, and beside it a communicator that is used without libzero.
class Calls {
 public:
  explicit Calls(int takes_us) {
    ranks_.knobs().busy_polls = 0;
    ranks_.knobs().takes_us = takes_us;
    system_.futex = note_and_sleep;
    replace_system_calls(&system_);
  }
  ~Calls() {
    replace_system_calls(nullptr);
    ranks_.knobs().takes_us = 0;
    ranks_.end_engines(0, engines_, true);
  }

  // Both tell the time that they took of the processor.
  int64_t by_libzero() {
    sleeps.clear();
    const int64_t begin = processor_ns();
    expect_ok(seat_->queued()->all_gather(data_, data_, 16, queue_.stream()));
    return processor_ns() - begin;
  }
  /// The same calls of NCCL with the same sleeps: what no library could save.
  int64_t by_hand(const std::vector<timespec>& same) {
    const nccl::Library& library = ranks_.library();
    const int64_t begin = processor_ns();
    expect_ok(ranks_.device(0)->run_current([&] {
      library.all_gather(data_, data_, 16, nccl::kUint8, engines_, queue_.stream());
      for (const timespec& time : same) {
        uint32_t word = 0;
        int outcome = 0;
        real_system_calls().futex(&word, 0, 0, &time);
        library.async_error(engines_, &outcome);
      }
      return Status();
    }));
    const int64_t end = processor_ns();
    // It may take in this one a little later.
    nccl::Channel rest(library, ranks_.device(0), engines_);
    expect_ok(rest.await_ready("the call by hand", {20'000, [] { return Status(); }}));
    return end - begin;
  }

 private:
  const NcclRanks ranks_{1};
  const Seat seat_ = std::move(ranks_.join(0)).value();
  const nccl::Handle engines_ = ranks_.engines(0, false);
  Queue queue_{*seat_->device()};
  char* const data_ = queue_.put<char>(std::vector<char>(16));
  SystemCalls system_ = real_system_calls();
};

TEST(NcclHost, a_call_sleeps_a_few_times_however_long_nccl_takes) {
  for (const auto& [takes_us, count] : {std::pair(200, 201), std::pair(20'000, 21)}) {
    Calls calls(takes_us);
    std::vector<int64_t> more, floor, wall, slept;
    for (int i = 0; i < count; i++) {
      const int64_t began = now_ns();
      const int64_t own = calls.by_libzero();
      wall.push_back(now_ns() - began);
      slept.push_back(static_cast<int64_t>(sleeps.size()) * 1'000);
      floor.push_back(calls.by_hand(std::vector(sleeps)));
      more.push_back(own - floor.back());
    }
    std::printf(
        "NCCL takes %d us: a call takes %.0f us, %.0f sleeps, and of the processor %.1f us more "
        "than "
        "the %.1f us of the same calls and sleeps by hand\n",
        takes_us, median_us(wall), median_us(slept), median_us(more), median_us(floor));
    EXPECT_LE(median_us(slept), 8) << takes_us;
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
