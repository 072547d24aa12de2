// SPDX-License-Identifier: Apache-2.0
// Ranks that meet at rank 0's socket: strangers, ranks that die, leave, are late or abort, and what
// all others are told then.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "base/text.h"
#include "comm/tcp/cause.h"
#include "comm/tcp/meeting.h"
#include "support/ranks.h"

namespace zero::tcp {
namespace {

using test::contains;
using test::RankEnd;
using test::RankKind;
using test::run_ranks;
using test::run_sound_ranks;
using test::SharedMemory;

using Seat = std::unique_ptr<Star>;

Root make_root() {
  Result<Root> root = listen();
  EXPECT_TRUE(root.ok()) << root.failure().text();
  return std::move(root).value();
}

Result<Seat> meet(const Root& root, int32_t rank, int32_t world, int64_t limit_ms = 20'000) {
  const Meeting meeting{rank, world, limit_ms, [] { return Status(); }};
  return rank == 0 ? seat_guests(root, meeting) : visit(root.offer, meeting);
}

Seat sit(const Root& root, int32_t rank, int32_t world) {
  Result<Seat> seat = meet(root, rank, world);
  EXPECT_TRUE(seat.ok()) << seat.failure().text();
  return seat.ok() ? std::move(*seat) : nullptr;
}

std::string outcome(const Status& status) {
  return status.ok() ? "ok" : text(code_name(status.code()), ": ", status.text());
}

Patience within(int64_t limit_ms, bool progress = false) {
  return {"zero_step", "vote", limit_ms, progress};
}

Status exchange(Star& star, int32_t world, const Patience& patience = within(20'000)) {
  const std::byte mine[40] = {};
  std::vector<std::byte> all(40 * static_cast<size_t>(world));
  return star.exchange(mine, all, patience);
}

/// One exchange, and another one until it fails.
std::string go_on(Star& star, int32_t world, const Patience& patience = within(20'000)) {
  for (int i = 0; i < 1000; ++i)
    if (const Status status = exchange(star, world, patience); !status.ok()) return outcome(status);
  return "no end";
}

// ---- Meeting.

TEST(Tcp, every_rank_that_did_not_connect_is_named) {
  const Root root = make_root();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    if (rank == 0) return outcome(std::move(meet(root, 0, 4, 300)).status());
    const Result<Seat> seat = meet(root, 2, 4, 300);
    EXPECT_TRUE(seat.ok()) << seat.failure().text();  // the first exchange would tell
    usleep(400'000);
    return std::string();
  });
  EXPECT_EQ(results[0],
            "ZERO_ERR_RENDEZVOUS: rank 1, rank 3 did not connect to rank 0 within 300 ms");
}

TEST(Tcp, a_rank_without_the_key_is_not_let_in) {
  const Root root = make_root();
  Root wrong;
  wrong.offer = root.offer;
  wrong.offer.guests[15] ^= std::byte{1};
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    return outcome(std::move(meet(rank == 0 ? root : wrong, rank, 2, 400)).status());
  });
  EXPECT_EQ(results[0], "ZERO_ERR_RENDEZVOUS: rank 1 did not connect to rank 0 within 400 ms");
  EXPECT_TRUE(contains(results[1], "ZERO_ERR_RENDEZVOUS: rank 0 was not reached within 400 ms"))
      << results[1];
}

TEST(Tcp, a_rank_does_not_take_for_rank_0_what_has_not_its_key) {
  Root root = make_root();
  const Offer offer = root.offer;
  root.offer.root[0] ^= std::byte{1};
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    if (rank == 0) return outcome(std::move(meet(root, 0, 2, 400)).status());
    const Meeting meeting{1, 2, 400, [] { return Status(); }};
    return outcome(std::move(visit(offer, meeting)).status());
  });
  EXPECT_TRUE(contains(results[1], "what answers there is not rank 0")) << results[1];
}

