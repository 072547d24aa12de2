// SPDX-License-Identifier: Apache-2.0
// One communicator: several threads use it while one of their calls is stuck in NCCL. Also the host
// time of a call if NCCL accepts it on its own thread, as the real one does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/nccl/channel.h"
#include "nccl_seat.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

const Bounds kLong{20'000, [] { return Status(); }};

/// The communicators of a group of one rank, and a call on the first one that stays inside NCCL
/// until it is released, or long enough to expose a wait without a deadline.
class Held {
 public:
  Held() {
    channels_ =
        nccl::form(ranks_.library(), ranks_.device(0), id(), 0, 1, CommOptions{}, kLong).value();
    thread_ = std::thread([this] {
      expect_ok(channel().run("held", kLong, [this](nccl::Handle) {
        is_inside_ = true;
        for (const int64_t until = now_ms() + 5'000; !lets_go_ && now_ms() < until;) usleep(1000);
        return nccl::kSuccess;
      }));
    });
    while (!is_inside_) usleep(1000);
  }
  ~Held() { let_go(); }

  nccl::Channel& channel() { return channels_->reduce(); }
  void let_go() {
    lets_go_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  nccl::UniqueId id() const {
    nccl::UniqueId id{};
    memcpy(&id, ranks_.id().data(), sizeof id);
    return id;
  }

  const NcclRanks ranks_{1};
  std::unique_ptr<nccl::Channels> channels_;
  std::atomic<bool> is_inside_{false}, lets_go_{false};
  std::thread thread_;
};

TEST(NcclChannel, while_a_call_is_inside_nccl_others_give_up_at_their_deadlines) {
  Held held;
  int calls = 0;
  const auto call = [&](nccl::Handle) {
    ++calls;
    return int{nccl::kSuccess};
  };
  EXPECT_FALSE(held.channel().run_alone(50, call));
  const Status ran = held.channel().run("another", {50, kLong.check}, call);
  EXPECT_EQ(ran.code(), ZERO_ERR_TIMEOUT);
  EXPECT_EQ(ran.text(), "another: NCCL was still busy after 50 ms");
  EXPECT_EQ(held.channel().take(50), nullptr);
  EXPECT_EQ(calls, 0);
  held.let_go();
  EXPECT_TRUE(held.channel().run_alone(20'000, call));
  expect_ok(held.channel().run("another", kLong, call));
  EXPECT_EQ(calls, 2);
}

/// How often the last call slept.
int sleeps;

int count_and_sleep(uint32_t* word, int operation, uint32_t value, const timespec* timeout) {
  if (timeout != nullptr) ++sleeps;
  return real_system_calls().futex(word, operation, value, timeout);
}

TEST(NcclChannel, a_call_sleeps_a_few_times_however_long_nccl_takes) {
  for (const auto& [takes_us, count] : {std::pair(200, 201), std::pair(20'000, 21)}) {
    const NcclRanks ranks(1);
    const Seat seat = made(ranks.join(0));
    Queue queue(*seat->device());
    char* const data = queue.put<char>(std::vector<char>(16));
    ranks.knobs().busy_polls = 0;
    ranks.knobs().takes_us = takes_us;
    const ReplacedCall replaced(&SystemCalls::futex, count_and_sleep);
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

std::atomic<int> polls{0};

TEST(NcclChannel, a_call_that_succeeded_may_be_busy_still) {
  const NcclRanks ranks(1);
  const nccl::Handle engines = ranks.engines(0, false);
  nccl::Library library = ranks.library();
  library.async_error = [](nccl::Handle, int* outcome) {
    *outcome = polls++ < 3 ? nccl::kInProgress : nccl::kSuccess;
    return int{nccl::kSuccess};
  };
  nccl::Channel channel(library, ranks.device(0), engines);
  expect_ok(channel.run("call", kLong, [](nccl::Handle) { return int{nccl::kSuccess}; }));
  EXPECT_EQ(polls, 4);
  ranks.end_engines(0, engines, true);
}

TEST(NcclChannel, what_a_call_began_is_queued_when_it_returns) {
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
