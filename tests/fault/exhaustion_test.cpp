// SPDX-License-Identifier: Apache-2.0
// Threads that get no more memory in the middle of a step: the comm breaks with a cause, the step
// has a result, and the process continues. Also while memory is mapped that ranks share.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "comm/local/segment.h"
#include "support/comms.h"
#include "support/optim.h"
#include "support/place.h"
#include "support/ranks.h"
#include "support/watched.h"

namespace {

thread_local int allocations_left = -1;  // then none; -1: unlimited
std::atomic<bool> refused{false};
std::atomic<bool> workers_starve{false};  // threads that the library creates
thread_local bool is_the_tests = false;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left == 0 || (workers_starve && !is_the_tests)) {
    refused = true;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) allocations_left--;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocations_left == 0 ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace zero::test {
namespace {

int to_leave = -1;
std::atomic<bool> armed{false};

/// Limits the thread that applies the step to this number of allocations.
void starve(const char* point) {
  if (std::strcmp(point, "apply.begin") == 0 && armed.exchange(false)) allocations_left = to_leave;
}

TEST(Exhaustion, of_a_thread_that_ends_a_step_breaks_the_comm_with_a_cause) {
  const Watched starving(starve);
  for (const bool overlaps : {false, true}) {
    for (const int left : {0, 1, 2, 3, 5, 8}) {
      SCOPED_TRACE(std::to_string(overlaps) + ", " + std::to_string(left));
      to_leave = left;
      refused = false;
      on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
        static constexpr int64_t kSize = 5000;
        std::vector<float> data(kSize, 1), grad(kSize, 1);
        Optim trained(comm, options_with([&](zero_options& o) { o.overlap_gather = overlaps; }));
        trained.add(parameter("w", kSize, data.data(), grad.data()));
        zero_optim* const optim = trained.optim();
        EXPECT_OK(trained.step());
        trained.wait();
        EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
        if (rank == 0) armed = true;
        EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
        zero_status status = zero_step(optim, nullptr);
        allocations_left = -1;
        if (status == ZERO_OK) status = zero_param_wait(optim, ZERO_ALL_PARAMS, nullptr);
        if (status != ZERO_OK) {
          EXPECT_EQ(status, ZERO_ERR_MEMORY) << last();
          auto result = initialized<zero_result>();
          EXPECT_EQ(zero_step_result(optim, &result), ZERO_ERR_MEMORY);
          EXPECT_EQ(result.status, ZERO_ERR_MEMORY);
        }
        EXPECT_EQ(zero_comm_barrier(comm), refused ? ZERO_ERR_MEMORY : ZERO_OK);
        // The thread that was not refused before may be refused now.
        zero_status next = zero_step(optim, nullptr);
        if (next == ZERO_OK) next = zero_param_wait(optim, ZERO_ALL_PARAMS, nullptr);
        EXPECT_EQ(next, refused ? ZERO_ERR_MEMORY : ZERO_OK) << last();
        auto failure = initialized<zero_failure>();
        EXPECT_EQ(zero_comm_failure(comm, &failure), ZERO_OK);
        EXPECT_EQ(failure.status, refused ? ZERO_ERR_MEMORY : ZERO_OK);
        EXPECT_EQ(failure.text[0] == '\0', !refused);
      });
      EXPECT_TRUE(refused || left > 2);
      if (HasFailure()) break;
    }
  }
}

/// The new checkpoint is already published, so the save succeeds. The next save removes what is
/// left.
TEST(Exhaustion, while_a_save_removes_what_it_replaced_fails_no_save) {
  const Scratch scratch;
  const Watched starving([](const char* point) {
    if (std::strcmp(point, "save.durable") == 0) allocations_left = armed.exchange(false) ? 0 : -1;
  });
  auto model = solo_model(tiny_model());
  for (const bool starves : {false, true, false}) {
    refused = false;
    armed = starves;
    const Status status = model->save(scratch / "saved", ZERO_SAVE_REPLACE);
    allocations_left = -1;
    EXPECT_EQ(told(status), "");
    EXPECT_EQ(refused, starves);
    EXPECT_EQ(names_in(scratch.path()).size(), starves ? 2u : 1u);
  }
}

/// Of the two threads that apply a step, the one that the library creates gets no memory.
TEST(Exhaustion, of_a_worker_breaks_the_comm_with_a_cause) {
  for (const int32_t optimizer : {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_LAMB}) {
    SCOPED_TRACE(optimizer);
    refused = false;
    static constexpr int64_t kSize = 500'000;
    std::vector<float> data(kSize, 1), grad(kSize, 1);
    Optim optim(alone(), options_with([&](zero_options& o) {
                  o.optimizer = optimizer;
                  o.threads = 2;
                }));
    optim.add(parameter("w", kSize, data.data(), grad.data()));
    ASSERT_OK(optim.step());
    is_the_tests = true;
    workers_starve = true;
    EXPECT_EQ(optim.step(), ZERO_ERR_MEMORY) << last();
    workers_starve = false;
    EXPECT_TRUE(refused);
    EXPECT_EQ(zero_comm_barrier(optim.comm()), ZERO_ERR_MEMORY);
  }
}

/// A handle also needs memory, and zero.h promises not to free a ctx that it did not accept.
TEST(Exhaustion, of_a_call_that_makes_a_user_comm_frees_no_ctx_of_the_callers) {
  static int freed = 0;
  auto functions = initialized<zero_comm_functions>();
  functions.exchange = [](void*, const void*, void*, size_t) { return zero_status{ZERO_OK}; };
  functions.all_gather = [](void*, const void*, void*, size_t, void*) {
    return zero_status{ZERO_OK};
  };
  functions.all_to_all = functions.all_gather;
  functions.free = [](void*) { freed++; };
  std::vector<zero_comm*> open;  // kept open, because the handle table grows rarely
  for (int others = 0; others < 40; others++) {
    zero_comm* comm = nullptr;
    zero_status status = ZERO_ERR_MEMORY;
    for (int left = 0; status == ZERO_ERR_MEMORY; left++) {
      allocations_left = left;
      status = zero_comm_create_user(&comm, &functions, &functions, 0, 1, nullptr);
      allocations_left = -1;
      ASSERT_EQ(freed, 0) << left << " allocations beside " << others;
    }
    ASSERT_EQ(status, ZERO_OK) << last();
    open.push_back(comm);
  }
  for (zero_comm* const comm : open) zero_comm_free(comm);
  EXPECT_EQ(freed, 40);
}

/// An object that is destroyed while the lock is held would wait for the same lock.
TEST(Exhaustion, of_a_thread_that_maps_shared_memory_hangs_nobody_and_leaves_nothing) {
  const auto map_after_each_refusal = [](int) -> std::string {
    const Result<Fd> fd = local::create_segment("zero.test", 4096);
    const size_t before = local::mapped_segments();
    for (int left = 0;; left++) {
      try {
        allocations_left = left;
        const auto mapping = local::map_segment((*fd).get(), 4096, local::Access::shown);
        allocations_left = -1;
        return mapping.ok() && left > 1 ? "ok" : text("mapped with ", left, " allocations");
      } catch (const std::bad_alloc&) {
        allocations_left = -1;
        if (local::mapped_segments() != before) return text("left behind after ", left);
      }
    }
  };
  const auto ends = run_ranks(RankKind::processes, 1, map_after_each_refusal, 10'000);
  EXPECT_EQ(ends[0].result, "ok") << (ends[0].hung ? "hung" : "");
}

}  // namespace
}  // namespace zero::test
