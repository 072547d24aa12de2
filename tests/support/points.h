// SPDX-License-Identifier: Apache-2.0
// Numbered points of the library's protocols: note which ones a rank passes, or do something to it
// at one of them. For ranks that are processes; each sets its own trap.
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
  int occurrence = 1;  // the n-th time that it is passed
};

/// What is a point: those that the library numbers, or calls of the system by which it reaches
/// others or a disk, just before they are made.
enum class Points { numbered, calls };

/// From now on this process notes its points, and does `action` at `point`.
void watch_points(const Point& point = {}, void (*action)() = nullptr,
                  Points points = Points::numbered);
void stop_watching_points();
/// Those that it has passed since.
std::vector<Point> passed_points();

/// The points that each of `world` processes passes in `body` from its watch_points() on; `body`
/// must succeed.
using PointsOfRanks = std::vector<std::vector<Point>>;
PointsOfRanks points_of_ranks(int world, const std::function<std::string(int rank)>& body);

// ---- What becomes of a rank there.

void die();
/// Until the others are through, in run_struck_ranks().
void stop();
/// A forked child of this process lives on, until the others are through.
void leave_child_behind();
/// As a rank with workers, data loaders' say: of them one was forked by another thread, and one has
/// become another program.
void die_with_workers();

/// Until its job has been stopped and goes on, in run_stopped_job().
void be_late();

/// One rank of some, and where it is struck.
struct Victim {
  int rank;
  Point point;
  size_t left;  // points of its, from that one on
};

/// trial(victim) at every `stride`-th point of every rank.
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

/// Processes of which one may die or stop. Time stands still until then; afterwards it passes while
/// all others that are not through wait. Who was stopped goes on behind them.
std::vector<RankEnd> run_struck_ranks(int world, const std::function<std::string(int rank)>& body);
/// Returns when that was in the last run, by the library's clock.
int64_t struck_ms();

/// Processes of which one is late. While the others wait for it all are stopped, for longer than
/// any deadline; then they go on, and so does that one. Returns what they say.
std::vector<std::string> run_stopped_job(int world,
                                         const std::function<std::string(int rank)>& body);

/// check(rank, what it said) for all others, which must have come to their ends.
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
