// SPDX-License-Identifier: Apache-2.0
// An exchange ends the same way on every rank, whichever rank dies, stops, aborts, leaves or is
// late, at any time.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/control.h"
#include "comm/local/rendezvous.h"
#include "support/nightly.h"
#include "support/points.h"
#include "support/watched.h"

namespace zero::test {
namespace {

using Seat = std::shared_ptr<Comm>;
using Ranks = std::vector<std::string>;

CommOptions limits(int64_t timeout_ms, int64_t late_ms) {
  CommOptions options;
  options.timeout_ms = timeout_ms;
  options.late_ms = late_ms;
  options.rendezvous_ms = 20'000;
  return options;
}

Seat join(const std::string& name, int rank, int world,
          const CommOptions& options = limits(20'000, 20'000)) {
  Result<Seat> seat = create_local(name, rank, world, options);
  EXPECT_TRUE(seat.ok()) << seat.failure().text();
  return seat.ok() ? *seat : nullptr;
}

/// A call with two votes, so that a rank can fail at its start and inside it.
std::string step(const Seat& seat) {
  Result<Call> call = seat->begin(Operation::step);
  if (!call.ok()) return outcome(call.failure());
  const Status first = call->vote("first", {});
  if (!first.ok()) return outcome(first);
  return outcome(call->vote("second", {}));
}

/// A call that ends like a step. Every second rank has no work between its two exchanges, and
/// submits both at once.
std::string end(const Seat& seat) {
  Result<Call> call = seat->begin(Operation::step);
  if (!call.ok()) return outcome(call.failure());
  const bool ahead = seat->rank() % 2 == 1;
  if (ahead) call->come_ahead();
  const Status first = call->vote("first", {});
  if (!first.ok()) return outcome(first);
  Result<Sum> busy = call->combine(Call::kLast, Sum{ahead ? 0u : 1u});
  if (!busy.ok()) return outcome(busy.failure());
  return busy->value == static_cast<uint64_t>(seat->world() + 1) / 2 ? "ok" : "another sum";
}

// ---- Ranks that die or stop at every point.

/// The stages of one rank. Each stage ends the same way on all ranks.
std::string live(const Seat& seat) {
  std::string said;
  for (const auto& stage : {step, step, end, end}) {
    const std::string one = stage(seat);
    said += one + "\n";
    if (one != "ok") break;
  }
  return said;
}

PointsOfRanks points_of(int world) {
  const std::string name = unique_name();
  const PointsOfRanks points = points_of_ranks(world, [&](int rank) {
    const Seat seat = join(name, rank, world);
    watch_points();
    return live(seat);
  });
  for (const auto& of_rank : points) EXPECT_GE(of_rank.size(), 16u);
  return points;
}

/// Checks that all ranks except one return the same result. If it is a failure, it has `parts`.
template <class... Parts>
void expect_one_answer(const std::vector<RankEnd>& ends, int except, const Parts&... parts) {
  const std::string& first = ends[except == 0 ? 1 : 0].result;
  for_each_survivor(ends, except, [&](int, const std::string& said) {
    EXPECT_EQ(said, first);
    if (contains(said, "ZERO_ERR")) {
      EXPECT_TRUE(contains(said, parts...));
    }
  });
}

/// Checks that survivors were told as soon as the dead rank had ended.
void expect_told_at_once(const std::vector<RankEnd>& ends, int victim) {
  for_each_survivor(ends, victim,
                    [](int rank, const std::string&) { EXPECT_LE(Clock::slept_ms(rank), 100); });
}

TEST(Exchange, a_rank_that_dies_at_any_point_ends_it_alike_for_all_and_at_once) {
  for (int world = 2; world <= 4; ++world) {
    for_each_victim(points_of(world), 1, [&](const Victim& victim) {
      const std::string name = unique_name();
      const std::vector<RankEnd> ends = run_struck_ranks(world, [&](int rank) {
        const Seat seat = join(name, rank, world);
        if (rank == victim.rank) watch_points(victim.point, die);
        return live(seat);
      });
      expect_one_answer(ends, victim.rank, "ZERO_ERR_PEER_DEAD",
                        text("rank ", victim.rank, " (process "), " died");
      expect_told_at_once(ends, victim.rank);
    });
  }
}

TEST(Exchange, a_rank_that_exits_by_itself_has_ended_and_zero_join_is_named) {
  const std::string name = unique_name();
  const auto ends = run_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = join(name, rank, 3);
    if (rank == 1) _exit(0);
    return live(seat);
  });
  expect_one_answer(ends, 1, "ZERO_ERR_PEER_DEAD", "rank 1 (process ", " ended", "zero_join");
}

