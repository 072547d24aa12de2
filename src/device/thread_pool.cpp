// SPDX-License-Identifier: Apache-2.0
// Two words carry the work: `round_` starts it, `unfinished_` ends it. Who waits on one spins a
// little, says that it sleeps, looks again, and then sleeps on a futex of that word; who changes
// the word looks for sleepers afterwards. Both orders are sequentially consistent, so one of the
// two sees the other.
#include "device/thread_pool.h"

#include <linux/futex.h>

#include <atomic>
#include <climits>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"
#include "base/worker_thread.h"

namespace zero {
namespace {

constexpr int kSpins = 500;  // some microseconds: a pause takes 10 to 150 cycles

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// A word that threads wait on.
class Gate {
 public:
  uint32_t load() const { return word_.load(); }
  void store(uint32_t value) { word_.store(value); }

  /// Change the word by `delta`, and return what it is now.
  uint32_t add(uint32_t delta) { return word_.fetch_add(delta) + delta; }

  void wake_all() {
    if (sleepers_.load() != 0) os().futex(address(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }

  /// Return once the word differs from `old`.
  void wait_while(uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
      if (load() != old) return;
      // Wait: kSpins, then asleep.
      relax();
    }
    sleepers_.fetch_add(1);
    constexpr timespec kLook{0, 100'000'000};  // where waking is refused
    // Wait: until the work of a round is done, which waits for nothing, or there is a new one.
    while (load() == old) os().futex(address(), FUTEX_WAIT_PRIVATE, old, &kLook);
    sleepers_.fetch_sub(1);
  }

 private:
  uint32_t* address() { return reinterpret_cast<uint32_t*>(&word_); }

  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

class Workers final : public ThreadPool {
 public:
  explicit Workers(int threads) : threads_(static_cast<size_t>(threads)) {}
  ~Workers() override;

  Status start();
  int threads() const override { return static_cast<int>(threads_.size()); }
  void run(const ThreadWork& work) override;

 private:
  void work(int thread);
  void keep_first(std::exception_ptr thrown);

  std::vector<WorkerThread> threads_;  // the first stands for the caller's own
  const ThreadWork* work_ = nullptr;   // null in the last round: leave
  std::mutex mutex_;
  std::exception_ptr thrown_;  // by the first that did, in this round
  alignas(64) Gate round_;
  alignas(64) Gate unfinished_;
};

Status Workers::start() {
  for (int i = 1; i < threads(); i++) {
    ZERO_TRY(threads_[static_cast<size_t>(i)].start(
        text("worker thread ", i, " of ", threads() - 1, " (set fewer threads in zero_options)"),
        [this, i] { work(i); }));
  }
  return {};
}

Workers::~Workers() {
  work_ = nullptr;
  round_.add(1);
  round_.wake_all();
  // Wait: the last round is done, and they have been told to leave.
  for (WorkerThread& thread : threads_) thread.join();
}

void Workers::run(const ThreadWork& work) {
  const FloatEnvironment environment;
  work_ = &work;
  if (threads_.size() > 1) {
    unfinished_.store(static_cast<uint32_t>(threads_.size() - 1));
    round_.add(1);
    round_.wake_all();
  }
  try {
    work.call(work.function, 0);
  } catch (...) {
    keep_first(std::current_exception());
  }
  for (uint32_t left = unfinished_.load(); left != 0; left = unfinished_.load()) {
    unfinished_.wait_while(left);
  }
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Workers::keep_first(std::exception_ptr thrown) {
  const std::lock_guard lock(mutex_);
  if (thrown_ == nullptr) thrown_ = std::move(thrown);
}

void Workers::work(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    round_.wait_while(seen);  // no round begins before this thread has finished the last one
    if (work_ == nullptr) return;
    try {
      work_->call(work_->function, thread);
    } catch (...) {
      keep_first(std::current_exception());
    }
    if (unfinished_.add(UINT32_MAX) == 0) unfinished_.wake_all();
  }
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 1) {
    return Status(ZERO_ERR_ARGUMENT, text("a thread pool of ", threads, " threads: at least 1"));
  }
  auto pool = std::make_unique<Workers>(threads);
  ZERO_TRY(pool->start());
  return std::unique_ptr<ThreadPool>(std::move(pool));
}

}  // namespace zero
