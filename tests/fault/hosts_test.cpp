// SPDX-License-Identifier: Apache-2.0
// A rank of several hosts is killed, or stopped, at every numbered point of a whole training run:
// of the ranks of a host, leaders between hosts, the root of their tree. The others say whom. Hosts
// are simulated: what is not shown is how a real MPI takes it (tests/cluster).
#include <set>

#include "api/handles.h"
#include "fault/struck_training.h"
#include "support/hosts_ranks.h"

namespace zero::test {
namespace {

constexpr int64_t kOnItsHostMs = 100, kElsewhereMs = 500;  // until the others know of a death
constexpr int64_t kBehindDeadlineMs = 500;                 // and of a stop

class HostsFaults : public StruckTraining {
 protected:
  /// At every such point of each rank of `hosts` with as many ranks each.
  template <class Check>
  void strike_each(int hosts, void (*blow)(), size_t stride, const Check& check) {
    hosts_ = hosts;
    const int world = hosts * hosts;
    for_each_victim(points_of(world, From::joined), stride, [&](const Victim& victim) {
      const auto ends = run(world, {victim.rank, victim.point, blow, From::joined});
      for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
        if (result == "done") return;  // it no longer needed the victim
        EXPECT_TRUE(contains(result, text("rank ", victim.rank)));
        EXPECT_EQ(told->rank[rank], victim.rank) << result;
        EXPECT_TRUE(result.rfind("save|", 0) != 0 || told->step[rank] > 0) << result;
        check(rank, rank % hosts == victim.rank % hosts, result);
      });
      expect_alike_or_in_question(ends, victim.rank);
      EXPECT_LE(directories_left(), 1);
      clean();
    });
  }

  /// If one says that the last step has happened on all ranks or on none, their parameters are the
  /// same.
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
  int hosts_ = 0;
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
  strike_each(2, die, nightly_run() ? 1 : 97, expect_death);
}

TEST_F(HostsFaults, a_rank_stopped_at_any_point_is_named_at_the_deadline_on_all_hosts) {
  strike_each(2, stop, nightly_run() ? 1 : 211, expect_lateness);
}

TEST_F(HostsFaults, one_of_three_hosts_is_killed_or_stopped) {
  if (!nightly_run()) GTEST_SKIP() << "9 ranks, at thousands of points";
  strike_each(3, die, 7, expect_death);
  strike_each(3, stop, 7, expect_lateness);
}

}  // namespace
}  // namespace zero::test