TEST(Exchange, a_rank_that_stops_at_any_point_ends_it_alike_for_all_and_itself) {
  for (int world = 2; world <= (nightly_run() ? 4 : 3); ++world) {
    for_each_victim(
        points_of(world), world == 3 && !nightly_run() ? 3 : 1, [&](const Victim& victim) {
          const std::string name = unique_name();
          const auto ends = run_struck_ranks(world, [&](int rank) {
            const Seat seat = join(name, rank, world, limits(200, 200));
            if (rank == victim.rank) watch_points(victim.point, stop);
            return live(seat);
          });
          expect_one_answer(ends, -1, "ZERO_ERR_TIMEOUT", text("rank ", victim.rank, " (process "),
                            "stopped", "200 ms");
        });
  }
}

/// A child of the dead rank stays alive with all its descriptors. No socket is closed before the
/// other rank has been told.
TEST(Exchange, a_living_child_does_not_hide_a_death) {
  const std::string name = unique_name();
  const std::vector<RankEnd> ends = run_struck_ranks(2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) {
      leave_child_behind();
      die();
    }
    return step(seat);
  });
  expect_one_answer(ends, 1, "ZERO_ERR_PEER_DEAD", "rank 1 (process ");
}

/// A death must be reported without waiting for a slow third rank.
TEST(Exchange, a_death_is_told_while_another_rank_is_still_busy) {
  const std::string name = unique_name();
  const SharedMemory memory(4096);
  auto* const told = memory.as<std::atomic<bool>>();
  const std::vector<RankEnd> ends = run_struck_ranks(3, [&](int rank) {
    const Seat seat = join(name, rank, 3);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) watch_points({"exchange.arrived", 1}, die);
    while (rank == 2 && !*told) usleep(1'000);
    const std::string said = step(seat);
    *told = true;
    return said;
  });
  expect_one_answer(ends, 1, "ZERO_ERR_PEER_DEAD", "rank 1 (process ");
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR"));
}

TEST(Exchange, a_job_that_is_stopped_as_a_whole_goes_on_where_it_was) {
  const std::string name = unique_name();
  const Ranks said = run_stopped_job(2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) be_late();
    return step(seat);
  });
  EXPECT_EQ(said, Ranks(2, "ok"));
}

// ---- Ranks that are ahead.

TEST(Exchange, a_rank_that_is_ahead_has_come_to_the_second_before_the_first_has_ended) {
  const std::string name = unique_name();
  const PointsOfRanks points = points_of_ranks(2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    std::string said = step(seat);
    watch_points();
    return said + end(seat);
  });
  const auto place_of = [&](size_t rank, const char* name, int occurrence) {
    return std::ranges::find_if(points[rank],
                                [&](const Point& point) {
                                  return point.name == name && point.occurrence == occurrence;
                                }) -
           points[rank].begin();
  };
  EXPECT_GT(place_of(0, "exchange.arrived", 2), place_of(0, "exchange.read", 1));
  EXPECT_LT(place_of(1, "exchange.arrived", 2), place_of(1, "exchange.read", 1));
}

/// Runs body(call, number of the call) in calls to which every second rank comes ahead. Then makes
/// a call that ends like a step.
void expect_all_go_on(const std::function<void(Call&, int)>& body) {
  const std::string name = unique_name();
  const Ranks said = run_sound_ranks(RankKind::threads, 4, [&](int rank) {
    const Seat seat = join(name, rank, 4);
    EXPECT_EQ(step(seat), "ok");
    for (int i = 0; i < 100; ++i) {
      Result<Call> call = seat->begin(Operation::step);
      if (rank % 2 == 1) call->come_ahead();
      body(*call, i);
    }
    return end(seat);
  });
  EXPECT_EQ(said, Ranks(4, "ok"));
}

TEST(Exchange, a_vote_that_fails_is_no_end_for_ranks_that_are_ahead) {
  expect_all_go_on([](Call& call, int i) {
    const bool fails = call.rank() == 2;
    // A failure without a text needs no second exchange.
    const Status why = fails ? Status(ZERO_ERR_MEMORY, i < 50 ? "" : "no room") : Status();
    EXPECT_EQ(call.vote("first", why).code(), fails ? ZERO_ERR_MEMORY : ZERO_ERR_PEER);
  });
}

