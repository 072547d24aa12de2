// SPDX-License-Identifier: Apache-2.0
// Numbered points of the library's protocols. Tests record which points a rank passes, or act on
// the rank at one of them. Ranks must be processes, and each sets its own trap.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/clock.h"
#include "support/ranks.h"
#include "support/trials.h"

namespace zero::test {

struct Point {
  std::string name;
  int occurrence = 1;  // acts at the n-th pass
};

/// Which points count: the library's numbered points, or the system calls to other ranks or a disk,
/// just before each call.
enum class Points { numbered, calls };

/// Starts to record points of this process, and calls `action` at `point`.
void watch_points(const Point& point = {}, void (*action)() = nullptr,
                  Points points = Points::numbered);
void stop_watching_points();
/// Returns the points that were passed since watch_points().
std::vector<Point> passed_points();

/// Returns the points that each of `world` processes passes in `body` after its watch_points().
/// `body` must succeed.
using PointsOfRanks = std::vector<std::vector<Point>>;
PointsOfRanks points_of_ranks(int world, const std::function<std::string(int rank)>& body);

// ---- What happens to a rank at a point.

void die();
/// Stops the rank until the others are done, in run_struck_ranks().
void stop();
/// Forks a child that stays alive until the others are done.
void leave_child_behind();
/// Kills a rank that has workers, such as data loaders. One of them was forked by another thread,
/// and one runs another program.
void die_with_workers();

/// Waits until the job has been stopped and resumed, in run_stopped_job().
void be_late();

/// A rank and the point where it is struck.
struct Victim {
  int rank;
  Point point;
  size_t left;  // the rank's remaining points, including this one
};

/// Calls trial(victim) at every `stride`-th point of every rank.
template <class Trial>
void for_each_victim(const PointsOfRanks& points, size_t stride, const Trial& trial) {
  for (size_t rank = 0; rank < points.size(); ++rank) {
    for (size_t i = rank % stride; i < points[rank].size(); i += stride) {
      const Victim victim{static_cast<int>(rank), points[rank][i], points[rank].size() - i};
      SCOPED_TRACE(text("rank ", rank, " of ", points.size(), " is struck at ", victim.point.name,
                        " ", victim.point.occurrence));
      count_trial();
      trial(victim);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Runs processes of which one may die or stop. Time stands still until then. Afterwards it passes
/// while all others that are not done wait. A stopped rank resumes after the others are done.
std::vector<RankEnd> run_struck_ranks(int world, const std::function<std::string(int rank)>& body);
/// Returns the time of the strike in the last run, by the library's clock.
int64_t struck_ms();

/// Runs processes of which one is late. While the others wait for it, all are stopped for longer
/// than any deadline. Then all resume, including the late rank. Returns their results.
std::vector<std::string> run_stopped_job(int world,
                                         const std::function<std::string(int rank)>& body);

/// Calls check(rank, result) for all other ranks, which must have returned.
template <class Check>
void for_each_survivor(const std::vector<RankEnd>& ends, int victim, const Check& check) {
  for (int rank = 0; rank < static_cast<int>(ends.size()); ++rank) {
    if (rank == victim) continue;
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    ASSERT_TRUE(end.returned && end.exit_status == 0)
        << "rank " << rank << (end.hung ? " hung" : "") << ", exit status " << end.exit_status
        << ", signal " << end.signal;
    SCOPED_TRACE(text("told to rank ", rank));
    check(rank, end.result);
  }
}

}  // namespace zero::test
