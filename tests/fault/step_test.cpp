// SPDX-License-Identifier: Apache-2.0
// A rank is killed or stopped at every numbered point of a whole training run: rendezvous, arenas,
// registration, broadcasts, step, reduce, clip, save, load. The others return, name it, and leave
// nothing.
#include <signal.h>

#include "fault/struck_training.h"
#include "support/nightly.h"

namespace zero::test {
namespace {

constexpr int kMostWorld = 4;

bool is_forming(const std::string& result) { return result.rfind("create|", 0) == 0; }

/// Checks that a survivor's error names the victim and has the right code.
void expect_told(const std::string& result) {
  const std::string code = is_forming(result)      ? "|ZERO_ERR_RENDEZVOUS|"
                           : strike.action == stop ? "|ZERO_ERR_TIMEOUT|"
                                                   : "|ZERO_ERR_PEER_DEAD|";
  EXPECT_TRUE(contains(result, code, text("rank ", strike.rank)));
}

/// Checks that parameters are inconsistent only if the comm broke while a rank was publishing.
void expect_consistency(const std::string& result, int rank) {
  const std::string phase = told->phase[rank];
  const bool broadcasting = phase.rfind("zero_broadcast_params: ", 0) == 0;
  const bool loading = phase.rfind("zero_state_load: ", 0) == 0;
  const bool publishing = phase.rfind("zero_step: publish", 0) == 0 ||
                          (broadcasting && strike.point.name == "broadcast.param") ||
                          (loading && strike.point.name == "load.read");
  if ((broadcasting || loading) && !publishing) return;  // either is possible
  EXPECT_EQ(told->consistent[rank], publishing ? 0 : 1)
      << "broken in '" << phase << "': " << result;
}

class FaultTest : public StruckTraining {
 protected:
  /// Strikes each rank at every such point.
  void strike_each(int world, void (*blow)(), size_t stride) {
    for_each_victim(points_of(world), stride, [&](const Victim& victim) {
      const auto ends = run(world, {victim.rank, victim.point, blow});
      for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
        if (result == "done") return;  // it no longer needed the victim
        expect_told(result);
        if (is_forming(result)) return;
        expect_consistency(result, rank);
        EXPECT_LE(Clock::slept_ms(rank), 100) << result;
      });
      expect_little_left();
      EXPECT_EQ(sockets(), 0);
      clean();
    });
  }
};

TEST_F(FaultTest, a_rank_killed_at_any_point_is_named_by_all_others_at_once) {
  for (int world = 2; world <= kMostWorld; world++) strike_each(world, die, nightly_run() ? 1 : 7);
}

TEST_F(FaultTest, a_rank_that_has_forked_workers_leaves_as_little) {
  strike_each(3, die_with_workers, nightly_run() ? 1 : 67);
}

/// A point of a step, and whether ranks publish there, which they do after the last vote.
struct StepPoint {
  const char* name;
  bool publishing;
  bool done = false;  // the step is complete: the survivors fail in a later call
};

constexpr StepPoint kOnePass[] = {
    {"enter.begin", false},  {"enter.voted", false},   {"ready.before", false},
    {"ready.after", true},   {"apply.begin", true},    {"apply.done", true},
    {"publish.begin", true}, {"publish.pulled", true}, {"publish.done", false, true}};
constexpr StepPoint kClips[] = {
    {"enter.begin", false},  {"ready.before", false},      {"ready.after", false},
    {"gather.begin", false}, {"gather.reduced", false},    {"vote.before", false},
    {"vote.after", true},    {"apply.begin", true},        {"apply.done", true},
    {"publish.begin", true}, {"publish.done", false, true}};

constexpr StepPoint kHasNorms[] = {{"ready.after", true},
                                   {"apply.begin", true},
                                   {"trust.before", true},
                                   {"trust.after", true},
                                   {"publish.begin", true}};

constexpr StepPoint kOwnRule[] = {{"vote.after", false},   {"update.begin", false},
                                  {"update.done", false},  {"update.voted", true},
                                  {"apply.begin", true},   {"apply.done", true},
                                  {"publish.begin", true}, {"publish.done", false, true}};