TEST(Exchange, ranks_that_are_ahead_go_another_way_with_the_others) {
  expect_all_go_on([](Call& call, int) {
    EXPECT_EQ(outcome(call.vote("first", {})), "ok");
    EXPECT_EQ(outcome(call.skip_ahead()), "ok");
    EXPECT_EQ(call.combine("other", Sum{1})->value, 4u);
  });
}

/// A rank that is ahead must not overwrite what others still read of the call before.
TEST(Exchange, a_rank_that_is_ahead_leaves_what_others_still_read) {
  constexpr int kWorld = 8;
  const std::string name = unique_name();
  const Ranks said = run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
    const Seat seat = join(name, rank, kWorld);
    std::array<char, 512> mine;
    for (int i = 0; i < 500; ++i) {
      mine.fill(static_cast<char>(i + rank));
      const auto all = seat->begin(Operation::step)->exchange("rows", mine);
      for (int r = 0; r < kWorld; ++r)
        EXPECT_EQ(std::ranges::count((*all)[static_cast<size_t>(r)], static_cast<char>(i + r)),
                  512);
      EXPECT_EQ(end(seat), "ok");
    }
    return "ok";
  });
  EXPECT_EQ(said, Ranks(kWorld, "ok"));
}

// ---- The deadline.

/// Seats on one control segment without a rendezvous, so that each try can have new ones.
class Bench {
 public:
  explicit Bench(int world)
      : world_(world),
        life_(local::Life::begin().value()),
        self_(*local::Peer::meet(life_.page(), Fd(), getpid())),
        segment_(local::make_control_segment(world).value()) {}

  void renew() {
    std::memset(segment_.mapping->data(), 0, segment_.mapping->bytes());
    local::Control::format(segment_.mapping->data(), world_, {1, 2});
    seats_.clear();
    for (int r = 0; r < world_; ++r)
      seats_.push_back(std::make_unique<local::Control>(
          segment_.mapping, r, world_,
          std::vector<std::shared_ptr<local::Peer>>(static_cast<size_t>(world_), self_)));
  }
  void end() { seats_.clear(); }

  local::Control& seat(int rank) { return *seats_[static_cast<size_t>(rank)]; }

 private:
  int world_;
  local::Life life_;
  std::shared_ptr<local::Peer> self_;
  local::ControlSegment segment_;
  std::vector<std::unique_ptr<local::Control>> seats_;
};

void spin_until(int64_t ns) {
  while (now_ns() < ns) {
  }
}

/// The last rank arrives close to the others' deadline. The delay changes with each try, towards
/// the point where both results are possible.
TEST(Exchange, a_vote_whose_last_arrival_falls_on_the_deadline_ends_alike) {
  constexpr int kWorld = 3;
  const int tries = nightly_run() ? 20'000 : 1'000;
  int committed = 0;
  int aborted = 0;
  Bench bench(kWorld);
  std::atomic<int> round{0};
  std::atomic<int> returned{0};
  std::atomic<int64_t> start_ns{0};
  std::atomic<int64_t> delay_ns{1'000'000};
  Status said[kWorld];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      for (int i = 1; i <= tries; ++i) {
        while (round.load() < i) usleep(20);
        const Patience patience{"zero_step", "vote", rank == kWorld - 1 ? 1'000 : 1, rank % 2 == 0};
        spin_until(start_ns + (rank == kWorld - 1 ? delay_ns.load() : 0));
        std::byte mine{static_cast<unsigned char>(i + rank)};
        std::byte all[kWorld] = {};
        said[rank] = bench.seat(rank).exchange({&mine, 1}, all, patience);
        for (int r = 0; said[rank].ok() && r < kWorld; ++r)
          EXPECT_EQ(all[r], std::byte(static_cast<unsigned char>(i + r)));
        ++returned;
      }
    });
  for (int i = 1; i <= tries; ++i) {
    bench.renew();
    returned = 0;
    start_ns = now_ns() + 100'000;
    round = i;
    while (returned < kWorld) usleep(20);
    for (int r = 1; r < kWorld; ++r) {
      EXPECT_EQ(said[r].code(), said[0].code()) << "try " << i;
      EXPECT_EQ(said[r].text(), said[0].text()) << "try " << i;
    }
    EXPECT_TRUE(said[0].ok() || said[0].code() == ZERO_ERR_TIMEOUT) << said[0].text();
    (said[0].ok() ? committed : aborted) += 1;
    const int64_t nudge = 1'000 + i * 7919 % 5'000;
    delay_ns += said[0].ok() ? nudge : -nudge;
  }
  for (std::thread& thread : threads) thread.join();
  bench.end();
  EXPECT_GT(committed, tries / 20);
  EXPECT_GT(aborted, tries / 20);
}

