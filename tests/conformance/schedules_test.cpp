// SPDX-License-Identifier: Apache-2.0
// What must hold in every schedule, tested in many of them: perturb.c is preloaded, and each run
// has its own seed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/nightly.h"
#include "support/perturb.h"
#include "uneven.h"

namespace zero::test {
namespace {

constexpr int64_t kPatienceMs = 5'000;

/// Runs body(seed) for `some` seeds, or for `many` in nightly runs.
template <class Body>
void under_many_schedules(uint64_t some, uint64_t many, const Body& body) {
  if (!perturbed()) GTEST_SKIP() << "perturb.c is not preloaded: meson test does that";
  const uint64_t runs = nightly_run() ? many : some;
  for (uint64_t seed = 0; seed < runs && !::testing::Test::HasFailure(); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    perturb_by(seed);
    body(seed);
  }
}

// Before the joined rank takes the next step of the others, it waits only for the comm.
TEST(Schedules, a_rank_that_joined_ends_each_step_before_it_makes_the_next) {
  const Uneven run{.world = 3, .sizes = {1100, 3, 50}, .overlaps = true};
  const std::vector<int> counts = {0, 12, 12};
  Plain model(run);
  train_epoch(model, run, counts);
  under_many_schedules(60, 10'000, [&](uint64_t seed) {
    on_ranks(Meeting(kCommKinds[seed % 2], run.world, kPatienceMs), [&](zero_comm* comm, int rank) {
      Seat seat(run, comm);
      for (int batch = 0; batch < counts[static_cast<size_t>(rank)]; batch++) {
        seat.train(batch);
        seat.wait();
      }
      EXPECT_EQ(seat.join(), 2) << last();
      EXPECT_TRUE(seat.equals(model.params()));
    });
  });
}

/// Creates and frees a comm of two threads, and one of this thread alone.
void make_and_free(const std::string& name) {
  zero_comm_options options;
  ZERO_INIT(options);
  options.rendezvous_ms = 3'000;
  const auto live = [&](int rank) {
    zero_comm* comm = nullptr;
    if (zero_comm_create_local(&comm, name.c_str(), rank, 2, &options) == ZERO_OK)
      zero_comm_free(comm);
  };
  std::thread other(live, 1);
  live(0);
  other.join();
  zero_comm* comm = nullptr;
  void* arena = nullptr;
  if (zero_comm_create_solo(&comm, nullptr) != ZERO_OK) return;
  if (zero_arena_alloc(comm, 4096, ZERO_MEMORY_PER_RANK, &arena) == ZERO_OK) zero_arena_free(arena);
  zero_comm_free(comm);
}

/// Runs in a child. Every call must return ZERO_ERR_FORKED, or work if the parent had no comm.
/// Returns the exit status.
int use_after_fork() {
  alarm(5);  // ends a child that hangs
  zero_comm* comm = nullptr;
  void* arena = nullptr;
  const zero_status made = zero_comm_create_solo(&comm, nullptr);
  if (made == ZERO_ERR_FORKED) return 0;
  if (made != ZERO_OK) return 1;
  const bool sound = zero_arena_alloc(comm, 4096, ZERO_MEMORY_PER_RANK, &arena) == ZERO_OK &&
                     zero_arena_free(arena) == ZERO_OK && zero_comm_free(comm) == ZERO_OK &&
                     zero_comm_create_local(&comm, unique_name().c_str(), 0, 1, nullptr) == ZERO_OK;
  return sound && zero_comm_free(comm) == ZERO_OK ? 0 : 2;
}

// Locks that those threads held stay locked in the child for ever.
TEST(Schedules, a_child_forked_while_threads_make_and_free_comms_comes_back_from_every_call) {
  under_many_schedules(8, 400, [](uint64_t) {
    std::atomic<bool> ends{false};
    std::vector<std::thread> makers;
    for (int i = 0; i < 2; i++) {
      makers.emplace_back([&ends] {
        while (!ends) make_and_free(unique_name());
      });
    }
    for (int i = 0; i < 25 && !::testing::Test::HasFailure(); i++) {
      usleep(300);
      const pid_t child = fork();
      if (child == 0) _exit(use_after_fork());
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
      EXPECT_EQ(status, 0);
    }
    ends = true;
    for (std::thread& maker : makers) maker.join();
  });
}

}  // namespace
}  // namespace zero::test
