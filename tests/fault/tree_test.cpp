// SPDX-License-Identifier: Apache-2.0
// Ranks that are connected as a tree: the results of all, and their errors if a leaf, an inner node
// or the root dies, stops, leaves, is late or aborts.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/text.h"
#include "comm/exchange_record.h"
#include "fault/tcp_ranks.h"
#include "support/clock.h"
#include "support/nightly.h"
#include "support/points.h"
#include "support/system_calls.h"

namespace zero::tcp {
namespace {

using test::Clock;
using test::contains;
using test::for_each_survivor;
using test::for_each_victim;
using test::nightly_run;
using test::PointsOfRanks;
using test::RankEnd;
using test::ReplacedCall;
using test::run_struck_ranks;
using test::Victim;
using test::watch_points;

constexpr int32_t kFanOut = 2;  // so that few ranks form a tree
constexpr int32_t kRanks = 7;   // two levels below the root

/// Returns the results of `live` on each of seven seats.
template <class Live>
std::vector<std::string> run_tree(const Live& live) {
  return run_seats(kRanks, live, kFanOut);
}

template <class Check>
void for_each_but(int except, const std::vector<std::string>& said, const Check& check) {
  for (int rank = 0; rank < static_cast<int>(said.size()); ++rank) {
    SCOPED_TRACE(text("told to rank ", rank));
    if (rank != except) check(said[static_cast<size_t>(rank)]);
  }
}

// ---- Results of all ranks.

std::byte byte_of(size_t rank, size_t at) { return static_cast<std::byte>(rank * 31 + at * 7 + 1); }

std::vector<std::byte> bytes_of_rank(size_t rank, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = byte_of(rank, i);
  return bytes;
}

void expect_rows(TcpComm& seat, size_t bytes) {
  const auto world = static_cast<size_t>(seat.world());
  std::vector<std::byte> all(world * bytes), expected;
  for (size_t r = 0; r < world; ++r) {
    const std::vector<std::byte> row = bytes_of_rank(r, bytes);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const auto rank = static_cast<size_t>(seat.rank());
  const Status status = seat.exchange_bytes(bytes_of_rank(rank, bytes), all, within(20'000));
  EXPECT_EQ(outcome(status), "ok");
  EXPECT_TRUE(all == expected) << "rows of " << bytes << " bytes on rank " << rank;
}

void expect_sums(TcpComm& seat, size_t count) {
  const auto world = static_cast<uint64_t>(seat.world());
  std::vector<Sum> sums(count, Sum{static_cast<uint64_t>(seat.rank()) + 1});
  const Status status = seat.combine_bytes(std::as_writable_bytes(std::span(sums)),
                                           combining<Sum>.combine, within(20'000));
  EXPECT_EQ(outcome(status), "ok");
  for (const Sum& sum : sums) EXPECT_EQ(sum.value, world * (world + 1) / 2);
}

void expect_broadcast(TcpComm& seat, int32_t source, size_t bytes) {
  const std::vector<std::byte> given = bytes_of_rank(static_cast<size_t>(source), bytes);
  std::vector<std::byte> data = seat.rank() == source ? given : std::vector<std::byte>(bytes);
  EXPECT_EQ(outcome(seat.broadcast_bytes(data, source, within(20'000))), "ok");
  EXPECT_TRUE(data == given) << bytes << " bytes of rank " << source << " on " << seat.rank();
}

TEST(Tree, every_rank_gets_all_rows_in_rank_order_what_all_combine_to_and_the_bytes_of_any_one) {
  for (const int32_t world : {1, 2, 3, 7, 17, 40}) {
    run_seats(
        world,
        [&](Seat seat, int) {
          for (const size_t bytes : {0, 1, 40, 16384}) expect_rows(*seat, bytes);
          for (const size_t count : {1, 100}) expect_sums(*seat, count);
          for (int32_t source = 0; source < world; source += std::max(world / 5, 1))
            for (const size_t bytes : {0, 5}) expect_broadcast(*seat, source, bytes);
          expect_broadcast(*seat, world - 1, kPartBytes + 1);
          return std::string();
        },
        kFanOut, 20'000);
  }
}

TEST(Tree, records_of_several_sizes_combine_to_nothing) {
  for (int odd = 1; odd < kRanks; ++odd)
    for (const std::string& said : run_tree([&](Seat seat, int rank) {
           std::vector<Sum> sums(rank == odd ? 3 : 2);
           return outcome(seat->combine_bytes(std::as_writable_bytes(std::span(sums)),
                                              combining<Sum>.combine, within(20'000)));
         }))
      EXPECT_EQ(said, "ZERO_ERR_COMM: zero_step: vote: the ranks sent records that do not match");
}

// ---- Ranks that know each other's addresses.

/// The ranks of a tree that have exchanged their addresses, under other rank numbers.
class Told {
 public:
  explicit Told(int32_t world, int32_t fan_out = kFanOut)
      : world_(world), fan_out_(fan_out), own_(static_cast<size_t>(world)) {
    for (int32_t place = 0; place < world; ++place) {
      Result<Root> root = listen(tree(place), called(place));
      EXPECT_TRUE(root.ok()) << root.failure().text();
      own_[static_cast<size_t>(place)] = std::move(*root);
      offers_.push_back(own_[static_cast<size_t>(place)].offer);
    }
  }
  static int32_t called(int32_t place) { return 100 + 3 * place; }

  Result<Seat> meet(int32_t place, int64_t limit_ms = 20'000) const {
    const Bounds bounds = {limit_ms, [] { return Status(); }};
    Neighbours neighbours =
        ZERO_TRY(join(own_[static_cast<size_t>(place)], offers_, tree(place), bounds));
    EXPECT_LE(neighbours.peers.size(), static_cast<size_t>(fan_out_) + 1);
    return std::make_unique<TcpComm>(place, world_, CommOptions{.timeout_ms = 400}, nullptr,
                                     std::move(neighbours));
  }

 private:
  Tree tree(int32_t place) const { return {place, world_, fan_out_}; }

  const int32_t world_, fan_out_;
  std::vector<Root> own_;
  std::vector<Offer> offers_;
};

TEST(Tree, ranks_that_know_all_offers_are_called_as_these_say) {
  const Told told(kRanks);
  for_each_but(5,
               run_sound_ranks(RankKind::threads, kRanks,
                               [&](int place) {
                                 const Result<Seat> seat = told.meet(place);
                                 EXPECT_TRUE(seat.ok()) << seat.failure().text();
                                 if (!seat.ok()) return std::string();
                                 expect_rows(**seat, 40);
                                 return place == 5 ? std::string() : go_on(**seat, kRanks);
                               }),
               [](const std::string& said) {
                 EXPECT_EQ(said, "ZERO_ERR_DESYNC: zero_step: vote: rank 115 has freed its comm");
               });
}

TEST(Tree, a_rank_that_never_comes_is_named_by_all_above_it_and_their_children) {
  const Clock clock;
  const Told told(kRanks);
  const auto results = run_sound_ranks(RankKind::threads, kRanks, [&](int place) {
    if (place == 5) return Clock::reach(300, kRanks - 1), std::string();
    const Result<Seat> seat = told.meet(place, 300);
    return outcome(seat.ok() ? exchange(**seat, kRanks) : seat.failure());
  });
  EXPECT_EQ(results[2], "ZERO_ERR_RENDEZVOUS: rank 115 did not connect to rank 106 within 300 ms");
  for_each_but(5, results, [](const std::string& said) {
    EXPECT_TRUE(
        contains(said, "ZERO_ERR_RENDEZVOUS: ", "rank 115 did not connect to rank 106 within"));
  });
}

TEST(Tree, those_below_a_rank_that_does_not_reach_its_parent_hear_of_that) {
  const Clock clock;
  const Told told(kRanks);
  std::atomic<int> waiting{kRanks - 1};
  const auto results = run_sound_ranks(RankKind::threads, kRanks, [&](int place) {
    if (place == 0) return Clock::run([&] { return waiting.load(); }), std::string();
    const Result<Seat> seat = told.meet(place, 300);
    const std::string said = outcome(seat.ok() ? exchange(**seat, kRanks) : seat.failure());
    --waiting;
    return said;
  });
  for_each_but(0, results, [](const std::string& said) {
    EXPECT_TRUE(
        contains(said, "ZERO_ERR_RENDEZVOUS: ", "rank 100 could not be reached within 300 ms"));
  });
}

// ---- What rank 0 sends.

thread_local size_t sent_bytes = 0;

ssize_t count_bytes(int fd, const msghdr* message, int flags) {
  const ssize_t sent = ::sendmsg(fd, message, flags);
  sent_bytes += static_cast<size_t>(std::max<ssize_t>(sent, 0));
  return sent;
}

TEST(Tree, rank_0_sends_a_record_to_its_children_and_no_more_however_many_ranks_there_are) {
  const ReplacedCall counted(&SystemCalls::sendmsg, count_bytes);
  for (const int32_t world : {64, 273}) {
    const Told told(world, Tree::kFanOut);
    run_sound_ranks(RankKind::threads, world, [&](int place) {
      const Result<Seat> seat = told.meet(place);
      EXPECT_TRUE(seat.ok()) << seat.failure().text();
      if (!seat.ok()) return std::string();
      expect_sums(**seat, 1);
      sent_bytes = 0;
      expect_sums(**seat, sizeof(ExchangeRecord) / sizeof(Sum));
      if (place != 0) return std::string();
      EXPECT_GT(sent_bytes, Tree::kFanOut * sizeof(ExchangeRecord));
      EXPECT_LE(sent_bytes, Tree::kFanOut * size_t{4096});
      return std::string();
    });
  }
}

// ---- Ranks that die, stop or leave.

/// Returns the points of each rank in two exchanges.
PointsOfRanks points_of_tree() {
  const KeptRoot root = make_root();
  return test::points_of_ranks(kRanks, [&](int rank) {
    const Seat seat = sit(root, rank, kRanks, kFanOut);
    EXPECT_EQ(outcome(exchange(*seat, kRanks)), "ok");
    watch_points();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(outcome(exchange(*seat, kRanks)), "ok");
    test::stop_watching_points();
    return std::string();
  });
}

/// Exchanges until one fails, at the latest soon after its deadline.
std::string go_on_in_time(TcpComm& seat, int64_t limit_ms) {
  for (;;) {
    const Deadline latest(limit_ms + 500);
    const Status status = exchange(seat, kRanks, within(limit_ms));
    if (status.ok()) continue;
    EXPECT_FALSE(latest.passed());
    return outcome(status);
  }
}

/// Returns the results of seven processes, of which one is struck.
std::vector<RankEnd> strike(const Victim& victim, void (*blow)(), int64_t limit_ms) {
  const KeptRoot root = make_root();
  return run_struck_ranks(kRanks, [&](int rank) {
    const Seat seat = sit(root, rank, kRanks, kFanOut);
    EXPECT_EQ(outcome(exchange(*seat, kRanks)), "ok");
    if (rank != victim.rank) return go_on_in_time(*seat, limit_ms);
    watch_points(victim.point, blow);
    return go_on(*seat, kRanks, within(limit_ms));
  });
}

/// Strikes each rank at every such point.
void expect_deaths_to_be_told_at_once(void (*blow)(), size_t stride) {
  for_each_victim(points_of_tree(), stride, [&](const Victim& victim) {
    const std::vector<RankEnd> ends = strike(victim, blow, 20'000);
    for_each_survivor(ends, victim.rank, [&](int rank, const std::string& said) {
      EXPECT_TRUE(contains(
          said, "ZERO_ERR_PEER_DEAD: zero_step: vote: ", text("rank ", victim.rank, " (process "),
          ") died: its connection was closed"));
      EXPECT_LE(Clock::slept_ms(rank), 500);
    });
  });
}

TEST(Tree, a_rank_that_dies_at_any_point_is_named_by_all_others_at_once) {
  expect_deaths_to_be_told_at_once(test::die, nightly_run() ? 1 : 3);
}

TEST(Tree, one_that_has_forked_workers_is_named_as_soon) {
  expect_deaths_to_be_told_at_once(test::die_with_workers, nightly_run() ? 1 : 17);
}

TEST(Tree, a_rank_that_stops_at_any_point_is_named_by_all_others_and_itself) {
  for_each_victim(points_of_tree(), nightly_run() ? 1 : 5, [&](const Victim& victim) {
    const std::vector<RankEnd> ends = strike(victim, test::stop, 200);
    for_each_survivor(ends, -1, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(
          said, "ZERO_ERR_TIMEOUT: zero_step: vote: ", text("rank ", victim.rank, " (process "),
          ") did not arrive within 200 ms"));
    });
  });
}

TEST(Tree, a_rank_that_has_freed_its_comm_is_named_by_all_others) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const auto results = run_tree(
        [&](Seat seat, int rank) { return rank == victim ? std::string() : go_on(*seat, kRanks); });
    for_each_but(victim, results, [&](const std::string& said) {
      EXPECT_EQ(said,
                text("ZERO_ERR_DESYNC: zero_step: vote: rank ", victim, " has freed its comm"));
    });
  }
}

TEST(Tree, a_death_is_found_by_looks_between_calls) {
  for (int victim = 0; victim < kRanks; victim += 2) {
    const KeptRoot root = make_root();
    const std::vector<RankEnd> ends = test::run_ranks(RankKind::processes, kRanks, [&](int rank) {
      const Seat seat = sit(root, rank, kRanks, kFanOut);
      if (seat == nullptr || !exchange(*seat, kRanks).ok()) return std::string("no exchange");
      if (rank == victim) kill(getpid(), SIGKILL);
      for (int i = 0; i < 10'000; ++i) {
        if (const Status status = seat->check(); !status.ok()) return outcome(status);
        usleep(1000);
      }
      return std::string("nothing found");
    });
    for_each_survivor(ends, victim, [&](int, const std::string& said) {
      EXPECT_TRUE(
          contains(said, text("ZERO_ERR_PEER_DEAD: zero_step: vote: rank ", victim, " (process ")));
    });
  }
}

// ---- Ranks that are late.

/// Returns the results of all others if `absent` never comes to their exchange, and calls
/// `meanwhile` while they wait.
template <class Meanwhile>
std::vector<std::string> miss(int absent, const Patience& patience, const Meanwhile& meanwhile) {
  const Clock clock;
  std::atomic<int> coming{kRanks - 1}, waiting{kRanks - 1};
  return run_tree([&](Seat seat, int rank) {
    if (rank == absent) {
      while (coming > 0) usleep(1000);  // earlier looks at the clock do not count
      meanwhile(*seat);
      Clock::run([&] { return waiting.load(); });
      return std::string();
    }
    --coming;
    const std::string said = outcome(exchange(*seat, kRanks, patience));
    --waiting;
    while (waiting > 0) usleep(1000);
    return said;
  });
}

TEST(Tree, a_rank_that_does_not_come_is_named_by_all_others) {
  for (int absent = 0; absent < kRanks; absent += nightly_run() ? 1 : 2)
    for_each_but(absent, miss(absent, within(300), [](TcpComm&) {}), [&](const std::string& said) {
      EXPECT_TRUE(contains(said,
                           text("ZERO_ERR_TIMEOUT: zero_step: vote: rank ", absent, " (process "),
                           ") did not arrive within 300 ms"));
    });
}

TEST(Tree, who_waits_for_somebody_else_is_not_named_but_that_one) {
  for (const int absent : {0, 2, 5}) {
    const auto tell = [](TcpComm& seat) {
      for (int i = 0; i < 5; ++i) {  // until the deadline, as reports expire
        Clock::pass(50, kRanks - 1);
        seat.tell_waiting(77, "rank 77 (process 9 on host-z)", now_ns() - 1'000'000);
      }
    };
    for_each_but(absent, miss(absent, within(300), tell), [](const std::string& said) {
      EXPECT_EQ(said,
                "ZERO_ERR_TIMEOUT: zero_step: vote: rank 77 (process 9 on host-z) did not arrive "
                "within 300 ms");
    });
  }
}

std::atomic<bool> stops, is_stopped;
thread_local bool may_stop = false;

int poll_or_stop(pollfd* fds, nfds_t count, int timeout_ms) {
  while (may_stop && stops) {
    is_stopped = true;
    usleep(1000);
  }
  return ::poll(fds, count, timeout_ms);
}

/// An inner node reports that it waits for its child, and stops. Then the child arrives.
TEST(Tree, who_waits_and_stops_then_is_named_and_not_whom_it_waited_for) {
  for (const bool progress : {false, true}) {
    const Clock clock;
    const ReplacedCall stopping(&SystemCalls::poll, poll_or_stop);
    stops = is_stopped = false;
    std::atomic<int> waiting{kRanks - 1};
    std::jthread time;
    for_each_but(2, run_tree([&](Seat seat, int rank) {
                   may_stop = rank == 2;
                   if (rank == 5) {
                     Clock::pass(200, kRanks - 1);
                     stops = true;
                     while (!is_stopped) usleep(1000);
                     time = Clock::run_once([] { return true; }, [&] { return waiting.load(); });
                   }
                   const std::string said =
                       outcome(exchange(*seat, kRanks, within(1000, progress)));
                   if (rank != 2 && --waiting == 0) stops = false;
                   while (stops) usleep(1000);
                   return said;
                 }),
                 [](const std::string& said) {
                   EXPECT_TRUE(contains(said, "ZERO_ERR_TIMEOUT: zero_step: vote: rank 2 (process ",
                                        " 1000 ms"));
                 });
  }
}

TEST(Tree, progress_extends_the_deadlines_of_all) {
  for (const int slow : {0, 1, 6}) {
    const Clock clock;
    for (const std::string& said : run_tree([&](Seat seat, int rank) {
           for (int i = 0; rank == slow && i < 9; ++i) {
             Clock::pass(100, kRanks - 1);
             seat->note_progress();
           }
           return outcome(exchange(*seat, kRanks, within(400, true)));
         }))
      EXPECT_EQ(said, "ok") << "slow is rank " << slow;
  }
}

TEST(Tree, without_progress_the_quietest_is_named) {
  for (const int absent : {1, 6})
    for_each_but(absent, miss(absent, within(200, true), [](TcpComm&) {}),
                 [&](const std::string& said) {
                   EXPECT_TRUE(contains(said, text("vote: rank ", absent, " (process "),
                                        "made no progress for 200 ms"));
                 });
}

// ---- Aborts.

TEST(Tree, an_abort_of_any_rank_ends_the_wait_of_all_with_its_cause) {
  for (int aborter = 0; aborter < kRanks; ++aborter) {
    const Clock clock;
    for (const std::string& said : run_tree([&](Seat seat, int rank) {
           if (rank == aborter) {
             Clock::pass(50, kRanks - 1);
             seat->abort({ZERO_ERR_ABORTED, rank, 12, false, "zero_comm_abort", "enough"});
           }
           const std::string result = outcome(exchange(*seat, kRanks));
           EXPECT_EQ(seat->failure().rank, aborter);
           EXPECT_EQ(seat->failure().step, 12);
           usleep(50'000);
           return result;
         }))
      EXPECT_EQ(said, "ZERO_ERR_ABORTED: enough");
  }
}

}  // namespace
}  // namespace zero::tcp
