// SPDX-License-Identifier: Apache-2.0
// Exchanges end the same way on every rank, whoever dies, stops, aborts, leaves or is late, and
// whenever.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/control.h"
#include "comm/local/rendezvous.h"
#include "support/points.h"
#include "support/ranks.h"

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

std::string outcome(const Status& status) {
  return status.ok() ? "ok" : text(code_name(status.code()), ": ", status.text());
}

/// One call with two votes, so that a rank can fail at its entry and inside it.
std::string step(const Seat& seat) {
  Result<Call> call = seat->begin(Operation::step);
  if (!call.ok()) return outcome(call.failure());
  const Status first = call->vote("first", {});
  if (!first.ok()) return outcome(first);
  return outcome(call->vote("second", {}));
}

// ---- Ranks that die or stop at every point.

/// What one rank lives through: each stage ends on all ranks alike.
std::string live(const Seat& seat) {
  std::string said;
  for (int i = 0; i < 2; ++i) {
    const std::string one = step(seat);
    said += one + "\n";
    if (one != "ok") break;
  }
  return said;
}

std::vector<std::vector<Point>> points_of(int world) {
  const std::string name = unique_name();
  const auto points = points_of_ranks(world, [&](int rank) {
    const Seat seat = join(name, rank, world);
    watch_points();
    return live(seat);
  });
  for (const auto& of_rank : points) EXPECT_GE(of_rank.size(), 16u);
  return points;
}

/// All ranks say the same; what they say of a failure has `parts`.
void expect_one_answer(const std::vector<RankEnd>& ends, int except,
                       std::initializer_list<std::string> parts) {
  std::optional<std::string> first;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    const RankEnd& end = ends[rank];
    if (static_cast<int>(rank) == except) continue;
    ASSERT_TRUE(end.returned && end.exit_status == 0)
        << "rank " << rank << (end.hung ? " hung" : "") << ", signal " << end.signal;
    if (!first) first = end.result;
    EXPECT_EQ(end.result, *first);
    if (!contains(end.result, "ZERO_ERR")) continue;
    for (const std::string& part : parts) EXPECT_TRUE(contains(end.result, part)) << end.result;
  }
}

TEST(Exchange, a_rank_that_dies_at_any_point_ends_it_alike_for_all) {
  std::vector<int64_t> waits;
  for (int world = 2; world <= 4; ++world) {
    const auto points = points_of(world);
    for (int victim = 0; victim < world; ++victim) {
      for (const Point& point : points[static_cast<size_t>(victim)]) {
        SCOPED_TRACE(text("world ", world, ", rank ", victim, " dies at ", point.name, " ",
                          point.occurrence));
        const std::string name = unique_name();
        SharedMemory memory(sizeof(Toll));
        toll = memory.as<Toll>();
        const std::vector<RankEnd> ends = run_ranks(RankKind::processes, world, [&](int rank) {
          const Seat seat = join(name, rank, world);
          if (rank == victim) watch_points(point, die_noticed);
          const std::string said = live(seat);
          toll->back_ns[rank] = now_ns();
          return said;
        });
        expect_one_answer(ends, victim,
                          {"ZERO_ERR_PEER_DEAD", text("rank ", victim, " (process "), " died"});
        for (int rank = 0; rank < world; ++rank) {
          if (rank == victim || !contains(ends[static_cast<size_t>(rank)].result, "ZERO_ERR"))
            continue;
          const int64_t wait = toll->back_ns[rank] - toll->dead_ns;
          EXPECT_LT(wait, 1'000'000'000);
          waits.push_back(wait);
        }
      }
    }
  }
  std::sort(waits.begin(), waits.end());
  ASSERT_GT(waits.size(), 50u);
  // A machine that is busy with something else may be late once in a while.
  EXPECT_LE(waits[waits.size() * 9 / 10], 100'000'000);
  std::printf(
      "%zu survivors told of a death after %.2f ms (median), %.2f ms (99%%), %.2f ms (most)\n",
      waits.size(), static_cast<double>(waits[waits.size() / 2]) / 1e6,
      static_cast<double>(waits[waits.size() * 99 / 100]) / 1e6,
      static_cast<double>(waits.back()) / 1e6);
}

TEST(Exchange, a_rank_that_exits_by_itself_has_ended_and_zero_join_is_named) {
  const std::string name = unique_name();
  const auto ends = run_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = join(name, rank, 3);
    if (rank == 1) _exit(0);
    return live(seat);
  });
  expect_one_answer(ends, 1, {"ZERO_ERR_PEER_DEAD", "rank 1 (process ", " ended", "zero_join"});
}

