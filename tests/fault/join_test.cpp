// SPDX-License-Identifier: Apache-2.0
// Ranks that die or fall silent while some have joined: whoever is left gets an error that says
// who, before the deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"
#include "support/points.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 3;
constexpr int64_t kDeadlineMs = 400;
constexpr int kBatches[kWorld] = {2, 0, 3};

/// One weight of an optimizer whose ranks may join.
class Weight {
 public:
  explicit Weight(zero_comm* comm) {
    auto options = initialized<zero_options>();
    options.uneven_inputs = ZERO_UNEVEN_ACTIVE;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << last();
    auto param = initialized<zero_param>();
    param.name = "w";
    param.data = &data_;
    param.grad = &grad_;
    EXPECT_EQ(zero_register_params(optim_, nullptr, &param, 1, nullptr), ZERO_OK) << last();
  }
  ~Weight() { zero_free(optim_); }
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  zero_status seal() { return zero_seal(optim_); }
  zero_status step() { return zero_step(optim_, nullptr); }
  zero_status join() { return zero_join(optim_, nullptr, nullptr); }

 private:
  zero_optim* optim_ = nullptr;
  float data_ = 1, grad_ = 1;
};

/// Rank r makes its steps and joins; what ended it.
zero_status train(zero_comm* comm, int rank) {
  Weight weight(comm);
  zero_status status = weight.seal();
  for (int batch = 0; batch < kBatches[rank] && status == ZERO_OK; batch++) status = weight.step();
  return status == ZERO_OK ? weight.join() : status;
}

TEST(JoinFaults, a_rank_that_dies_anywhere_while_some_have_joined_is_named_to_all_others) {
  const auto body = [](const Meeting& meeting, int victim, const Point& point) {
    return run_ranks(RankKind::processes, kWorld, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      if (rank == victim) {
        watch_points(point, die);
      } else {
        watch_points();
      }
      const zero_status status = train(comm, rank);
      const std::string said = std::string(zero_status_name(status)) + " " + last();
      zero_comm_free(comm);
      return said;
    });
  };
  std::vector<std::vector<Point>> points;
  {
    const Meeting meeting(CommKind::local, kWorld, kDeadlineMs);
    points = points_of_ranks(kWorld, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      watch_points();
      EXPECT_EQ(train(comm, rank), ZERO_OK) << last();
      zero_comm_free(comm);
      return std::string();
    });
  }
  int deaths = 0;
  for (int victim = 0; victim < kWorld; victim++) {
    const std::vector<Point>& passed = points[static_cast<size_t>(victim)];
    ASSERT_GT(passed.size(), 20u);
    for (size_t i = static_cast<size_t>(victim); i < passed.size(); i += 5) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " dies at " + passed[i].name + " " +
                   std::to_string(passed[i].occurrence));
      const Meeting meeting(CommKind::local, kWorld, kDeadlineMs);
      const std::vector<RankEnd> ends = body(meeting, victim, passed[i]);
      if (ends[static_cast<size_t>(victim)].signal == 0) continue;  // passed by another thread
      deaths++;
      // The others may have left by then. Whoever finds out that an exchange can end settles it, so
      // that its n-th time may be the last one in another run.
      const bool at_the_end = i + 15 >= passed.size() || passed[i].name == "exchange.settled";
      for (int rank = 0; rank < kWorld; rank++) {
        if (rank == victim) continue;
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        EXPECT_TRUE(end.returned && !end.hung) << rank;
        EXPECT_TRUE(contains(end.result, "ZERO_ERR_PEER_DEAD rank " + std::to_string(victim)) ||
                    contains(end.result, "ZERO_ERR_PEER_DEAD zero_") ||
                    (at_the_end && contains(end.result, "ZERO_OK")))
            << rank << ": " << end.result;
        EXPECT_TRUE(contains(end.result, "rank " + std::to_string(victim)) || at_the_end);
      }
    }
  }
  EXPECT_GT(deaths, 20);
}

TEST(JoinFaults, a_rank_that_never_comes_is_late_for_those_who_joined_too) {
  const Meeting meeting(CommKind::local, 3, kDeadlineMs);
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    static std::atomic<int> back{0};
    if (rank == 0) {
      while (back < 2) usleep(1000);  // alive, elsewhere
    } else {
      Weight weight(comm);
      EXPECT_TRUE(ends(rank == 1 ? weight.join() : weight.step(), ZERO_ERR_TIMEOUT, "rank 0"));
      back++;
    }
    zero_comm_free(comm);
    return std::string();
  });
}

}  // namespace
}  // namespace zero::test