std::vector<Point> points_named(std::span<const StepPoint> points) {
  std::vector<Point> named;
  for (const StepPoint& point : points) named.push_back({point.name, 1});
  return named;
}

TEST_F(FaultTest, a_death_tells_every_survivor_whether_parameters_were_being_published) {
  const struct {
    std::span<const StepPoint> points;
    double max_grad_norm;
    int32_t optimizer;
  } steps[] = {{kOnePass, 0, ZERO_OPTIMIZER_ADAMW},
               {kClips, 0.5, ZERO_OPTIMIZER_ADAMW},
               {kHasNorms, 0, ZERO_OPTIMIZER_LAMB},
               {kOwnRule, 0, ZERO_OPTIMIZER_CUSTOM}};
  for (int world = 2; world <= 3; world++) {
    for (const auto& step : steps) {
      for_each_victim(
          PointsOfRanks(static_cast<size_t>(world), points_named(step.points)), 1,
          [&](const Victim& victim) {
            const StepPoint& point = step.points[step.points.size() - victim.left];
            const auto ends = run(world, {victim.rank, victim.point, die, From::first_step,
                                          step.max_grad_norm, step.optimizer});
            EXPECT_EQ(ends[static_cast<size_t>(victim.rank)].signal, SIGKILL);
            for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
              EXPECT_EQ(result.rfind(point.done ? "reduce|" : "step|", 0), 0u) << result;
              EXPECT_EQ(told->consistent[rank], point.publishing ? 0 : 1) << result;
            });
            clean();
          });
    }
  }
}

TEST_F(FaultTest, a_copy_that_is_killed_is_named_by_ranks_of_all_instances) {
  PointsOfRanks points(4);
  for (const char* const name : {"gather.begin", "vote.before", "apply.begin", "apply.done",
                                 "publish.begin", "save.begin", "save.written", "load.read"})
    points[3].push_back({name, 1});
  for_each_victim(points, 1, [&](const Victim& victim) {
    Strike of{victim.rank, victim.point, die};
    of.max_grad_norm = 0.5;
    of.instances = 2;
    const auto ends = run(4, of);
    EXPECT_EQ(ends[3].signal, SIGKILL);
    for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
      expect_told(result);
      expect_consistency(result, rank);
    });
    expect_little_left();
    clean();
  });
}

TEST_F(FaultTest, a_rank_stopped_at_any_point_is_named_at_the_deadline) {
  for (int world = 2; world <= kMostWorld; world++) {
    for_each_victim(points_of(world), nightly_run() ? 1 : 127, [&](const Victim& victim) {
      const auto ends = run(world, {victim.rank, victim.point, stop});
      for_each_survivor(ends, -1, [&](int rank, const std::string& result) {
        if (result == "done" || rank == victim.rank) return;
        expect_told(result);
        if (is_forming(result)) return;
        EXPECT_GE(told->after_ms[rank], kDeadlineMs);
        EXPECT_LE(told->after_ms[rank], kDeadlineMs * 3 + 500);
      });
      clean();
    });
  }
}

/// A rank whose system call takes longer than anybody waits, and then succeeds, gets the same error
/// as the others.
TEST_F(FaultTest, a_call_that_takes_longer_than_the_deadline_is_its_ranks_lateness) {
  for_each_victim(points_of(3, From::beginning, Points::calls), nightly_run() ? 1 : 17,
                  [&](const Victim& victim) {
                    Strike how{victim.rank, victim.point, stop};
                    how.points = Points::calls;
                    const auto ends = run(3, how);
                    bool failed = false;
                    for_each_survivor(ends, victim.rank, [&](int, const std::string& result) {
                      if (result == "done") return;
                      failed = true;
                      expect_told(result);
                    });
                    const std::string& own = ends[static_cast<size_t>(victim.rank)].result;
                    EXPECT_TRUE(!failed || own != "done") << own;
                    expect_little_left();
                    clean();
                  });
}

}  // namespace
}  // namespace zero::test