TEST(Exchange, a_rank_that_stops_at_any_point_ends_it_alike_for_all_and_itself) {
  for (int world = 2; world <= (nightly_run() ? 4 : 3); ++world) {
    const auto points = points_of(world);
    for (int victim = 0; victim < world; ++victim) {
      for (size_t i = 0; i < points[static_cast<size_t>(victim)].size(); ++i) {
        if (world == 3 && !nightly_run() && i % 3 != static_cast<size_t>(victim)) continue;
        const Point& point = points[static_cast<size_t>(victim)][i];
        SCOPED_TRACE(text("world ", world, ", rank ", victim, " stops at ", point.name, " ",
                          point.occurrence));
        const std::string name = unique_name();
        SharedMemory memory(4096);
        volatile pid_t* const stopped = memory.as<pid_t>();
        auto* const done = reinterpret_cast<std::atomic<int>*>(memory.data() + 64);
        const std::vector<RankEnd> ends = run_ranks(RankKind::processes, world, [&](int rank) {
          const Seat seat = join(name, rank, world, limits(200, 200));
          if (rank == victim) {
            *stopped = getpid();
            watch_points(point, stop);
          }
          const std::string said = live(seat);
          if (rank == victim) {
            *stopped = 0;
          } else {
            done->fetch_add(1);
            while (done->load() < world - 1) usleep(1'000);
            while (*stopped != 0) {
              kill(*stopped, SIGCONT);
              usleep(20'000);
            }
          }
          return said;
        });
        expect_one_answer(
            ends, -1,
            {"ZERO_ERR_TIMEOUT", text("rank ", victim, " (process "), "stopped", "200 ms"});
      }
    }
  }
}

/// A child of the dead rank lives on with all its descriptors: no socket will ever be closed.
TEST(Exchange, a_living_child_does_not_hide_a_death) {
  const std::string name = unique_name();
  SharedMemory memory(sizeof(Toll));
  toll = memory.as<Toll>();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) {
      leave_child_behind();
      die_noticed();
    }
    const std::string said = step(seat);
    toll->back_ns[rank] = now_ns();
    return said;
  });
  expect_one_answer(ends, 1, {"ZERO_ERR_PEER_DEAD", "rank 1 (process "});
  EXPECT_LT(toll->back_ns[0] - toll->dead_ns, 1'000'000'000);
}

/// A death must not wait to be noticed until a slow third rank has come.
TEST(Exchange, a_death_is_told_while_another_rank_is_still_busy) {
  const std::string name = unique_name();
  SharedMemory memory(sizeof(Toll));
  toll = memory.as<Toll>();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = join(name, rank, 3);
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) watch_points({"exchange.arrived", 1}, die_noticed);
    if (rank == 2) usleep(1'500'000);
    const std::string said = step(seat);
    toll->back_ns[rank] = now_ns();
    return said;
  });
  expect_one_answer(ends, 1, {"ZERO_ERR_PEER_DEAD", "rank 1 (process "});
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR")) << ends[0].result;
  EXPECT_LT(toll->back_ns[0] - toll->dead_ns, 1'000'000'000);
}

