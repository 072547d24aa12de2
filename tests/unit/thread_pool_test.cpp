// SPDX-License-Identifier: Apache-2.0
#include "device/thread_pool.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <set>
#include <vector>

#include "base/os.h"
#include "support/float_control.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"

namespace zero {
namespace {

std::unique_ptr<ThreadPool> make_pool(int threads) {
  return test::made(ThreadPool::create(threads));
}

int64_t threads_of_this_process() { return test::entries_of("/proc/self/task"); }

// A joined thread leaves /proc a moment later.
int64_t threads_once_settled(int64_t expected) {
  for (int i = 0; i < 2000 && threads_of_this_process() != expected; ++i) usleep(1000);
  return threads_of_this_process();
}

TEST(ThreadPool, every_thread_works_once_a_run) {
  for (int threads : {1, 2, 3, 7}) {
    const auto pool = make_pool(threads);
    EXPECT_EQ(pool->threads(), threads);
    std::vector<int> runs(static_cast<size_t>(threads));  // not atomic: run() must order it
    for (int round = 1; round <= 500; ++round) {
      pool->run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
      for (const int count : runs) ASSERT_EQ(count, round);
    }
  }
}

TEST(ThreadPool, what_any_thread_throws_comes_out_of_run_once_all_are_done) {
  for (const int threads : {1, 3}) {
    const auto pool = make_pool(threads);
    for (int thrower = -1; thrower <= threads; ++thrower) {  // none, each, all
      std::atomic<int> done{0};
      const auto work = [&](int thread) {
        if (thread != thrower) usleep(2000);
        ++done;
        if (thread == thrower || thrower == threads) throw std::bad_alloc();
      };
      bool thrown = false;
      try {
        pool->run(work);
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      EXPECT_EQ(thrown, thrower >= 0);
      EXPECT_EQ(done, threads);
    }
    std::atomic<int> runs{0};
    pool->run([&](int) { ++runs; });
    EXPECT_EQ(runs, threads);
  }
}

TEST(ThreadPool, workers_are_threads_of_their_own_and_stay) {
  const auto pool = make_pool(4);
  std::vector<pid_t> first(4), later(4);
  pool->run([&](int thread) { first[static_cast<size_t>(thread)] = os().gettid(); });
  pool->run([&](int thread) { later[static_cast<size_t>(thread)] = os().gettid(); });
  EXPECT_EQ(first, later);
  EXPECT_EQ(first[0], os().gettid());
  EXPECT_EQ(std::set<pid_t>(first.begin(), first.end()).size(), 4u);
}

TEST(ThreadPool, workers_and_a_caller_that_fell_asleep_are_woken) {
  const auto pool = make_pool(3);
  std::atomic<int> done{0};
  for (int round = 1; round <= 20; ++round) {
    usleep(3000);  // they are asleep
    pool->run([&](int thread) {
      usleep(static_cast<useconds_t>(2000 * thread));  // and so is the caller
      ++done;
    });
    EXPECT_EQ(done, 3 * round);
  }
}

TEST(ThreadPool, a_wake_that_the_system_refuses_hangs_nobody) {
  const auto refuse_wakes = [](uint32_t* word, int operation, uint32_t value,
                               const timespec* timeout) {
    if (operation != FUTEX_WAKE_PRIVATE)
      return real_system_calls().futex(word, operation, value, timeout);
    errno = EPERM;
    return -1;
  };
  // Runs in a separate process, which is killed if it hangs.
  test::run_sound_ranks(
      test::RankKind::processes, 1,
      [=](int) {
        test::replace_call(&SystemCalls::futex, refuse_wakes);
        auto pool = make_pool(3);
        std::atomic<int> worked{0};
        for (int round = 0; round < 3; ++round) {
          usleep(20'000);  // they are asleep
          pool->run([&](int thread) {
            if (thread != 0) usleep(20'000);  // and so is the caller
            ++worked;
          });
        }
        EXPECT_EQ(worked, 9);
        pool.reset();
        return std::string();
      },
      10'000);
}

TEST(ThreadPool, interrupted_sleeps_change_nothing) {
  const test::ReplacedCall replaced(
      &SystemCalls::futex,
      [](uint32_t* word, int operation, uint32_t value, const struct timespec* timeout) {
        static std::atomic<int> count{0};
        if (count++ % 2 == 0 && timeout == nullptr && value != INT_MAX) {
          errno = EINTR;
          return -1;
        }
        return real_system_calls().futex(word, operation, value, timeout);
      });
  const auto pool = make_pool(3);
  std::atomic<int> done{0};
  for (int round = 1; round <= 20; ++round) {
    usleep(1000);
    pool->run([&](int) { ++done; });
    ASSERT_EQ(done, 3 * round);
  }
}

TEST(ThreadPool, workers_block_all_signals_and_the_caller_keeps_its_mask) {
  const auto pool = make_pool(2);
  sigset_t mask;
  pool->run([&](int thread) {
    if (thread == 1) pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  });
  for (int signal :
       {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGALRM, SIGHUP, SIGPROF, SIGRTMIN, SIGRTMAX}) {
    EXPECT_EQ(sigismember(&mask, signal), 1) << signal;
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

TEST(ThreadPool, work_runs_in_the_standard_float_environment) {
  const uint64_t callers = test::float_control();
  test::set_float_control(test::kOddControl);
  const auto pool = make_pool(3);
  std::vector<uint64_t> seen(3, test::kOddControl);
  pool->run([&](int thread) {
    seen[static_cast<size_t>(thread)] = test::float_control() & ~test::kWhatHappened;
  });
  const uint64_t after = test::float_control();
  test::set_float_control(callers);
  EXPECT_EQ(seen, std::vector<uint64_t>(3, test::kStandardControl));
  EXPECT_EQ(after, test::kOddControl);
}

std::atomic<int> threads_left{0};
int limited_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                           void* (*start)(void*), void* argument) {
  if (threads_left-- <= 0) return EAGAIN;
  return real_system_calls().pthread_create(thread, attributes, start, argument);
}

TEST(ThreadPool, a_thread_that_does_not_start_is_an_error_that_leaves_none_behind) {
  const int64_t before = threads_of_this_process();
  const test::ReplacedCall replaced(&SystemCalls::pthread_create, limited_pthread_create);
  threads_left = 2;
  const auto pool = ThreadPool::create(5);
  test::expect_failure(pool, ZERO_ERR_SYSTEM, "worker thread 3 of 4");
  test::expect_failure(pool, ZERO_ERR_SYSTEM, "EAGAIN");
  EXPECT_EQ(threads_once_settled(before), before);
}

TEST(ThreadPool, one_thread_starts_none_and_zero_is_refused) {
  const test::ReplacedCall replaced(&SystemCalls::pthread_create, limited_pthread_create);
  threads_left = 0;
  const auto pool = make_pool(1);
  int runs = 0;
  pool->run([&](int thread) { runs += 1 + thread; });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(ThreadPool::create(0).failure().code(), ZERO_ERR_ARGUMENT);
}

TEST(ThreadPool, its_end_joins_all_workers) {
  const int64_t before = threads_of_this_process();
  for (int round = 0; round < 50; ++round) {
    const auto pool = make_pool(4);
    if (round % 2 == 0) pool->run([](int) {});
  }
  EXPECT_EQ(threads_once_settled(before), before);
}

}  // namespace
}  // namespace zero
