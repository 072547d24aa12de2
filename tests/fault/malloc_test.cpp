// SPDX-License-Identifier: Apache-2.0
// Each malloc of the library fails, once or from then on, on each rank, in lives that make every
// kind of call. No rank hangs, no process ends, and failures are reported. With memory again, the
// same processes meet and train.
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
constexpr int64_t kRendezvousMs = 500;  // for lives in which one rank may not come
constexpr int64_t kSample = 12;         // points per life, rank and way to fail

struct Point {
  const Life& life;
  int rank;
  int64_t at;
  Fails fails;
};

/// Returns the remaining threads and descriptors, or "" if there are none. Detached threads may
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

/// A timeout after a failed malloc means that nobody ended a rank's wait.
bool may_be(const LifeEnd& end) {
  return end.status != ZERO_ERR_TIMEOUT && end.status != ZERO_ERR_INTERNAL &&
         (end.status >= 0 || !end.text.empty());
}

/// Runs one rank's life and what follows it. Returns its end, after "WRONG: " if that is not
/// allowed.
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

/// Returns the number of mallocs of the point's rank.
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

/// Two ranks take a few steps with a model that is partly frozen. In the last step a malloc of rank
/// 1 fails. Returns the number of mallocs of that step. `wrong` receives the ranks whose failure is
/// wrong about their parameters.
int64_t steady_step(int64_t at, std::string* wrong) {
  static constexpr int64_t kSize = 200'000, kOne = 1;
  const SharedMemory counted(sizeof(int64_t));
  const auto ends = run_ranks(RankKind::processes, kWorld, [&, name = unique_name()](int rank) {
    zero_comm* comm = nullptr;
    EXPECT_EQ(zero_comm_create_local(&comm, name.c_str(), rank, kWorld, nullptr), ZERO_OK);
    void *data = nullptr, *grad = nullptr;
    EXPECT_EQ(zero_arena_alloc(comm, kSize * sizeof(float), ZERO_MEMORY_PER_RANK, &data), ZERO_OK);
    EXPECT_EQ(zero_arena_alloc(comm, kSize * sizeof(float), ZERO_MEMORY_PER_RANK, &grad), ZERO_OK);
    auto* const values = static_cast<float*>(data);
    std::fill_n(static_cast<float*>(grad), kSize, 1.0f);
    float frozen = 0;
    zero_optim* optim = nullptr;
    EXPECT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
    zero_param params[2];
    for (zero_param& param : params) ZERO_INIT(param), param.ndim = 1;
    params[0].name = "trained", params[0].data = data, params[0].grad = grad;
    params[0].shape = &kSize;
    params[1].name = "frozen", params[1].data = &frozen, params[1].shape = &kOne;
    params[1].flags = ZERO_PARAM_FROZEN;
    EXPECT_EQ(zero_register_params(optim, nullptr, params, 2, nullptr), ZERO_OK);
    for (int step = 0; step < 4; step++) EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
    const float old = values[0];
    if (rank == 1) fail_malloc(at, Fails::once);
    const zero_status status = zero_step(optim, nullptr);
    if (rank == 1) *counted.as<int64_t>() = mend_mallocs();
    zero_failure failure;
    ZERO_INIT(failure);
    (void)zero_comm_failure(comm, &failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other one may still write
    const bool whole = (values[0] == old) == (values[kSize - 1] == old);
    const bool said = failure.status == ZERO_OK || failure.params_consistent != 0;
    return std::string(status >= 0 || whole || !said ? "" : "wrong");
  });
  for (size_t rank = 0; rank < ends.size(); rank++)
    if (!ends[rank].returned || !ends[rank].result.empty()) *wrong += " " + std::to_string(rank);
  return *counted.as<int64_t>();
}

TEST(SteadyMalloc, that_fails_calls_no_parameters_consistent_that_are_half_new) {
  std::string wrong;
  int64_t at = 1;
  for (; at <= steady_step(at, &wrong); at++) EXPECT_EQ(wrong, "") << "malloc " << at;
  EXPECT_GT(at, 3) << "a step takes some memory, or this fails none";
}

}  // namespace
}  // namespace zero::test
