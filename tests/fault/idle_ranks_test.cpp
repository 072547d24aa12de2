// SPDX-License-Identifier: Apache-2.0
// A rank dies or stops at a point of a step in which some ranks own nothing. The others must get
// the right error, and must report correctly whether parameters are consistent.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include "support/comms.h"
#include "support/nightly.h"
#include "support/optim.h"
#include "support/points.h"

namespace zero::test {
namespace {

constexpr int64_t kElements = 1500;  // two blocks, and so two owners
constexpr int kSteady = 3, kSteps = 5;

/// Runs steps on a comm. Returns "<code> of rank <culprit>", and "|" with the parameters if they
/// are reported as consistent. Watches points from the first step that is like the last one.
std::string train(zero_comm* comm, const Point& point, void (*action)()) {
  const Arena data(comm, kElements * sizeof(float)), grads(comm, kElements * sizeof(float));
  const std::span params(data.floats(), kElements);
  std::fill_n(grads.floats(), kElements, 1.0f);
  Optim optim(comm, plain_sgd(kLr1));
  optim.add(parameter("two blocks", kElements, data.floats(), grads.floats()));
  zero_status status = ZERO_OK;
  for (int step = 0; step < kSteps && status == ZERO_OK; step++) {
    if (step == kSteady) watch_points(point, action);
    status = optim.step();
  }
  stop_watching_points();
  auto failure = initialized<zero_failure>();
  zero_comm_failure(comm, &failure);
  const std::string said = text(zero_status_name(status), " of rank ", failure.rank);
  if (status != ZERO_OK && !failure.params_consistent) return said;
  return text(said, "|", std::ranges::min(params), " to ", std::ranges::max(params));
}

std::string live(const std::string& name, int rank, int world, int64_t deadline_ms,
                 const Point& point, void (*action)()) {
  auto options = initialized<zero_comm_options>();
  options.timeout_ms = options.late_ms = deadline_ms;
  zero_comm* comm = nullptr;
  EXPECT_OK(zero_comm_create_local(&comm, name.c_str(), rank, world, &options));
  std::string said = train(comm, point, action);
  zero_comm_free(comm);
  return said;
}

/// Strikes each rank at each `stride`-th point.
void strike(int world, size_t stride, void (*action)(), const char* code) {
  const int64_t deadline_ms = action == stop ? 300 : 20'000;
  const PointsOfRanks points = points_of_ranks(world, [&, name = unique_name()](int rank) {
    return live(name, rank, world, 20'000, {}, nullptr);
  });
  for_each_victim(points, stride, [&](const Victim& victim) {
    const std::vector<RankEnd> ends = run_struck_ranks(world, [&, name = unique_name()](int rank) {
      return live(name, rank, world, deadline_ms, victim.point,
                  rank == victim.rank ? action : nullptr);
    });
    std::string params;
    for_each_survivor(ends, victim.rank, [&](int, const std::string& said) {
      const auto bar = said.find('|');
      EXPECT_EQ(said.substr(0, bar), said.starts_with("ZERO_OK")
                                         ? "ZERO_OK of rank -1"
                                         : text(code, " of rank ", victim.rank));
      if (bar == said.npos) return;
      const std::string own = said.substr(bar + 1);
      if (params.empty()) params = own;
      EXPECT_EQ(own, params);
      EXPECT_EQ(own.substr(0, own.find(' ')), own.substr(own.rfind(' ') + 1));
    });
  });
}

TEST(IdleRanks, hear_of_a_death_at_any_point_and_whether_parameters_are_whole) {
  strike(4, 1, die, "ZERO_ERR_PEER_DEAD");
  if (nightly_run()) strike(18, 1, die, "ZERO_ERR_PEER_DEAD");
}

TEST(IdleRanks, hear_of_a_stop_at_any_point_and_whether_parameters_are_whole) {
  strike(3, nightly_run() ? 1 : 4, stop, "ZERO_ERR_TIMEOUT");
}

}  // namespace
}  // namespace zero::test
