// SPDX-License-Identifier: Apache-2.0
// Ranks that die while parameters change behind everybody's back: in a step that has begun, and in
// one that ends in the background.
#include <gtest/gtest.h>

#include <array>
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
constexpr size_t kParams = 6;
constexpr int64_t kElements = 30'000;

/// Some parameters and gradients in arenas.
class Rank {
 public:
  explicit Rank(zero_comm* comm) {
    auto options = initialized<zero_options>();
    options.overlap_gather = 1;
    options.bucket_bytes = 65536;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << last();
    const size_t bytes = kParams * kElements * sizeof(float);
    EXPECT_EQ(zero_arena_alloc(comm, bytes, ZERO_MEMORY_SHARED, &data_), ZERO_OK) << last();
    EXPECT_EQ(zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, &grads_), ZERO_OK) << last();
    std::array<zero_param, kParams> params;
    std::array<std::string, kParams> names;
    for (size_t i = 0; i < kParams; i++) {
      ZERO_INIT(params[i]);
      names[i] = "p" + std::to_string(i);
      params[i].name = names[i].c_str();
      params[i].data = static_cast<float*>(data_) + i * kElements;
      params[i].grad = grad(i);
      params[i].shape = &kElements;
      params[i].ndim = 1;
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), kParams, nullptr), ZERO_OK);
  }
  ~Rank() {
    zero_free(optim_);
    zero_arena_free(data_);
    zero_arena_free(grads_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// The name and status of the first call that fails, or "done".
  std::string train(bool waits = true) {
    for (int step = 0; step < 2; step++) {
      if (failed("begin", zero_step_begin(optim_, nullptr))) return said_;
      for (size_t i = kParams; i-- > 0;) {
        if (failed("ready", zero_grad_ready(optim_, static_cast<int64_t>(i), grad(i), nullptr)))
          return said_;
        usleep(500);
      }
      if (failed("step", zero_step(optim_, nullptr))) return said_;
      for (size_t i = 0; waits && i < kParams; i++)
        if (failed("wait", zero_param_wait(optim_, static_cast<int64_t>(i), nullptr))) return said_;
      if (waits && failed("wait", zero_param_wait(optim_, ZERO_ALL_PARAMS, nullptr))) return said_;
    }
    return "done";
  }

  /// One step, of which nobody waits for anything.
  zero_status step() { return zero_step(optim_, nullptr); }
  /// Its end as train() tells it.
  std::string wait() {
    return failed("wait", zero_param_wait(optim_, ZERO_ALL_PARAMS, nullptr)) ? said_
                                                                             : std::string("done");
  }

 private:
  float* grad(size_t i) { return static_cast<float*>(grads_) + i * kElements; }
  bool failed(const char* call, zero_status status) {
    if (status == ZERO_OK) return false;
    said_ = std::string(call) + " " + zero_status_name(status) + " " + last();
    return true;
  }

  zero_optim* optim_ = nullptr;
  void *data_ = nullptr, *grads_ = nullptr;
  std::string said_;
};

/// What each rank's training ended with, and " consistent" or " torn", if `victim` dies at `point`.
std::vector<RankEnd> run(int victim, const Point& point, bool waits = true) {
  const Meeting meeting(CommKind::local, kWorld, kDeadlineMs);
  return run_ranks(RankKind::processes, kWorld, [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    Rank self(comm);
    watch_points(rank == victim ? point : Point{}, rank == victim ? die : nullptr);
    std::string said = self.train(waits);
    auto failure = initialized<zero_failure>();
    EXPECT_EQ(zero_comm_failure(comm, &failure), ZERO_OK);
    said += failure.params_consistent == 1 ? " consistent" : " torn";
    zero_comm_free(comm);
    return said;
  });
}

TEST(OverlapFaults, a_rank_that_dies_while_parameters_change_is_named_and_they_are_in_question) {
  const struct {
    Point at;
    const char* call;  // of the survivors, which fails first
  } deaths[] = {{{"early.update", 1}, "step"},  {{"early.updated", 1}, "step"},
                {{"apply.begin", 1}, "wait"},   {{"apply.done", 1}, "wait"},
                {{"publish.begin", 1}, "wait"}, {{"early.update", 6}, "step"},
                {{"apply.begin", 2}, "wait"}};
  for (const auto& death : deaths) {
    const bool early = death.at.name.rfind("early.", 0) == 0;
    for (int victim = 0; victim < kWorld; victim++) {
      const std::vector<RankEnd> ends = run(victim, death.at);
      SCOPED_TRACE("rank " + std::to_string(victim) + " dies at " + death.at.name + " " +
                   std::to_string(death.at.occurrence));
      if (ends[static_cast<size_t>(victim)].signal == 0) {
        // What is left of a step may be updated by the call before the thread comes to it.
        EXPECT_TRUE(early) << "it did not die";
        continue;
      }
      for (int rank = 0; rank < kWorld; rank++) {
        if (rank == victim) continue;
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        EXPECT_TRUE(end.returned && !end.hung) << rank;
        EXPECT_TRUE(contains(end.result, std::string(death.call) + " ZERO_ERR_PEER_DEAD") ||
                    (early && contains(end.result, "ZERO_ERR_PEER_DEAD")))
            << rank << ": " << end.result;
        EXPECT_TRUE(contains(end.result, "rank " + std::to_string(victim)))
            << rank << ": " << end.result;
        EXPECT_TRUE(contains(end.result, " torn")) << rank << ": " << end.result;
      }
    }
  }
}

TEST(OverlapFaults, a_death_in_the_background_that_nobody_waits_for_is_told_by_the_next_call) {
  for (const char* const point : {"apply.begin", "publish.begin"}) {
    for (int victim = 0; victim < kWorld; victim++) {
      const std::vector<RankEnd> ends = run(victim, {point, 1}, false);
      EXPECT_NE(ends[static_cast<size_t>(victim)].signal, 0) << point;
      for (int rank = 0; rank < kWorld; rank++) {
        if (rank == victim) continue;
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        EXPECT_TRUE(end.returned && !end.hung) << point;
        EXPECT_TRUE(contains(end.result, "begin ZERO_ERR_PEER_DEAD")) << point << end.result;
        EXPECT_TRUE(contains(end.result, " torn")) << point << end.result;
      }
    }
  }
}

/// In memory of all ranks.
struct Halt {
  std::atomic<pid_t> stopped;
  std::atomic<int> done;
};
Halt* halt = nullptr;

/// Until the others are done. The thread that stops its process may run on for a moment.
void stop_for_good() {
  stop();
  while (halt->done < kWorld - 1) usleep(1000);
}

/// A rank that stands still holds nobody longer than the deadline, whatever waits: a parameter's
/// wait or the end of the optimizer.
TEST(OverlapFaults, a_rank_that_stops_in_the_background_lets_the_others_wait_or_free_in_vain) {
  for (const bool frees : {false, true}) {
    const Meeting meeting(CommKind::local, kWorld, kDeadlineMs);
    SharedMemory memory(4096);
    halt = memory.as<Halt>();
    const auto ends = run_ranks(RankKind::processes, kWorld + 1, [&](int rank) {
      if (rank == kWorld) {  // no rank, but who lets the stopped one go on
        while (halt->done < kWorld - 1) usleep(1000);
        kill(halt->stopped, SIGCONT);
        return std::string();
      }
      zero_comm* const comm = meeting.join(rank);
      std::string said;
      {
        Rank self(comm);
        if (rank == 1) {
          halt->stopped = getpid();
          watch_points({"apply.begin", 1}, stop_for_good);
        }
        EXPECT_EQ(self.step(), ZERO_OK) << last();
        if (!frees) said = self.wait();
      }
      halt->done++;
      auto failure = initialized<zero_failure>();
      EXPECT_EQ(zero_comm_failure(comm, &failure), ZERO_OK);
      said += failure.text;
      zero_comm_free(comm);
      return said;
    });
    for (const int rank : {0, 2}) {
      const RankEnd& end = ends[static_cast<size_t>(rank)];
      EXPECT_TRUE(end.returned && !end.hung) << rank;
      EXPECT_TRUE(frees || contains(end.result, "wait ZERO_ERR_TIMEOUT")) << end.result;
      EXPECT_TRUE(contains(end.result, "rank 1")) << end.result;
      EXPECT_TRUE(contains(end.result, "stopped")) << end.result;
    }
  }
}

TEST(OverlapFaults, a_rank_that_dies_before_it_announces_leaves_parameters_as_they_were) {
  for (int victim = 0; victim < kWorld; victim++) {
    const std::vector<RankEnd> ends = run(victim, {"begin.before", 1});
    EXPECT_NE(ends[static_cast<size_t>(victim)].signal, 0);
    for (int rank = 0; rank < kWorld; rank++) {
      if (rank == victim) continue;
      const std::string& said = ends[static_cast<size_t>(rank)].result;
      EXPECT_TRUE(contains(said, "begin ZERO_ERR_PEER_DEAD")) << said;
      EXPECT_TRUE(contains(said, " consistent")) << said;
    }
  }
}

TEST(OverlapFaults, a_rank_that_dies_at_any_point_hangs_nobody) {
  std::vector<std::vector<Point>> points;
  {
    const Meeting meeting(CommKind::local, kWorld, kDeadlineMs);
    points = points_of_ranks(kWorld, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      {
        Rank self(comm);
        watch_points();
        EXPECT_EQ(self.train(), "done");
      }
      zero_comm_free(comm);
      return std::string();
    });
  }
  int deaths = 0;
  for (int victim = 0; victim < kWorld; victim++) {
    const std::vector<Point>& passed = points[static_cast<size_t>(victim)];
    const size_t stride = nightly_run() ? 1 : 7;
    for (size_t i = static_cast<size_t>(victim); i < passed.size(); i += stride) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " dies at " + passed[i].name + " " +
                   std::to_string(passed[i].occurrence));
      const std::vector<RankEnd> ends = run(victim, passed[i]);
      if (ends[static_cast<size_t>(victim)].signal == 0) continue;  // threads passed it otherwise
      deaths++;
      // The others may have left by then. Whoever finds out that an exchange can end settles it, so
      // that its n-th time may be the last one in another run.
      const bool at_the_end = i + 20 >= passed.size() || passed[i].name == "exchange.settled";
      for (int rank = 0; rank < kWorld; rank++) {
        if (rank == victim) continue;
        const RankEnd& end = ends[static_cast<size_t>(rank)];
        EXPECT_TRUE(end.returned && !end.hung) << rank;
        EXPECT_TRUE(contains(end.result, "ZERO_ERR_PEER_DEAD") ||
                    (at_the_end && contains(end.result, "done")))
            << rank << ": " << end.result;
      }
    }
  }
  EXPECT_GT(deaths, 20);
}

}  // namespace
}  // namespace zero::test