TEST(Exchange, a_job_that_is_stopped_as_a_whole_goes_on_where_it_was) {
  const std::string name = unique_name();
  SharedMemory memory(4096);
  auto* const pids = reinterpret_cast<std::atomic<pid_t>*>(memory.data());
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
    if (rank == 2) {  // not a rank, but who stops them
      while (pids[0] == 0 || pids[1] == 0) usleep(1'000);
      usleep(100'000);
      for (const int signal : {SIGSTOP, SIGCONT}) {
        for (int r = 0; r < 2; ++r) kill(pids[r], signal);
        usleep(2'500'000);
      }
      return "ok";
    }
    const Seat seat = join(name, rank, 2, limits(1'200, 1'200));
    EXPECT_EQ(step(seat), "ok");
    pids[rank] = getpid();
    if (rank == 1) usleep(500'000);
    return step(seat);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.result, "ok");
}

// ---- The deadline.

/// Seats on one control segment without a rendezvous, so that each try can have its own.
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

/// The last rank arrives at the moment when the others' patience ends, a little earlier or later
/// from try to try: it steers towards the edge, where both ends are possible.
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

/// A deadline that loses to the last arrival must leave no cause behind that a later failure would
/// show.
TEST(Exchange, the_cause_of_a_failure_is_its_own) {
  static std::atomic<bool> blamed, committed;
  blamed = committed = false;
  static SystemCalls calls;
  calls = real_system_calls();
  calls.reached = [](const char* point) {
    if (std::string_view(point) != "exchange.blamed") return;
    blamed = true;
    while (!committed) usleep(100);
  };
  Bench bench(2);
  bench.renew();
  replace_system_calls(&calls);
  std::thread other([&] {
    while (!blamed) usleep(100);
    EXPECT_TRUE(bench.seat(1).exchange({}, {}, {"zero_step", "vote", 20'000, true}).ok());
    committed = true;
  });
  EXPECT_TRUE(bench.seat(0).exchange({}, {}, {"zero_step", "vote", 1, true}).ok());
  other.join();
  replace_system_calls(nullptr);
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

TEST(Exchange, a_rank_that_does_not_enter_is_late_after_late_ms_and_one_inside_after_timeout_ms) {
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2, limits(150, 600));
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) usleep(350'000);  // longer than timeout_ms, but not late
    {
      Result<Call> call = seat->begin(Operation::step);
      EXPECT_EQ(outcome(call->vote("first", {})), "ok");
      if (rank == 1) usleep(400'000);
      return outcome(call->vote("second", {}));
    }
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_TRUE(contains(results[0], "ZERO_ERR_TIMEOUT: zero_step: second: rank 1 (process "));
  EXPECT_TRUE(contains(results[0], "made no progress for 150 ms")) << results[0];

  const Ranks late = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2, limits(100, 300));
    EXPECT_EQ(step(seat), "ok");
    if (rank == 1) usleep(500'000);
    return step(seat);
  });
  EXPECT_EQ(late[0], late[1]);
  EXPECT_TRUE(contains(late[0], "did not come within 300 ms")) << late[0];
  EXPECT_TRUE(contains(late[0], "last seen in zero_step: second")) << late[0];
}

TEST(Exchange, a_rank_that_works_on_is_waited_for) {
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2, limits(200, 200));
    Result<Call> call = seat->begin(Operation::step);
    EXPECT_EQ(outcome(call->vote("first", {})), "ok");
    for (int i = 0; i < 40 && rank == 1; ++i) {
      usleep(20'000);
      call->progress();
    }
    return outcome(call->vote("second", {}));
  });
  EXPECT_EQ(results, Ranks({"ok", "ok"}));
}

TEST(Exchange, the_log_says_after_10_seconds_for_whom_it_waits) {
  if (!nightly_run()) GTEST_SKIP() << "takes 10 s; set ZERO_TEST_NIGHTLY";
  static std::string logged;
  set_log([](void*, int32_t, const char* message) { logged += message; }, nullptr,
          ZERO_LOG_WARNING);
  const std::string name = unique_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    if (rank == 1) usleep(10'500'000);
    return step(seat);
  });
  set_log(nullptr, nullptr, 0);
  EXPECT_TRUE(
      contains(logged, "zero_step: first: rank 0 has been waiting for 10 s for rank 1 (process "))
      << logged;
}