TEST(Tcp, strangers_do_not_disturb_a_meeting) {
  const Root root = make_root();
  run_sound_ranks(RankKind::threads, 4, [&](int rank) {
    if (rank == 3) {  // who sends what is no frame, and who says nothing
      for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) {
        Result<Fd> fd = start_connect(root.offer.addresses[0], root.offer.port);
        EXPECT_TRUE(fd.ok());
        usleep(20'000);
        (void)send_some(fd->get(), std::as_bytes(std::span(words)));
        usleep(20'000);
      }
      return std::string();
    }
    const Seat seat = sit(root, rank, 3);
    if (seat != nullptr) {
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
    }
    return std::string();
  });
}

TEST(Tcp, a_rank_of_another_world_is_refused) {
  const Root root = make_root();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    return outcome(std::move(meet(root, rank == 0 ? 0 : 5, rank == 0 ? 2 : 6, 500)).status());
  });
  EXPECT_TRUE(contains(results[0], "of a world of 6 came to a world of 2")) << results[0];
}

// ---- Ranks that die or leave.

TEST(Tcp, a_rank_that_is_killed_is_named_by_all_others) {
  for (int victim = 0; victim < 3; ++victim) {
    const Root root = make_root();
    SharedMemory memory(4096);
    auto* const pids = memory.as<std::atomic<pid_t>>();
    const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
      pids[rank] = getpid();
      const Seat seat = sit(root, rank, 3);
      if (seat == nullptr) return std::string();
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      if (rank == victim) kill(getpid(), SIGKILL);
      return go_on(*seat, 3);
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string& said = ends[static_cast<size_t>(rank)].result;
      EXPECT_TRUE(contains(said, text("ZERO_ERR_PEER_DEAD: zero_step: vote: rank ", victim,
                                      " (process ", pids[victim].load(), " on ")))
          << said;
      EXPECT_TRUE(contains(said, ") died: its connection has ended")) << said;
    }
  }
}

TEST(Tcp, a_death_is_found_by_a_look_between_calls) {
  const Root root = make_root();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = sit(root, rank, 3);
    if (seat == nullptr || !exchange(*seat, 3).ok()) return std::string("no exchange");
    if (rank == 2) kill(getpid(), SIGKILL);
    for (int i = 0; i < 10'000; ++i) {
      if (const Status status = seat->check(); !status.ok()) return outcome(status);
      usleep(1000);
    }
    return std::string("nothing found");
  });
  for (const size_t rank : {size_t{0}, size_t{1}})
    EXPECT_TRUE(contains(ends[rank].result, "ZERO_ERR_PEER_DEAD: zero_step: vote: rank 2 ("))
        << ends[rank].result;
}

TEST(Tcp, a_rank_that_has_freed_its_comm_is_not_called_dead) {
  for (int victim = 0; victim < 3; ++victim) {
    const Root root = make_root();
    const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
      Seat seat = sit(root, rank, 3);
      if (seat == nullptr) return std::string();
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      if (rank == victim) {
        seat.reset();
        return std::string();
      }
      return go_on(*seat, 3);
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(results[static_cast<size_t>(rank)],
                text("ZERO_ERR_DESYNC: zero_step: vote: rank ", victim, " has freed its comm"));
    }
  }
}

// ---- Ranks that are late.

TEST(Tcp, a_rank_that_does_not_come_is_named_by_all_others) {
  for (int absent = 0; absent < 3; ++absent) {
    for (int first = 0; first < 3; ++first) {  // whose deadline comes first
      if (first == absent) continue;
      const Root root = make_root();
      std::atomic<int> done{0};
      const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
        const Seat seat = sit(root, rank, 3);
        if (seat == nullptr) return std::string();
        EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
        std::string said;
        if (rank != absent) {
          if (rank != first) usleep(60'000);
          said = outcome(exchange(*seat, 3, within(300)));
        }
        ++done;
        while (done < 3) usleep(1000);
        return said;
      });
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == absent) continue;
        const std::string& said = results[static_cast<size_t>(rank)];
        EXPECT_TRUE(
            contains(said, text("ZERO_ERR_TIMEOUT: zero_step: vote: rank ", absent, " (process ")))
            << said;
        EXPECT_TRUE(contains(said, ") did not come within 300 ms")) << said;
      }
    }
  }
}

