// SPDX-License-Identifier: Apache-2.0
// Ranks die while parameters change in the background: in a step that has begun, and in one that
// ends in the background.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/comms.h"
#include "support/nightly.h"
#include "support/optim.h"
#include "support/points.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 3;
constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f"};
constexpr size_t kParams = std::size(kNames);
constexpr int64_t kElements = 30'000;

/// Some parameters and gradients in arenas.
class Rank : public Optim {
 public:
  explicit Rank(zero_comm* comm)
      : Optim(comm, options_with([](zero_options& o) {
                o.overlap_gather = 1;
                o.bucket_bytes = 65536;
              })) {
    std::vector<zero_param> params;
    for (size_t i = 0; i < kParams; i++)
      params.push_back(parameter(kNames[i], kElements, data_.floats() + i * kElements, grad(i)));
    add(params);
  }
  ~Rank() { free(); }

  /// Returns the name and status of the first failed call, or "done".
  std::string train(bool waits = true) {
    for (int step = 0; step < 2; step++) {
      if (failed("begin", begin())) return said_;
      for (size_t i = kParams; i-- > 0;) {
        if (failed("ready", zero_grad_ready(optim(), static_cast<int64_t>(i), grad(i), nullptr)))
          return said_;
        usleep(500);
      }
      if (failed("step", Optim::step())) return said_;
      for (int64_t i = 0; waits && i < int64_t{kParams}; i++)
        if (failed("wait", zero_param_wait(optim(), i, nullptr))) return said_;
      if (waits && wait() != "done") return said_;
    }
    return "done";
  }

  /// Waits for the end of a step. Returns the same as train().
  std::string wait() {
    return failed("wait", zero_param_wait(optim(), ZERO_ALL_PARAMS, nullptr)) ? said_ : "done";
  }

 private:
  static constexpr size_t kBytes = kParams * kElements * sizeof(float);

  float* grad(size_t i) { return grads_.floats() + i * kElements; }

  bool failed(const char* call, zero_status status) {
    if (status == ZERO_OK) return false;
    said_ = std::string(call) + " " + zero_status_name(status) + " " + last();
    return true;
  }

  const Arena data_{comm(), kBytes, ZERO_MEMORY_SHARED}, grads_{comm(), kBytes};
  std::string said_;
};

/// Returns how one rank's training ended, and " consistent" or " torn", if it does `action` at
/// `point`.
std::string live(const Meeting& meeting, int rank, bool waits, const Point& point = {},
                 void (*action)() = nullptr) {
  zero_comm* const comm = meeting.join(rank);
  std::string said;
  {
    Rank self(comm);
    watch_points(point, action);
    said = self.train(waits);
  }
  auto failure = initialized<zero_failure>();
  EXPECT_OK(zero_comm_failure(comm, &failure));
  said += failure.params_consistent == 1 ? " consistent" : " torn";
  zero_comm_free(comm);
  return said;
}

/// Runs all ranks, of which `victim` dies at `point`.
std::vector<RankEnd> run(int victim, const Point& point, bool waits = true) {
  const Meeting meeting(CommKind::local, kWorld);
  return run_struck_ranks(kWorld, [&](int rank) {
    return live(meeting, rank, waits, point, rank == victim ? die : nullptr);
  });
}

TEST(OverlapFaults, a_rank_that_dies_while_parameters_change_is_named_and_they_are_in_question) {
  const struct {
    Point at;
    const char* call;  // the first call of the survivors that fails
  } deaths[] = {{{"early.update", 1}, "step"},  {{"early.updated", 1}, "step"},
                {{"apply.begin", 1}, "wait"},   {{"apply.done", 1}, "wait"},
                {{"publish.begin", 1}, "wait"}, {{"early.update", 6}, "step"},
                {{"apply.begin", 2}, "wait"}};
  for (const auto& death : deaths) {
    const bool early = death.at.name.rfind("early.", 0) == 0;
    for (int victim = 0; victim < kWorld; victim++) {
      const std::vector<RankEnd> ends = run(victim, death.at);
      SCOPED_TRACE(text("rank ", victim, " dies at ", death.at.name, " ", death.at.occurrence));
      if (ends[static_cast<size_t>(victim)].signal == 0) {
        // The call may update the rest of a step before the thread gets to it.
        EXPECT_TRUE(early) << "it did not die";
        continue;
      }
      for_each_survivor(ends, victim, [&](int, const std::string& said) {
        EXPECT_TRUE(contains(said, text(early ? "" : death.call, " ZERO_ERR_PEER_DEAD"),
                             text("rank ", victim), " torn"));
      });
    }
  }
}

