// SPDX-License-Identifier: Apache-2.0
// NCCL fails, does not answer or does not return. Each case is a status and a sentence on every
// rank, within its deadline.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/text.h"
#include "comm/comm.h"
#include "support/clock.h"
#include "support/interrupted.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"

namespace zero::test {
namespace {

using Seat = std::shared_ptr<Comm>;

CommOptions limits(int64_t timeout_ms, int64_t rendezvous_ms) {
  CommOptions options;
  options.timeout_ms = options.late_ms = timeout_ms;
  options.rendezvous_ms = rendezvous_ms;
  return options;
}

/// A stream with memory for a few numbers.
class Queue {
 public:
  explicit Queue(const std::shared_ptr<Device>& device) : device_(device) {
    stream_ = std::move(make_stream(device)).value();
    event_ = std::move(make_event(device)).value();
    memory_ = std::move(DeviceMemory::allocate_zeroed(device, 4096, "numbers")).value();
  }
  void* stream() const { return stream_.handle(); }
  std::byte* data() const { return memory_.data(); }

  Status drained() {
    ZERO_TRY(device_->record(event_.handle(), stream()));
    return await(*device_, event_.handle(), 20'000, "the test's work");
  }

  Status wait(Comm& comm, int64_t timeout_ms) {
    ZERO_TRY(device_->record(event_.handle(), stream()));
    return await(*device_, event_.handle(), timeout_ms, "the test's work",
                 [&] { return comm.check(); });
  }

 private:
  std::shared_ptr<Device> device_;
  DeviceMemory memory_;
  Stream stream_;
  Event event_;
};

Status barrier(const Seat& seat) {
  Call call = ZERO_TRY(seat->begin(Operation::barrier));
  return call.vote("barrier", {});
}

/// The life of one rank, with everything that calls NCCL.
Status live(const NcclRanks& ranks, int rank, const CommOptions& options) {
  const Seat seat = ZERO_TRY(ranks.join(rank, options));
  Queue work(seat->device());
  ZERO_TRY(barrier(seat));
  std::byte* const data = work.data();
  ZERO_TRY(seat->queued()->reduce_scatter({}, data, data + 16 * rank, 4, work.stream()));
  ZERO_TRY(seat->queued()->all_gather(data + 16 * rank, data, 16, work.stream()));
  const Sent sent{data, 16, 0};
  ZERO_TRY(seat->queued()->broadcast({&sent, 1}, work.stream()));
  ZERO_TRY(work.wait(*seat, 20'000));
  {
    Call call = ZERO_TRY(seat->begin(Operation::split));
    (void)ZERO_TRY(call.split(0, rank));
  }
  return barrier(seat);
}

// ---- Every call that fails.

TEST(NcclFault, whichever_call_fails_every_rank_gets_a_sentence_and_nothing_is_left) {
  constexpr int kWorld = 2;
  int64_t calls = 0;
  {
    NcclRanks ranks(kWorld);
    ranks.knobs().rank = 1;
    run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
      EXPECT_EQ(outcome(live(ranks, rank, limits(20'000, 20'000))), "ok");
      return "";
    });
    calls = ranks.knobs().calls;
  }
  ASSERT_GE(calls, 9);
  for (int64_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(n);
    NcclRanks ranks(kWorld);
    ranks.knobs().rank = 1;
    ranks.knobs().failing_call = n;
    const Clock clock;
    std::atomic<int> living{kWorld};
    const auto time =
        Clock::run_once([&] { return ranks.knobs().calls > n; }, [&] { return living.load(); });
    const auto results = run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
      std::string said = outcome(live(ranks, rank, limits(20'000, 2'000)));
      --living;
      return said;
    });
    EXPECT_TRUE(contains(results[1], "NCCL says 'internal error' (3)")) << n;
    EXPECT_TRUE(contains(results[0], "ZERO_ERR_")) << n;
  }
}

TEST(NcclFault, an_asynchronous_error_is_found_by_whoever_waits_and_told_to_all) {
  constexpr int kWorld = 3;
  NcclRanks ranks(kWorld);
  std::atomic<int> joined{0};
  const auto results = run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
    const Result<Seat> made = ranks.join(rank, limits(20'000, 20'000));
    EXPECT_TRUE(made.ok()) << made.failure().text();
    if (!made.ok()) return std::string();
    const Seat seat = *made;
    Queue queue(seat->device());
    EXPECT_EQ(outcome(barrier(seat)), "ok");
    if (++joined == kWorld) {
      ranks.knobs().rank = 1;
      ranks.knobs().stuck_rank = 1;
      ranks.knobs().calls = 0;
      ranks.knobs().broken_from_call = 0;
      ++joined;
    }
    while (joined <= kWorld) usleep(1000);
    Status status =
        seat->queued()->all_gather(queue.data() + 16 * rank, queue.data(), 16, queue.stream());
    if (status.ok()) status = queue.wait(*seat, 20'000);
    if (status.ok()) status = barrier(seat);
    EXPECT_TRUE(seat->aborted());
    return outcome(status);
  });
  for (const std::string& said : results)
    EXPECT_EQ(said,
              "ZERO_ERR_COMM: rank 1: ncclAllGather: NCCL says 'unhandled system error' (2): the "
              "fake has no more to say");
  EXPECT_EQ(ranks.knobs().aborted, 2 * kWorld);
}