TEST(Exchange, an_abort_that_races_with_a_vote_ends_it_alike) {
  constexpr int kWorld = 2;
  Bench bench(kWorld);
  for (int i = 0; i < (nightly_run() ? 5'000 : 300); ++i) {
    bench.renew();
    Status said[kWorld];
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank)
      threads.emplace_back([&, rank] {
        while (!go) {
        }
        for (int k = 0; k < 20 && said[rank].ok(); ++k)
          said[rank] = bench.seat(rank).exchange({}, {}, {"zero_step", "vote", 20'000, true});
      });
    Failure cause;
    cause.code = ZERO_ERR_ABORTED;
    cause.text = "enough";
    go = true;
    spin_until(now_ns() + i % 20 * 500);
    bench.seat(i % kWorld).abort(cause);
    for (std::thread& thread : threads) thread.join();
    for (int r = 0; r < kWorld; ++r) {
      EXPECT_EQ(said[r].code(), said[0].code());
      EXPECT_EQ(said[r].text(), said[r].ok() ? "" : "enough");
      EXPECT_EQ(bench.seat(r).failure().text, "enough");
    }
    bench.end();
  }
}

/// A deadline that loses to the last arrival must not leave a cause that a later failure would
/// show.
TEST(Exchange, the_cause_of_a_failure_is_its_own) {
  static std::atomic<bool> blamed, committed;
  blamed = committed = false;
  Bench bench(2);
  bench.renew();
  auto watched = std::make_unique<Watched>([](const char* point) {
    if (std::string_view(point) != "exchange.blamed") return;
    blamed = true;
    while (!committed) usleep(100);
  });
  std::thread other([&] {
    while (!blamed) usleep(100);
    EXPECT_TRUE(bench.seat(1).exchange({}, {}, {"zero_step", "vote", 20'000, true}).ok());
    committed = true;
  });
  EXPECT_TRUE(bench.seat(0).exchange({}, {}, {"zero_step", "vote", 1, true}).ok());
  other.join();
  watched.reset();
  EXPECT_FALSE(bench.seat(0).aborted());

  Failure cause;
  cause.code = ZERO_ERR_ABORTED;
  cause.rank = 1;
  cause.text = "the first";
  bench.seat(0).abort(cause);
  cause.text = "the second";
  bench.seat(1).abort(cause);
  bench.seat(0).abort(cause);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(bench.seat(r).failure().text, "the first");
    EXPECT_EQ(outcome(bench.seat(r).exchange({}, {}, {"zero_step", "vote", 1, true})),
              "ZERO_ERR_ABORTED: the first");
  }
  bench.end();
}

/// Returns the result of both ranks in their second call. Rank 1 is late for its second vote
/// (`enters`) or for the call, until rank 0 has given up.
std::string come_too_late(const CommOptions& options, bool enters) {
  const Clock clock;
  const std::string name = unique_name();
  std::atomic<int> waiting{1};
  const Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const auto be_late = [&] { Clock::run([&] { return waiting.load(); }); };
    const Seat seat = join(name, rank, 2, options);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1 && !enters) be_late();
    if (rank == 1 && enters) Clock::pass(350, 1);  // longer than timeout_ms, but not late
    Result<Call> call = seat->begin(Operation::step);
    if (!call.ok()) return outcome(call.failure());
    std::string said = outcome(call->vote("first", {}));
    if (rank == 1 && enters) be_late();
    if (said == "ok") said = outcome(call->vote("second", {}));
    waiting = 0;
    return said;
  });
  EXPECT_EQ(results[0], results[1]);
  return results[0];
}

TEST(Exchange, a_rank_that_does_not_enter_is_late_after_late_ms_and_one_inside_after_timeout_ms) {
  EXPECT_TRUE(contains(come_too_late(limits(150, 600), true),
                       "ZERO_ERR_TIMEOUT: zero_step: second: rank 1 (process ",
                       "made no progress for 150 ms"));
  EXPECT_TRUE(contains(come_too_late(limits(100, 300), false), "did not arrive within 300 ms",
                       "last seen in zero_step: second"));
}

TEST(Exchange, a_rank_that_works_on_is_waited_for) {
  const Clock clock;
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2, limits(200, 200));
    Result<Call> call = seat->begin(Operation::step);
    EXPECT_EQ(outcome(call->vote("first", {})), "ok");
    for (int i = 0; i < 8 && rank == 1; ++i) {
      Clock::pass(100, 1);
      call->progress();
    }
    return outcome(call->vote("second", {}));
  });
  EXPECT_EQ(results, Ranks({"ok", "ok"}));
}

