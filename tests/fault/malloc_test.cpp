// SPDX-License-Identifier: Apache-2.0
// Each malloc of the library's fails, once or from then on, on each rank, in lives that make every
// kind of call. Nobody hangs, no process ends, what fails says so, and with memory again the same
// processes meet and train.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "fault/malloc_lives.h"
#include "support/failing_mallocs.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/trials.h"
#include "support/user_comm.h"

namespace zero::test {
namespace {

constexpr int kWorld = 2;
constexpr int64_t kDeadlineMs = 120'000;  // of one life and what follows
constexpr int64_t kPatienceMs = 20'000;
constexpr int64_t kRendezvousMs = 500;  // where one rank may never come
constexpr int64_t kSample = 12;         // points of each life, rank and way to fail

struct Point {
  const Life& life;
  int rank;
  int64_t at;
  Fails fails;
};

/// What is left of threads and descriptors, "" if nothing is. Threads that nobody waits for may
/// take a moment.
std::string left_over(int64_t descriptors) {
  int64_t threads = 0;
  for (int i = 0; i < 5000 && (threads = entries_of("/proc/self/task")) > 1; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int64_t now = entries_of("/proc/self/fd");
  if (threads == 1 && now == descriptors) return "";
  return "left " + std::to_string(threads - 1) + " threads and " +
         std::to_string(now - descriptors) + " descriptors; ";
}

std::string told(const LifeEnd& end) {
  if (end.status == ZERO_OK) return "ok";
  return std::string(zero_status_name(end.status)) + " in " + end.call + ": " + end.text;
}

/// A deadline that passes where memory ran out is a wait that nobody ended.
bool may_be(const LifeEnd& end) {
  return end.status != ZERO_ERR_TIMEOUT && end.status != ZERO_ERR_INTERNAL &&
         (end.status >= 0 || !end.text.empty());
}

/// One rank's life and what follows it: how it ended, behind "WRONG: " where that may not be.
std::string live_as(int rank, const Point& point, LifeOf of, int64_t* counted) {
  const int64_t descriptors = entries_of("/proc/self/fd");
  if (rank == point.rank) fail_malloc(point.at, point.fails);
  const LifeEnd end = point.life.live(of);
  if (rank == point.rank) *counted = mend_mallocs();
  const std::string left = left_over(descriptors);
  of.name += "-again";
  of.rendezvous_ms = kPatienceMs;
  const LifeEnd again = meet_again(of);
  if (left.empty() && again.status == ZERO_OK && may_be(end)) return told(end);
  return "WRONG: " + left + told(end) + "; and then " + told(again);
}

/// The number of mallocs that the point's rank made.
int64_t live(const Point& point) {
  const Scratch scratch;
  const std::string name = unique_name();
  const SharedMemory counted(sizeof(int64_t));
  const bool sound = point.at == 0;
  if (!sound) count_trial();
  const std::vector<RankEnd> ends = run_ranks(
      RankKind::processes, kWorld,
      [&](int rank) {
        Engine engine(1);
        return live_as(rank, point,
                       {.rank = rank,
                        .world = kWorld,
                        .name = name,
                        .folder = scratch.path(),
                        .functions = as_public(Engine::functions()),
                        .seat = engine.seat(0),
                        .rendezvous_ms = sound ? kPatienceMs : kRendezvousMs},
                       counted.as<int64_t>());
      },
      kDeadlineMs);
  for (size_t rank = 0; rank < ends.size(); rank++) {
    const RankEnd& end = ends[rank];
    const bool right =
        end.returned && (sound ? end.result == "ok" : end.result.rfind("WRONG", 0) != 0);
    EXPECT_TRUE(right) << point.life.name << ", malloc " << point.at << " of rank " << point.rank
                       << (point.fails == Fails::once ? " once" : " from then on") << ": rank "
                       << rank << (end.hung ? " hung" : "") << " signal " << end.signal << " "
                       << end.result;
  }
  return *counted.as<int64_t>();
}

class Malloc : public testing::TestWithParam<Life> {};

TEST_P(Malloc, that_fails_ends_no_process_and_hangs_none) {
  for (int rank = 0; rank < kWorld; rank++) {
    const int64_t all = live({GetParam(), rank, 0, Fails::from_then_on});
    EXPECT_GT(all, 100);
    const int64_t stride = nightly_run() ? 1 : std::max<int64_t>(all / kSample, 1);
    for (const Fails fails : {Fails::once, Fails::from_then_on})
      for (int64_t at = 1; at <= all; at += stride) live({GetParam(), rank, at, fails});
  }
}

INSTANTIATE_TEST_SUITE_P(Lives, Malloc, testing::ValuesIn(all_lives().begin(), all_lives().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace zero::test