// ---- Aborts and goodbyes.

TEST(Exchange, an_abort_from_another_thread_ends_a_wait_at_once) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const std::string name = unique_name();
    SharedMemory memory(sizeof(Toll));
    Toll* const times = memory.as<Toll>();
    const Ranks results = run_sound_ranks(kind, 3, [&](int rank) {
      const Seat seat = join(name, rank, 3);
      EXPECT_EQ(step(seat), "ok");
      if (rank != 1) {
        const std::string said = step(seat);
        times->back_ns[rank] = now_ns();
        return said;
      }
      usleep(50'000);
      std::thread([&] {
        Failure cause;
        cause.code = ZERO_ERR_ABORTED;
        cause.rank = 1;
        cause.text = "no more";
        times->dead_ns = now_ns();
        seat->abort(cause);
      }).join();
      EXPECT_TRUE(seat->aborted());
      usleep(1'000'000);  // its seat stays, so that only the abort can have ended the others' wait
      return step(seat);
    });
    EXPECT_EQ(results, Ranks(3, "ZERO_ERR_ABORTED: no more"));
    for (const int rank : {0, 2}) EXPECT_LT(times->back_ns[rank] - times->dead_ns, 900'000'000);
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

/// The comm must outlive nobody: a seat that is freed at the end is no failure for those still
/// reading.
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
  const std::string one = unique_name();
  const std::string other = unique_name();
  run_sound_ranks(RankKind::processes, 2, [&](int rank) {
    const Seat first = join(one, rank, 2, limits(150, 150));
    const Seat second = join(other, 1 - rank, 2);
    EXPECT_EQ(step(first), "ok");
    EXPECT_EQ(step(second), "ok");
    if (rank == 1) usleep(400'000);
    EXPECT_TRUE(contains(step(first), "ZERO_ERR_TIMEOUT"));
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
  EXPECT_TRUE(ends[0].returned && ends[0].exit_status == 0);
  EXPECT_TRUE(ends[1].returned && ends[1].exit_status == 0);
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
                           "ZERO_ERR_PEER_DEAD: zero_comm_barrier: ranks: rank 1 (process "))
          << ends[0].result;
    } else {
      EXPECT_EQ(ends[0].result, "ok");
      EXPECT_EQ(ends[1].result, "ok");
    }
  }
}