TEST(Exchange, the_log_says_after_10_seconds_for_whom_it_waits) {
  const Clock clock;
  static std::string logged;
  set_log([](void*, int32_t, const char* message) { logged += message; }, nullptr,
          ZERO_LOG_WARNING);
  const std::string name = unique_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    if (rank == 1) Clock::pass(10'100, 1);
    return step(seat);
  });
  set_log(nullptr, nullptr, 0);
  EXPECT_TRUE(
      contains(logged, "zero_step: first: rank 0 has been waiting for 10 s for rank 1 (process "));
}

// ---- Aborts and goodbyes.

TEST(Exchange, an_abort_from_another_thread_ends_a_wait_at_once) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const Clock clock;
    const std::string name = unique_name();
    const SharedMemory memory(4096);
    auto* const told = memory.as<std::atomic<int>>();
    const Ranks results = run_sound_ranks(kind, 3, [&](int rank) {
      const Seat seat = join(name, rank, 3);
      EXPECT_EQ(step(seat), "ok");
      if (rank != 1) {
        const std::string said = step(seat);
        ++*told;
        return said;
      }
      Clock::pass(50, 2);
      std::thread([&] {
        Failure cause;
        cause.code = ZERO_ERR_ABORTED;
        cause.rank = 1;
        cause.text = "no more";
        seat->abort(cause);
      }).join();
      EXPECT_TRUE(seat->aborted());
      while (*told < 2) usleep(1'000);  // it keeps its seat: only the abort ends their wait
      return step(seat);
    });
    EXPECT_EQ(results, Ranks(3, "ZERO_ERR_ABORTED: no more"));
  }
}

TEST(Exchange, a_rank_that_frees_its_comm_is_named) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const std::string name = unique_name();
    const Ranks results = run_sound_ranks(kind, 3, [&](int rank) -> std::string {
      const Seat seat = join(name, rank, 3);
      EXPECT_EQ(step(seat), "ok");
      return rank == 2 ? "gone" : step(seat);
    });
    EXPECT_EQ(results[0], "ZERO_ERR_DESYNC: zero_step: first: rank 2 has freed its comm");
    EXPECT_EQ(results[1], results[0]);
  }
}

TEST(Exchange, a_rank_that_dies_after_it_freed_a_comm_did_not_die_in_that_one) {
  const std::string one = unique_name();
  const std::string other = unique_name();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 2, [&](int rank) -> std::string {
    Seat first = join(one, rank, 2);
    const Seat second = join(other, rank, 2);
    EXPECT_EQ(step(first), "ok");
    if (rank == 1) {
      first = nullptr;
      die();
    }
    EXPECT_TRUE(contains(step(second), "ZERO_ERR_PEER_DEAD: zero_step: first: rank 1 (process "));
    EXPECT_EQ(step(first), "ZERO_ERR_DESYNC: zero_step: first: rank 1 has freed its comm");
    return "";
  });
  for_each_survivor(ends, 1, [](int, const std::string&) {});
}

/// Freeing a seat after the last exchange is not a failure for ranks that still read it.
TEST(Exchange, seats_freed_after_the_last_exchange_are_no_failure) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    for (int i = 0; i < 30; ++i) {
      const std::string name = unique_name();
      EXPECT_EQ(run_sound_ranks(kind, 3, [&](int rank) { return step(join(name, rank, 3)); }),
                Ranks(3, "ok"));
    }
  }
}

// ---- Several comms, several threads.

