// SPDX-License-Identifier: Apache-2.0
// One communicator, to which several threads come while NCCL does not give one of their calls back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/os.h"
#include "comm/nccl/channel.h"
#include "nccl_seat.h"

namespace zero::test {
namespace {

const nccl::Bounds kLong{20'000, [] { return Status(); }};

/// The communicators of a group of one rank, and a call on the first that stays inside NCCL until
/// it is let go; or for so long that whoever waits for it without a deadline is found out.
class Held {
 public:
  Held() {
    channels_ =
        nccl::form(ranks_.library(), ranks_.device(0), id(), 0, 1, {16, false}, kLong).value();
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

}  // namespace
}  // namespace zero::test
