// SPDX-License-Identifier: Apache-2.0
// A rank of several hosts is killed or stopped at every numbered point of a whole training run. It
// may be a rank of a host, a leader between hosts, or the root of their tree. The others name it.
// Hosts are simulated; tests/cluster tests a real MPI.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <vector>

#include "api/handles.h"
#include "fault/struck_training.h"
#include "support/hosts_ranks.h"
#include "support/nightly.h"
#include "support/optim.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

constexpr int kRanks = 4;                                  // on two hosts
constexpr int64_t kOnItsHostMs = 100, kElsewhereMs = 500;  // until the others know of a death
constexpr int64_t kBehindDeadlineMs = 500;                 // the same, after a stop

class HostsFaults : public StruckTraining {
 protected:
  /// Strikes each rank of `hosts` hosts, with the same number of ranks each, at every such point.
  template <class Check>
  void strike_each(int hosts, void (*blow)(), size_t stride, const Check& check,
                   Points points = Points::numbered) {
    hosts_ = hosts;
    const int world = hosts * hosts;
    for_each_victim(points_of(world, From::joined, points), stride, [&](const Victim& victim) {
      Strike how{victim.rank, victim.point, blow, From::joined};
      how.points = points;
      const auto ends = run(world, how);
      for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
        if (result == "done") return;  // it no longer needed the victim
        EXPECT_TRUE(contains(result, text("rank ", victim.rank)));
        EXPECT_EQ(told->rank[rank], victim.rank) << result;
        EXPECT_TRUE(result.rfind("save|", 0) != 0 || told->step[rank] > 0) << result;
        check(rank, rank % hosts == victim.rank % hosts, result);
      });
      expect_alike_or_in_question(ends, victim.rank);
      expect_little_left();
      clean();
    });
  }

  void stop_all(const Victim& late) {
    strike = {late.rank, late.point, be_late, From::joined};
    for (const std::string& said : run_stopped_job(kRanks, make_run(kRanks)))
      EXPECT_EQ(said, "done");
    clean();
  }

  /// If a rank reports that the last step took place on all ranks or on none, their parameters are
  /// the same.
  static void expect_alike_or_in_question(const std::vector<RankEnd>& ends, int victim) {
    bool sure = false;
    std::set<uint64_t> params;
    std::string said;
    for_each_survivor(ends, victim, [&](int rank, const std::string& result) {
      if (result == "done" || result.rfind("step|", 0) != 0) return;
      sure = sure || told->consistent[rank] != 0;
      params.insert(told->params[rank]);
      said += text("\n", rank, ": ", told->consistent[rank], " ", told->params[rank], " ", result);
    });
    EXPECT_TRUE(!sure || params.size() == 1) << said;
  }

  Join prepare_join(int world, const std::string& name) override {
    const auto ranks = std::make_shared<HostsRanks>(world, hosts_);
    return [=](int rank, int64_t timeout_ms, zero_comm** comm) {
      auto joined = ranks->join(rank, name, {.timeout_ms = timeout_ms, .late_ms = timeout_ms});
      if (joined.ok()) *comm = api::add_handle(std::move(*joined));
      return joined.failure().code();
    };
  }

 private:
  int hosts_ = 2;
};

void expect_death(int rank, bool on_its_host, const std::string& result) {
  EXPECT_TRUE(contains(result, "|ZERO_ERR_PEER_DEAD|"));
  EXPECT_LE(Clock::slept_ms(rank), on_its_host ? kOnItsHostMs : kElsewhereMs) << result;
}

void expect_lateness(int rank, bool, const std::string& result) {
  EXPECT_TRUE(contains(result, "|ZERO_ERR_TIMEOUT|"));
  EXPECT_LE(told->at_ms[rank] - struck_ms(), kDeadlineMs + kBehindDeadlineMs) << result;
}

TEST_F(HostsFaults, a_rank_killed_at_any_point_is_named_by_all_others_of_all_hosts_at_once) {
  strike_each(2, die, nightly_run() ? 1 : 149, expect_death);
}

TEST_F(HostsFaults, one_that_has_forked_workers_is_named_as_soon) {
  strike_each(2, die_with_workers, nightly_run() ? 11 : 599, expect_death);
}

TEST_F(HostsFaults, a_rank_stopped_at_any_point_is_named_at_the_deadline_on_all_hosts) {
  strike_each(2, stop, nightly_run() ? 1 : 211, expect_lateness);
}

TEST_F(HostsFaults, a_call_that_takes_longer_than_the_deadline_is_its_ranks_lateness_on_all_hosts) {
  strike_each(2, stop, nightly_run() ? 1 : 31, expect_lateness, Points::calls);
}

TEST_F(HostsFaults, one_of_three_hosts_is_killed_or_stopped) {
  if (!nightly_run()) GTEST_SKIP() << "9 ranks, at thousands of points";
  strike_each(3, die, 7, expect_death);
  strike_each(3, stop, 7, expect_lateness);
}

TEST_F(HostsFaults, a_job_that_is_stopped_as_a_whole_goes_on_whoever_was_waited_for) {
  for_each_victim(points_of(kRanks, From::joined), nightly_run() ? 11 : 499,
                  [&](const Victim& late) { stop_all(late); });
}

