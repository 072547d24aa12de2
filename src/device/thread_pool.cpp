// SPDX-License-Identifier: Apache-2.0
// Two words control the work: `round_` starts it, and `unfinished_` ends it. A thread that waits
// for a word spins briefly, registers as a sleeper, checks the word again, and then sleeps on its
// futex. A thread that changes the word then checks for sleepers. Both orders are sequentially
// consistent, so at least one of the two threads sees the other.
#include "device/thread_pool.h"

#include <linux/futex.h>

#include <climits>
#include <utility>

#include "base/os.h"
#include "base/refusals.h"

namespace zero {
namespace {

constexpr int kSpins = 500;  // some microseconds, because a pause takes 10 to 150 cycles

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

void FutexWord::wake_all() {
  if (sleepers.load() != 0) os().futex(address(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

void FutexWord::wait_while(uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load() != old) return;
    // Wait: kSpins, then asleep.
    relax();
  }
  sleepers.fetch_add(1);
  constexpr timespec kLook{0, 100'000'000};  // in case the wake call fails
  // Wait: until the work of a round is done, which waits for nothing, or there is a new one.
  while (word.load() == old) os().futex(address(), FUTEX_WAIT_PRIVATE, old, &kLook);
  sleepers.fetch_sub(1);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 1) {
    return bad_argument("a thread pool has ", threads, " threads; it must have at least 1");
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads));
  for (int i = 1; i < threads; i++) {
    ZERO_TRY(pool->threads_[static_cast<size_t>(i)].start(
        text("worker thread ", i, " of ", threads - 1, " (set fewer threads in zero_options)"),
        [pool = pool.get(), i] { pool->work(i); }));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  work_ = nullptr;
  round_.word++;
  round_.wake_all();
  // Wait: the last round is done, and they have been told to leave.
  for (WorkerThread& thread : threads_) thread.join();
}

void ThreadPool::begin_round(const ThreadWork& work) {
  work_ = &work;
  if (threads_.size() == 1) return;
  unfinished_.word.store(static_cast<uint32_t>(threads_.size() - 1));
  round_.word++;
  round_.wake_all();
}

void ThreadPool::end_round() {
  for (uint32_t left = unfinished_.word.load(); left != 0; left = unfinished_.word.load()) {
    unfinished_.wait_while(left);
  }
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::keep_first(std::exception_ptr thrown) {
  const std::lock_guard lock(mutex_);
  if (thrown_ == nullptr) thrown_ = std::move(thrown);
}

void ThreadPool::work(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    round_.wait_while(seen);  // no round begins before this thread has finished the last one
    if (work_ == nullptr) return;
    try {
      work_->call(work_->function, thread);
    } catch (...) {
      keep_first(std::current_exception());
    }
    if (--unfinished_.word == 0) unfinished_.wake_all();
  }
}

}  // namespace zero