/// What a rank reads late must not have been written anew meanwhile.
TEST(Exchange, a_slow_reader_reads_what_was_sent) {
  const std::string name = unique_name();
  run_sound_ranks(RankKind::processes, 2, [&](int rank) {
    const Seat seat = join(name, rank, 2);
    static SystemCalls slow;
    slow = real_system_calls();
    slow.reached = [](const char* point) {
      if (std::string_view(point) == "exchange.decided") usleep(2'000);
      if (std::string_view(point) == "exchange.read") usleep(2'000);
    };
    if (rank == 1) replace_system_calls(&slow);
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

/// Makes this process's calls of `Call` do what `stand_in` does.
template <auto Call, class Function>
void replace_call(Function* stand_in) {
  static SystemCalls calls;
  calls = real_system_calls();
  calls.*Call = stand_in;
  replace_system_calls(&calls);
}

TEST(Split, a_rank_that_cannot_take_its_seat_is_told_to_all_at_once) {
  for (int victim = 0; victim < 3; ++victim) {
    const std::string name = unique_name();
    const int64_t start = now_ms();
    const Ranks results = run_sound_ranks(RankKind::processes, 4, [&](int rank) {
      const Seat seat = join(name, rank, 4);
      if (rank == victim)
        replace_call<&SystemCalls::socket>(+[](int, int, int) {
          errno = EMFILE;
          return -1;
        });
      std::string said;
      {
        Result<Call> call = seat->begin(Operation::split);
        said = outcome(call->split(rank == 3 ? 1 : 0, rank).failure());
      }
      EXPECT_EQ(step(seat), "ok");  // the parent goes on
      return said;
    });
    EXPECT_LT(now_ms() - start, 10'000);  // the rendezvous has 20 s
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& said = results[static_cast<size_t>(rank)];
      const std::string front = rank == victim ? "ZERO_ERR_SYSTEM: "
                                               : text("ZERO_ERR_PEER: rank ", victim,
                                                      " in zero_comm_split: ZERO_ERR_SYSTEM: ");
      EXPECT_EQ(said.substr(0, front.size()), front);
      EXPECT_TRUE(contains(said, "EMFILE")) << said;
    }
  }
}

TEST(Split, ranks_that_wait_in_a_child_are_not_called_late) {
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::processes, 4, [&](int rank) {
    const Seat seat = join(name, rank, 4, limits(500, 20'000));
    if (rank == 1)
      replace_call<&SystemCalls::connect>(+[](int fd, const sockaddr* address, socklen_t bytes) {
        usleep(1'500'000);
        return real_system_calls().connect(fd, address, bytes);
      });
    Result<Call> call = seat->begin(Operation::split);
    return outcome(call->split(rank == 3 ? 1 : 0, rank).failure());
  });
  EXPECT_TRUE(contains(results[3], "ZERO_ERR_TIMEOUT: zero_comm_split: seated: rank 1 (process "))
      << results[3];
  EXPECT_FALSE(contains(results[3], "rank 0 (") || contains(results[3], "rank 2 (")) << results[3];
}

TEST(Split, a_rank_that_dies_at_any_point_of_it_ends_it_for_the_parent) {
  const int step_size = nightly_run() ? 1 : 5;
  const std::string counted = unique_name();
  SharedMemory count(4096);
  run_sound_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = join(counted, rank, 3);
    watch_points();
    Result<Call> call = seat->begin(Operation::split);
    const Result<Seat> child = call->split(rank == 2 ? 1 : 0, rank);
    count.as<int>()[rank] = static_cast<int>(passed_points().size());
    return outcome(child.failure());
  });
  for (int victim = 0; victim < 3; ++victim) {
    for (int n = 1 + victim; n <= count.as<int>()[victim]; n += step_size) {
      SCOPED_TRACE(text("rank ", victim, " dies at its point ", n));
      const std::string name = unique_name();
      SharedMemory memory(sizeof(Toll));
      toll = memory.as<Toll>();
      const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
        const Seat seat = join(name, rank, 3);
        if (rank == victim) {
          static int left;
          static SystemCalls calls;
          left = n;
          calls = real_system_calls();
          calls.reached = [](const char*) {
            if (--left == 0) die_noticed();
          };
          replace_system_calls(&calls);
        }
        Result<Call> call = seat->begin(Operation::split);
        if (!call.ok()) return outcome(call.failure());
        const Result<Seat> child = call->split(rank == 2 ? 1 : 0, rank);
        toll->back_ns[rank] = now_ns();
        return outcome(child.failure());
      });
      std::optional<std::string> first;
      for (int rank = 0; rank < 3; ++rank) {
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        if (rank == victim) continue;
        ASSERT_TRUE(end.returned && end.exit_status == 0)
            << "rank " << rank << (end.hung ? " hung" : "") << ", exit status " << end.exit_status;
        if (!first) first = end.result;
        EXPECT_EQ(end.result, *first);
        if (end.result != "ok") {
          EXPECT_TRUE(contains(end.result, "ZERO_ERR_PEER_DEAD")) << end.result;
          EXPECT_LT(toll->back_ns[rank] - toll->dead_ns, 1'000'000'000);
        }
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