/// A rank dies where programs spend most of their time: before a step that is like the last one.
TEST(HostsDeaths, a_death_between_two_steps_leaves_parameters_consistent_on_all_hosts) {
  for (const int victim : {0, 1, kRanks - 1}) {
    const HostsRanks ranks(kRanks, 2);
    const auto ends = run_ranks(RankKind::processes, kRanks, [&, name = unique_name()](int rank) {
      auto joined = ranks.join(rank, name, {.timeout_ms = 20'000});
      if (!joined.ok()) return joined.failure().text();
      zero_comm* const comm = api::add_handle(std::move(*joined));
      std::vector<float> data(10'000, 1), grad(data);
      Optim optim(comm);
      const auto size = static_cast<int64_t>(data.size());
      optim.add(parameter("w", size, data.data(), grad.data()));
      for (int step = 0; step < 4; step++) EXPECT_OK(optim.step());
      if (rank == victim) {
        usleep(50'000);  // by then the others have arrived
        kill(getpid(), SIGKILL);
      }
      EXPECT_EQ(optim.step(), ZERO_ERR_PEER_DEAD);
      auto failure = initialized<zero_failure>();
      EXPECT_OK(zero_comm_failure(comm, &failure));
      return text(failure.params_consistent);
    });
    for_each_survivor(ends, victim,
                      [](int, const std::string& consistent) { EXPECT_EQ(consistent, "1"); });
  }
}

// ---- Ranks that are threads. A thread sleeps instead of being stopped.

constexpr int32_t kThreads = 64;
// Before a rank sleeps, the ranks look at the clock often, and each look takes time.
constexpr int64_t kLongDeadlineMs = 2'000;

thread_local int points_left = -1;  // until this thread falls asleep
std::atomic<int> points_passed;     // by rank 0
thread_local bool is_first = false;
std::atomic<bool> asleep, all_told;
std::atomic<int64_t> asleep_ms;

void pass_or_sleep(const char*) {
  if (is_first) points_passed++;
  if (points_left < 0 || points_left-- > 0) return;
  asleep_ms = now_ms();
  asleep = true;
  while (!all_told) usleep(1000);
}

Status live(const std::shared_ptr<Comm>& seat, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    Call call = ZERO_TRY(seat->begin(Operation::step, 1));
    ZERO_TRY(call.vote("ready", {}));
    ZERO_TRY(call.gather("names", text(seat->rank())).status());
    std::byte data[100'000] = {};
    ZERO_TRY(call.broadcast("data", data, seat->world() - 1));
  }
  return {};
}

/// Checks that all others name the rank that sleeps from its n-th point on; n < 0: none sleeps.
/// Returns the number of points.
int fall_asleep(int32_t hosts, int32_t sleeper, int point) {
  const Clock clock;
  const ReplacedCall reached(&SystemCalls::reached, pass_or_sleep);
  const HostsRanks ranks(kThreads, hosts);
  const std::string name = unique_name();
  asleep = all_told = false;
  points_passed = 0;
  std::atomic<int> left{kThreads - 1};
  // A hop from rank to rank may take two steps, because each rank looks at the clock twice before
  // it reads.
  constexpr int64_t kHopMs = 20;
  const std::jthread time([&] {
    while (!asleep && left >= 0) usleep(1000);
    Clock::run([&] { return left == kThreads - 1 ? left.load() : 0; });
    Clock::run([&] { return left.load(); }, kHopMs);
  });
  run_sound_ranks(RankKind::threads, kThreads, [&](int rank) {
    const auto seat =
        made(ranks.join(rank, name, {.timeout_ms = kLongDeadlineMs, .late_ms = kLongDeadlineMs}));
    EXPECT_EQ(outcome(live(seat, 1)), "ok");
    if (point < 0) {
      is_first = rank == 0;
      EXPECT_EQ(outcome(live(seat, 1)), "ok");
      is_first = false;
      return left -= 2, std::string();
    }
    if (rank == sleeper) points_left = point;
    const Status status = live(seat, 1000);
    if (rank == sleeper) return std::string();
    EXPECT_EQ(status.code(), ZERO_ERR_TIMEOUT) << status.text();
    EXPECT_EQ(seat->failure().rank, sleeper) << rank << ": " << status.text();
    EXPECT_LE(now_ms() - asleep_ms, kLongDeadlineMs + kBehindDeadlineMs);
    if (--left == 0) all_told = true;
    while (!all_told) usleep(1000);
    return std::string();
  });
  return points_passed;
}

TEST(ThreadsOnHosts, a_leaf_a_leader_an_inner_node_or_the_root_that_sleeps_is_named_by_63_others) {
  const struct {
    int32_t hosts, rank;
  } sleepers[] = {{32, 1}, {32, 0}, {8, 63}, {32, 20}, {32, 33}, {8, 0}, {8, 1}};
  const int points = fall_asleep(8, 0, -1);
  EXPECT_GT(points, 10);
  for (const auto& [hosts, rank] : std::span(sleepers).first(nightly_run() ? 7 : 1)) {
    const int stride = nightly_run() ? 1 : points;
    for (int point = nightly_run() ? 0 : 3 * rank % points; point < points; point += stride) {
      SCOPED_TRACE(text("rank ", rank, " on ", hosts, " hosts sleeps at its point ", point));
      count_trial();
      fall_asleep(hosts, rank, point);
      if (HasFailure()) return;
    }
  }
}

TEST(ThreadsOnHosts, a_leader_that_leaves_a_broken_comm_first_tells_the_other_hosts_why) {
  const HostsRanks ranks(4, 2);
  const std::string name = unique_name();
  std::atomic<bool> aborted = false;
  run_sound_ranks(RankKind::threads, 4, [&](int rank) {
    const auto seat = made(ranks.join(rank, name, {}));
    EXPECT_EQ(outcome(live(seat, 1)), "ok");
    if (rank == 2) seat->abort({ZERO_ERR_ABORTED, 2, 0, true, "zero_comm_abort", "enough"});
    if (rank == 2) aborted = true;
    while (rank == 0 && !aborted) usleep(1000);
    EXPECT_EQ(outcome(live(seat, 1000)), "ZERO_ERR_ABORTED: enough") << "rank " << rank;
    return std::string();
  });
}

}  // namespace
}  // namespace zero::test