TEST(NcclFault, an_error_that_comes_when_all_calls_are_taken_in_is_found_by_whoever_waits) {
  constexpr int kWorld = 2;
  NcclRanks ranks(kWorld);
  ranks.knobs().rank = 1;
  const auto results = run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
    const Seat seat = ranks.join(rank, limits(20'000, 20'000)).value();
    Queue queue(seat->device());
    EXPECT_EQ(outcome(barrier(seat)), "ok");
    ranks.knobs().stuck_rank = 1;
    Status status =
        seat->queued()->all_gather(queue.data() + 16 * rank, queue.data(), 16, queue.stream());
    EXPECT_EQ(outcome(status), "ok");
    std::thread breaks([&] {
      usleep(100'000);
      if (rank == 1) ranks.knobs().broken_now = 2;
    });
    if (status.ok()) status = queue.wait(*seat, 20'000);
    if (status.ok()) status = barrier(seat);
    breaks.join();
    EXPECT_TRUE(seat->aborted());
    return outcome(status);
  });
  for (const std::string& said : results) {
    EXPECT_TRUE(
        contains(said, "ZERO_ERR_COMM: rank 1: ", "NCCL says 'unhandled system error' (2)"));
  }
}

// ---- NCCL does not answer.

TEST(NcclFault, ranks_that_do_not_come_are_an_error_at_the_rendezvous_deadline) {
  NcclRanks ranks(3);
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    return outcome(std::move(ranks.join(rank, limits(20'000, 300))).status());
  });
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(results[rank],
              text("ZERO_ERR_RENDEZVOUS: rank ", rank,
                   " of an nccl comm of 3: ncclCommInitRankConfig: NCCL was still busy after 300 "
                   "ms: have all 3 ranks passed the same id?"));
  EXPECT_EQ(ranks.knobs().aborted, 2);
}

TEST(NcclFault, a_rank_that_does_not_wrap_is_an_error_at_the_rendezvous_deadline) {
  for (const bool blocking : {false, true}) {
    const NcclRanks ranks(2);
    ranks.knobs().allows_blocking = true;
    run_sound_ranks(RankKind::threads, 2, [&](int rank) {
      const nccl::Handle engines = ranks.engines(rank, blocking);
      if (rank == 0) {
        EXPECT_EQ(outcome(wrap_nccl(ranks.device(0), engines, limits(20'000, 300)).status()),
                  "ZERO_ERR_RENDEZVOUS: rank 0 of an nccl comm of 2: ncclCommSplit: NCCL was still "
                  "busy after 300 ms: have all 2 ranks made this call?");
        EXPECT_EQ(ranks.knobs().blocked, blocking ? 1 : 0);
      }
      ranks.end_engines(rank, engines, false);  // the engine's own, which ends the wait
      return "";
    });
    while (ranks.knobs().blocked > 0) usleep(1000);
    usleep(50'000);  // the thread that was left ends a moment later
  }
}

TEST(NcclFault, a_call_that_is_never_taken_in_is_an_error_at_the_deadline) {
  NcclRanks ranks(1);
  const Result<Seat> made = ranks.join(0, limits(300, 20'000));
  ASSERT_TRUE(made.ok()) << made.failure().text();
  const Seat seat = *made;
  Queue queue(seat->device());
  ranks.knobs().busy_polls = -1;
  const std::string sentence =
      "ZERO_ERR_TIMEOUT: rank 0: ncclBroadcast: NCCL was still busy after 300 ms";
  const Sent sent{queue.data(), 16, 0};
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(outcome(seat->queued()->broadcast({&sent, 1}, queue.stream())), sentence);
  EXPECT_EQ(outcome(barrier(seat)), sentence);
  EXPECT_EQ(ranks.knobs().aborted, 2);
}

TEST(NcclFault, an_interrupt_ends_each_wait_for_nccl_and_for_queued_work) {
  {
    NcclRanks ranks(2);
    const Interrupted call;
    EXPECT_EQ(outcome(ranks.join(0, limits(20'000, 20'000)).status()),
              "ZERO_ERR_RENDEZVOUS: rank 0 of an nccl comm of 2: this rank was interrupted");
    EXPECT_TRUE(call.heeded());
  }
  for (const bool queued : {false, true}) {
    NcclRanks ranks(1);
    const Result<Seat> made = ranks.join(0, limits(20'000, 20'000));
    ASSERT_TRUE(made.ok()) << made.failure().text();
    const Seat seat = *made;
    Queue queue(seat->device());
    const Sent sent{queue.data(), 16, 0};
    (queued ? ranks.knobs().stuck_rank : ranks.knobs().busy_polls) = queued ? 0 : -1;
    const Interrupted call;
    const Status sent_off = seat->queued()->broadcast({&sent, 1}, queue.stream());
    EXPECT_EQ(outcome(queued ? queue.wait(*seat, 20'000) : sent_off),
              "ZERO_ERR_ABORTED: queued work: rank 0 was interrupted");
    EXPECT_TRUE(call.heeded());
    EXPECT_TRUE(seat->aborted());
  }
}

TEST(NcclFault, work_that_never_ends_is_ended_by_an_abort_of_any_rank) {
  for (int aborter = 0; aborter < 2; ++aborter) {
    NcclRanks ranks(2);
    std::atomic<int> joined{0};  // the handshakes of the ranks must not be stuck
    const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
      const Result<Seat> made = ranks.join(rank, limits(20'000, 20'000));
      EXPECT_TRUE(made.ok()) << made.failure().text();
      if (!made.ok()) return std::string();
      const Seat seat = *made;
      Queue queue(seat->device());
      ++joined;
      while (joined < 2) usleep(1000);
      ranks.knobs().stuck_rank = 1;
      EXPECT_EQ(outcome(seat->queued()->all_gather(queue.data() + 16 * rank, queue.data(), 16,
                                                   queue.stream())),
                "ok");
      if (rank == 1) {
        EXPECT_EQ(queue.wait(*seat, 100).code(), ZERO_ERR_TIMEOUT);
      }
      if (rank == aborter) {
        usleep(400'000);
        Failure cause;
        cause.code = ZERO_ERR_ABORTED;
        cause.text = "it takes too long";
        seat->abort(cause);
      }
      const std::string said = outcome(barrier(seat));
      EXPECT_EQ(outcome(queue.drained()), "ok");  // nothing blocks the stream any more
      return said;
    });
    for (const std::string& said : results) EXPECT_EQ(said, "ZERO_ERR_ABORTED: it takes too long");
  }
}

TEST(NcclFault, an_abort_that_does_not_come_back_leaves_the_communicators_behind_and_says_so) {
  NcclRanks ranks(1);
  ranks.leaves_some();
  const Result<Seat> made = ranks.join(0, limits(20'000, 20'000));
  ASSERT_TRUE(made.ok()) << made.failure().text();
  ranks.knobs().abort_hangs = true;
  Failure cause;
  cause.code = ZERO_ERR_ABORTED;
  cause.text = "enough";
  (*made)->abort(cause);
  EXPECT_EQ((*made)->failure().text,
            "enough; NCCL did not return from destroying its communicators: they are leaked, "
            "and the device's queues may hang");
  ranks.knobs().abort_hangs = false;
  while (ranks.knobs().living > 0) usleep(1000);
}

}  // namespace
}  // namespace zero::test
