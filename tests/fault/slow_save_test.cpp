// SPDX-License-Identifier: Apache-2.0
// A save that takes long, because its disk is slow or hangs, its job is suspended, or the program
// interrupts it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "support/clock.h"
#include "support/optim.h"
#include "support/place.h"
#include "support/points.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/system_calls.h"
#include "support/trials.h"

namespace zero::test {
namespace {

/// Runs on a rank before its disk accepts a write.
thread_local std::function<void()> before_write = [] {};

/// Returns the results of a save to `target` on two ranks. Each calls `begin` before it and `end`
/// after it.
std::vector<std::string> save_of_two(const std::string& target, int64_t timeout_ms,
                                     const std::function<void(int rank)>& begin,
                                     const std::function<void(int rank)>& end) {
  const Clock clock;
  const ReplacedCall write(&SystemCalls::pwrite,
                           [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                             before_write();
                             return real_system_calls().pwrite(fd, data, bytes, at);
                           });
  return run_sound_ranks(RankKind::threads, 2, [&, name = unique_name()](int rank) -> std::string {
    const auto model = local_model(small_model(), name, rank, 2, {.timeout_ms = timeout_ms});
    if (!model) return "no model";
    begin(rank);
    const Status status = model->save(target);
    end(rank);
    return told(status);
  });
}

TEST(SlowSave, a_disk_that_takes_one_write_after_the_other_may_take_longer_than_the_deadline) {
  const Scratch scratch;
  const auto begin = [](int rank) {
    if (rank == 1) before_write = [] { Clock::pass(700, 1); };
  };
  const auto said = save_of_two(scratch / "new", 1'000, begin, [](int) {});
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(SlowSave, a_disk_that_does_not_take_a_write_makes_its_rank_late_which_all_others_name) {
  const Scratch scratch;
  std::atomic<int> waiting{1};
  const auto begin = [&](int rank) {
    if (rank == 1) before_write = [&] { Clock::run([&] { return waiting.load(); }); };
  };
  const auto said = save_of_two(scratch / "new", 1'000, begin, [&](int rank) {
    if (rank == 0) waiting = 0;
  });
  for (const std::string& words : said) {
    EXPECT_TRUE(words.starts_with("ZERO_ERR_TIMEOUT: zero_state_save: written: rank 1 ")) << words;
    EXPECT_NE(words.find("made no progress for 1000 ms"), words.npos) << words;
  }
  EXPECT_EQ(entries_of(scratch.path()), 0);
}

TEST(SlowSave, a_job_that_is_stopped_as_a_whole_goes_on_while_it_waits_for_its_writers) {
  const Scratch scratch;
  const ReplacedCall write(&SystemCalls::pwrite,
                           [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                             be_late();
                             return real_system_calls().pwrite(fd, data, bytes, at);
                           });
  const auto said = run_stopped_job(2, [&, name = unique_name()](int rank) -> std::string {
    const auto model = local_model(small_model(), name, rank, 2, {.timeout_ms = 20'000});
    if (!model) return "no model";
    EXPECT_EQ(told(model->begin_save(scratch / "new")), "");
    return told(model->await_save());
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(SlowSave, ends_between_two_writes_where_the_program_ends_it) {
  const Scratch scratch;
  const Clock clock;
  static int writes;
  const ReplacedCall write(&SystemCalls::pwrite,
                           [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                             writes++;
                             Clock::jump(60);
                             return real_system_calls().pwrite(fd, data, bytes, at);
                           });
  const auto all = alone();
  const int64_t size = 3 << 20;  // 12 MiB, in 3 blocks of a file
  std::vector<float> data(static_cast<size_t>(size)), grad(data);
  Optim optim(all);
  optim.add(parameter("w", size, data.data(), grad.data()));
  EXPECT_OK(optim.step());
  writes = 0;
  EXPECT_OK(zero_state_save(optim.optim(), (scratch / "whole").c_str(), nullptr));
  const int whole = std::exchange(writes, 0);
  set_interrupt([](void*) { return 1; }, nullptr);
  EXPECT_TRUE(ends(zero_state_save(optim.optim(), (scratch / "new").c_str(), nullptr),
                   ZERO_ERR_INTERRUPTED, "zero_state_save: rank 0 was interrupted"));
  set_interrupt(nullptr, nullptr);
  EXPECT_LE(writes, 2);
  EXPECT_GT(whole, 6);
  EXPECT_EQ(entries_of(scratch.path()), 1);
  EXPECT_EQ(optim.step(), ZERO_ERR_ABORTED);
  auto failure = initialized<zero_failure>();
  EXPECT_OK(zero_comm_failure(all.get(), &failure));
  EXPECT_EQ(failure.params_consistent, 1);
}

}  // namespace
}  // namespace zero::test
