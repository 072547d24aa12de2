// SPDX-License-Identifier: Apache-2.0
// Ranks die or fall silent while others have joined. The remaining ranks get an error that names
// the rank, before the deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/points.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 3;
constexpr int kBatches[kWorld] = {2, 0, 3};

/// One weight of an optimizer whose ranks may join.
class Weight : public Optim {
 public:
  explicit Weight(zero_comm* comm)
      : Optim(comm, options_with([](zero_options& o) { o.uneven_inputs = ZERO_UNEVEN_ACTIVE; })) {
    add(parameter("w", kOne, &data_, &grad_));
  }
  ~Weight() { free(); }

  zero_status join() { return zero_join(optim(), nullptr, nullptr); }

 private:
  float data_ = 1, grad_ = 1;
};

/// Takes the steps of this rank, and joins. Returns the final status.
zero_status train(zero_comm* comm, int rank) {
  Weight weight(comm);
  zero_status status = zero_seal(weight.optim());
  for (int batch = 0; batch < kBatches[rank] && status == ZERO_OK; batch++) status = weight.step();
  return status == ZERO_OK ? weight.join() : status;
}

TEST(JoinFaults, a_rank_that_dies_anywhere_while_some_have_joined_is_named_to_all_others) {
  const auto live = [](const Meeting& meeting, int rank, const Point& point, void (*action)()) {
    zero_comm* const comm = meeting.join(rank);
    watch_points(point, action);
    const zero_status status = train(comm, rank);
    const std::string said = std::string(zero_status_name(status)) + " " + last();
    zero_comm_free(comm);
    return said;
  };
  const Meeting counted(CommKind::local, kWorld);
  const PointsOfRanks points =
      points_of_ranks(kWorld, [&](int rank) { return live(counted, rank, {}, nullptr); });
  int deaths = 0;
  for_each_victim(points, 5, [&](const Victim& victim) {
    const Meeting meeting(CommKind::local, kWorld);
    const std::vector<RankEnd> ends = run_struck_ranks(kWorld, [&](int rank) {
      return live(meeting, rank, victim.point, rank == victim.rank ? die : nullptr);
    });
    if (ends[static_cast<size_t>(victim.rank)].signal == 0) return;  // passed by another thread
    deaths++;
    // The others may have left by then. Any rank that finds an exchange complete decides it, so the
    // n-th decision of this rank may be its last one in another run.
    const bool at_the_end = victim.left <= 15 || victim.point.name == "exchange.decided";
    for_each_survivor(ends, victim.rank, [&](int, const std::string& said) {
      if (at_the_end && contains(said, "ZERO_OK")) return;
      EXPECT_TRUE(contains(said, text("ZERO_ERR_PEER_DEAD rank ", victim.rank)) ||
                  contains(said, "ZERO_ERR_PEER_DEAD zero_"))
          << said;
      EXPECT_TRUE(at_the_end || contains(said, text("rank ", victim.rank))) << said;
    });
  });
  EXPECT_GT(deaths, 20);
}

TEST(JoinFaults, a_rank_that_never_comes_is_late_for_those_who_joined_too) {
  const Clock clock;
  const Meeting meeting(CommKind::local, 3, 400);
  std::atomic<int> waiting{2};
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    if (rank == 0) {
      Clock::run([&] { return waiting.load(); });  // alive, but not in the call
    } else {
      Weight weight(comm);
      EXPECT_TRUE(ends(rank == 1 ? weight.join() : weight.step(), ZERO_ERR_TIMEOUT, "rank 0"));
      --waiting;
    }
    zero_comm_free(comm);
    return std::string();
  });
}

}  // namespace
}  // namespace zero::test