TEST(OverlapFaults, a_death_in_the_background_that_nobody_waits_for_is_told_by_the_next_call) {
  for (const char* const point : {"apply.begin", "publish.begin"}) {
    for (int victim = 0; victim < kWorld; victim++) {
      const std::vector<RankEnd> ends = run(victim, {point, 1}, false);
      EXPECT_NE(ends[static_cast<size_t>(victim)].signal, 0) << point;
      for_each_survivor(ends, victim, [&](int, const std::string& said) {
        EXPECT_TRUE(contains(said, "begin ZERO_ERR_PEER_DEAD", " torn")) << point;
      });
    }
  }
}

/// A stopped rank holds up nobody beyond the deadline, neither in a wait for a parameter nor in the
/// end of the optimizer.
TEST(OverlapFaults, a_rank_that_stops_in_the_background_lets_the_others_wait_or_free_in_vain) {
  for (const bool frees : {false, true}) {
    const Meeting meeting(CommKind::local, kWorld, 400);
    const auto ends = run_struck_ranks(kWorld, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      std::string said;
      {
        Rank self(comm);
        if (rank == 1) watch_points({"apply.begin", 1}, stop);
        EXPECT_OK(self.step());
        if (!frees) said = self.wait();
      }
      auto failure = initialized<zero_failure>();
      EXPECT_OK(zero_comm_failure(comm, &failure));
      said += failure.text;
      zero_comm_free(comm);
      return said;
    });
    for_each_survivor(ends, 1, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, frees ? "" : "wait ZERO_ERR_TIMEOUT", "rank 1", "stopped"));
    });
  }
}

TEST(OverlapFaults, a_rank_that_dies_before_it_announces_leaves_parameters_as_they_were) {
  for (int victim = 0; victim < kWorld; victim++) {
    const std::vector<RankEnd> ends = run(victim, {"begin.before", 1});
    EXPECT_NE(ends[static_cast<size_t>(victim)].signal, 0);
    for_each_survivor(ends, victim, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, "begin ZERO_ERR_PEER_DEAD", " consistent"));
    });
  }
}

/// The others wait for their own ends of a step, which wait for a late rank.
TEST(OverlapFaults, a_job_that_is_stopped_as_a_whole_goes_on) {
  const Meeting meeting(CommKind::local, kWorld, 20'000);
  const auto said = run_stopped_job(kWorld, [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    {
      Rank self(comm);
      if (rank == 1) watch_points({"apply.begin", 1}, be_late);
      EXPECT_OK(self.step());
      int32_t one = 1;
      EXPECT_OK(zero_comm_all_reduce(comm, &one, 1, ZERO_INT32, ZERO_SUM)) << last();
    }
    zero_comm_free(comm);
    return std::string("done");
  });
  for (const std::string& one : said) EXPECT_EQ(one, "done");
}

TEST(OverlapFaults, a_rank_that_dies_at_any_point_hangs_nobody) {
  const Meeting meeting(CommKind::local, kWorld);
  const PointsOfRanks points = points_of_ranks(kWorld, [&](int rank) {
    EXPECT_EQ(live(meeting, rank, true), "done consistent");
    return std::string();
  });
  int deaths = 0;
  for_each_victim(points, nightly_run() ? 1 : 7, [&](const Victim& victim) {
    const std::vector<RankEnd> ends = run(victim.rank, victim.point);
    // Another thread may have passed the point.
    if (ends[static_cast<size_t>(victim.rank)].signal == 0) return;
    deaths++;
    // The others may have left by then. Any rank that finds an exchange complete decides it, so the
    // n-th decision of this rank may be its last one in another run.
    const bool at_the_end = victim.left <= 20 || victim.point.name == "exchange.decided";
    for_each_survivor(ends, victim.rank, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, "ZERO_ERR_PEER_DEAD") || (at_the_end && contains(said, "done")))
          << said;
    });
  });
  EXPECT_GT(deaths, 20);
}

}  // namespace
}  // namespace zero::test