TEST(Exchange, comms_of_one_process_fail_apart) {
  const Clock clock;
  const std::string one = unique_name();
  const std::string other = unique_name();
  const SharedMemory memory(4096);
  auto* const told = memory.as<std::atomic<int>>();
  run_sound_ranks(RankKind::processes, 2, [&](int rank) {
    const Seat first = join(one, rank, 2, limits(150, 150));
    const Seat second = join(other, 1 - rank, 2);
    EXPECT_EQ(step(first), "ok");
    EXPECT_EQ(step(second), "ok");
    if (rank == 1) Clock::run([&] { return 1 - *told; });
    EXPECT_TRUE(contains(step(first), "ZERO_ERR_TIMEOUT"));
    *told = 1;
    EXPECT_FALSE(second->aborted());
    EXPECT_EQ(step(second), "ok");
    return "";
  });
}

TEST(Exchange, a_death_breaks_every_comm_of_the_dead) {
  const std::string one = unique_name();
  const std::string other = unique_name();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
    const Seat first = join(one, rank, 3);
    const Seat second = rank == 0 ? nullptr : join(other, rank - 1, 2);
    EXPECT_EQ(step(first), "ok");
    if (rank == 2) die();
    EXPECT_TRUE(contains(step(first), "ZERO_ERR_PEER_DEAD: zero_step: first: rank 2 (process "));
    if (!second) return "";
    EXPECT_TRUE(contains(step(second), "ZERO_ERR_PEER_DEAD: zero_step: first: rank 1 (process "));
    return "";
  });
  for_each_survivor(ends, 2, [](int, const std::string&) {});
}

TEST(Exchange, two_processes_of_two_threads_are_one_group) {
  for (const bool death : {false, true}) {
    const std::string name = unique_name();
    const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 2, [&](int process) {
      Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int thread) {
        const int rank = 2 * thread + process;
        const Seat seat = join(name, rank, 4);
        for (int i = 0; i < 300; ++i) {
          Result<Call> call = seat->begin(Operation::barrier);
          if (!call.ok()) return outcome(call.failure());
          const Result<std::vector<int>> all = call->exchange("ranks", i * 10 + rank);
          if (!all.ok()) return outcome(all.failure());
          for (int r = 0; r < 4; ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], i * 10 + r);
          if (death && process == 1 && thread == 1 && i == 200) die();
        }
        return std::string("ok");
      });
      EXPECT_EQ(results[0], results[1]);
      return results[0];
    });
    EXPECT_TRUE(ends[0].returned && ends[0].exit_status == 0);
    if (death) {
      EXPECT_TRUE(contains(ends[0].result,
                           "ZERO_ERR_PEER_DEAD: zero_comm_barrier: ranks: rank 1 (process "));
    } else {
      EXPECT_EQ(ends[0].result, "ok");
      EXPECT_EQ(ends[1].result, "ok");
    }
  }
}

bool slow = false;

/// Data that a rank reads late must not be overwritten before that.
TEST(Exchange, a_slow_reader_reads_what_was_sent) {
  const std::string name = unique_name();
  run_sound_ranks(RankKind::processes, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    const Watched watched([](const char* point) {
      const std::string_view at(point);
      if (slow && (at == "exchange.decided" || at == "exchange.read")) usleep(2'000);
    });
    slow = rank == 1;
    Result<Call> call = seat->begin(Operation::broadcast);
    for (int i = 0; i < 20; ++i) {
      const std::vector<int> all = *call->exchange("records", 100 * i + rank);
      EXPECT_EQ(all, std::vector<int>({100 * i, 100 * i + 1}));
    }
    std::vector<uint32_t> data(size_t{1} << 20);
    for (size_t i = 0; i < data.size(); ++i) data[i] = rank == 0 ? static_cast<uint32_t>(i) : 0;
    EXPECT_EQ(outcome(call->broadcast("data", std::as_writable_bytes(std::span(data)), 0)), "ok");
    size_t wrong = 0;
    for (size_t i = 0; i < data.size(); ++i) wrong += data[i] != i;
    EXPECT_EQ(wrong, 0u);
    return "";
  });
}