TEST(Tcp, a_late_rank_finds_the_cause_of_those_who_gave_up) {
  const Root root = make_root();
  const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    const Seat seat = sit(root, rank, 3);
    if (seat == nullptr) return std::string();
    EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
    if (rank == 1) usleep(600'000);
    return outcome(exchange(*seat, 3, within(200)));
  });
  for (const std::string& said : results)
    EXPECT_TRUE(contains(said, "ZERO_ERR_TIMEOUT: zero_step: vote: rank 1 (process ")) << said;
}

TEST(Tcp, progress_extends_the_deadline_of_a_call_that_all_have_entered) {
  for (int slow = 0; slow < 3; ++slow) {
    const Root root = make_root();
    const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
      const Seat seat = sit(root, rank, 3);
      if (seat == nullptr) return std::string();
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      for (int i = 0; rank == slow && i < 90; ++i) {
        usleep(10'000);
        seat->note_progress(400);
      }
      return outcome(exchange(*seat, 3, within(400, true)));
    });
    for (const std::string& said : results) EXPECT_EQ(said, "ok") << "slow is rank " << slow;
  }
}

TEST(Tcp, without_progress_the_quietest_is_named) {
  const Root root = make_root();
  std::atomic<bool> over{false};
  const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    const Seat seat = sit(root, rank, 3);
    if (seat == nullptr) return std::string();
    EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
    if (rank == 2) {
      while (!over) usleep(1000);
      return std::string();
    }
    const std::string said = outcome(exchange(*seat, 3, within(200, true)));
    over = true;
    return said;
  });
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_TRUE(contains(results[rank], "vote: rank 2 (process ")) << results[rank];
    EXPECT_TRUE(contains(results[rank], "made no progress for 200 ms")) << results[rank];
  }
}

// ---- Aborts.

TEST(Tcp, an_abort_of_any_rank_ends_the_wait_of_all_with_its_cause) {
  for (int aborter = 0; aborter < 3; ++aborter) {
    const Root root = make_root();
    const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
      const Seat seat = sit(root, rank, 3);
      if (seat == nullptr) return std::string();
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      if (rank == aborter) {
        usleep(50'000);
        Failure cause;
        cause.code = ZERO_ERR_ABORTED;
        cause.rank = rank;
        cause.step = 12;
        cause.params_consistent = false;
        cause.phase = "zero_comm_abort";
        cause.text = "enough";
        seat->abort(cause);
        cause.text = "the second";
        seat->abort(cause);
      }
      const std::string said = outcome(exchange(*seat, 3));
      const Failure failure = seat->failure();
      EXPECT_EQ(failure.rank, aborter);
      EXPECT_EQ(failure.step, 12);
      EXPECT_FALSE(failure.params_consistent);
      EXPECT_EQ(failure.phase, "zero_comm_abort");
      usleep(50'000);
      return said;
    });
    for (const std::string& said : results) EXPECT_EQ(said, "ZERO_ERR_ABORTED: enough");
  }
}

TEST(Tcp, a_cause_that_is_cut_anywhere_is_still_a_cause) {
  Failure cause;
  cause.code = ZERO_ERR_TIMEOUT;
  cause.rank = 3;
  cause.phase = "here";
  cause.text = "a sentence";
  const std::vector<std::byte> bytes = pack(cause);
  EXPECT_EQ(unpack(bytes).text, "a sentence");
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const Failure read = unpack(std::span(bytes).first(cut));
    EXPECT_LT(read.code, 0) << cut;
    EXPECT_FALSE(read.text.empty() && read.phase.empty() && read.code == ZERO_OK) << cut;
  }
}

}  // namespace
}  // namespace zero::tcp