TEST(Exchange, large_broadcasts_from_changing_roots_arrive_whole) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const std::string name = unique_name();
    run_sound_ranks(kind, 3, [&](int rank) {
      const Seat seat = join(name, rank, 3);
      for (int i = 0; i < 12; ++i) {
        const int root = i * 5 % 3;
        const size_t bytes = size_t{1} << (i * 2 % 23);
        std::vector<unsigned char> data(bytes);
        for (size_t b = 0; b < bytes; ++b)
          data[b] = rank == root
                        ? static_cast<unsigned char>(b * 31 + b / 4096 + static_cast<size_t>(i))
                        : 0;
        Result<Call> call = seat->begin(Operation::broadcast);
        EXPECT_EQ(outcome(call->broadcast("data", std::as_writable_bytes(std::span(data)), root)),
                  "ok");
        size_t wrong = 0;
        for (size_t b = 0; b < bytes; ++b)
          wrong +=
              data[b] != static_cast<unsigned char>(b * 31 + b / 4096 + static_cast<size_t>(i));
        EXPECT_EQ(wrong, 0u) << bytes << " bytes";
      }
      return "";
    });
  }
}

// ---- Children.

TEST(Split, a_rank_that_cannot_take_its_seat_is_told_to_all_at_once) {
  for (int victim = 0; victim < 3; ++victim) {
    const Clock clock(10'000);  // the rendezvous has 20 s
    const std::string name = unique_name();
    const Ranks results = run_sound_ranks(RankKind::processes, 4, [&](int rank) {
      const Seat seat = join(name, rank, 4);
      if (rank == victim)
        replace_call(&SystemCalls::socket, [](int, int, int) {
          errno = EMFILE;
          return -1;
        });
      std::string said;
      {
        Result<Call> call = seat->begin(Operation::split);
        said = outcome(call->split(rank == 3 ? 1 : 0, rank).failure());
      }
      EXPECT_EQ(step(seat), "ok");  // the parent still works
      return said;
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& said = results[static_cast<size_t>(rank)];
      const std::string front = rank == victim ? "ZERO_ERR_SYSTEM: "
                                               : text("ZERO_ERR_PEER: rank ", victim,
                                                      " in zero_comm_split: ZERO_ERR_SYSTEM: ");
      EXPECT_EQ(said.substr(0, front.size()), front);
      EXPECT_TRUE(contains(said, "EMFILE"));
    }
  }
}

std::atomic<bool>* gave_up = nullptr;

TEST(Split, ranks_that_wait_in_a_child_are_not_called_late) {
  const Clock clock;
  const SharedMemory memory(4096);
  gave_up = memory.as<std::atomic<bool>>();
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::processes, 4, [&](int rank) {
    const Seat seat = join(name, rank, 4, limits(500, 20'000));
    if (rank == 1)
      replace_call(&SystemCalls::connect, [](int fd, const sockaddr* address, socklen_t bytes) {
        Clock::run([] { return *gave_up ? 0 : 3; });
        return real_system_calls().connect(fd, address, bytes);
      });
    Result<Call> call = seat->begin(Operation::split);
    std::string said = outcome(call->split(rank == 3 ? 1 : 0, rank).failure());
    if (rank == 3) *gave_up = true;
    return said;
  });
  EXPECT_TRUE(contains(results[3], "ZERO_ERR_TIMEOUT: zero_comm_split: seated: rank 1 (process "));
  EXPECT_FALSE(contains(results[3], "rank 0 (") || contains(results[3], "rank 2 ("));
}

TEST(Split, a_rank_that_dies_at_any_point_of_it_ends_it_for_the_parent) {
  const auto split = [](const Seat& seat, int rank) {
    Result<Call> call = seat->begin(Operation::split);
    if (!call.ok()) return outcome(call.failure());
    return outcome(call->split(rank == 2 ? 1 : 0, rank).failure());
  };
  const std::string counted = unique_name();
  const PointsOfRanks points = points_of_ranks(3, [&](int rank) {
    const Seat seat = join(counted, rank, 3);
    watch_points();
    return split(seat, rank);
  });
  for_each_victim(points, nightly_run() ? 1 : 5, [&](const Victim& victim) {
    const std::string name = unique_name();
    const std::vector<RankEnd> ends = run_struck_ranks(3, [&](int rank) {
      const Seat seat = join(name, rank, 3);
      if (rank == victim.rank) watch_points(victim.point, die);
      return split(seat, rank);
    });
    expect_one_answer(ends, victim.rank, "ZERO_ERR_PEER_DEAD");
    expect_told_at_once(ends, victim.rank);
  });
}

}  // namespace
}  // namespace zero::test
