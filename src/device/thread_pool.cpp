// SPDX-License-Identifier: Apache-2.0
// Two words carry the work: `round_` starts it, `unfinished_` ends it. Who waits on one spins a
// little, says that it sleeps, looks again, and then sleeps on a futex of that word; who changes
// the word looks for sleepers afterwards. Both orders are sequentially consistent, so one of the
// two sees the other.
#include "device/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <climits>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "kernels/float_environment.h"

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
  explicit Workers(int threads) : seats_(static_cast<size_t>(threads)) {}
  ~Workers() override;

  Status start();
  int threads() const override { return static_cast<int>(seats_.size()); }
  void run(const ThreadWork& work) override;

 private:
  struct Seat {
    Workers* pool = nullptr;
    int thread = 0;
    pthread_t handle{};
    bool started = false;
  };

  static void* work_in(void* seat);
  Status start_worker(Seat& seat);
  void keep_first(std::exception_ptr thrown);

  std::vector<Seat> seats_;           // seat 0 is the caller's
  const ThreadWork* work_ = nullptr;  // null in the last round: leave
  std::mutex mutex_;
  std::exception_ptr thrown_;  // by the first that did, in this round
  alignas(64) Gate round_;
  alignas(64) Gate unfinished_;
};

Status Workers::start() {
  Status status;
  for (size_t i = 1; i < seats_.size() && status.ok(); ++i) {
    seats_[i].thread = static_cast<int>(i);
    status = start_worker(seats_[i]);
  }
  return status;
}

Status Workers::start_worker(Seat& seat) {
  seat.pool = this;
  const int error = start_thread(seat.handle, work_in, &seat);
  if (error == 0) {
    seat.started = true;
    return {};
  }
  return {ZERO_ERR_SYSTEM, text("starting worker thread ", seat.thread, " of ", threads() - 1, ": ",
                                errno_text(error), "; set fewer threads in zero_options")};
}

Workers::~Workers() {
  work_ = nullptr;
  round_.add(1);
  round_.wake_all();
  for (Seat& seat : seats_) {
    // Wait: the last round is done, and it has been told to leave.
    if (seat.started) pthread_join(seat.handle, nullptr);
  }
}

void Workers::run(const ThreadWork& work) {
  const FloatEnvironment environment;
  work_ = &work;
  if (seats_.size() > 1) {
    unfinished_.store(static_cast<uint32_t>(seats_.size() - 1));
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

void* Workers::work_in(void* argument) {
  const Seat& seat = *static_cast<Seat*>(argument);
  Workers& pool = *seat.pool;
  const FloatEnvironment environment;
  for (uint32_t seen = 0;; ++seen) {
    pool.round_.wait_while(seen);  // no round begins before this thread has finished the last one
    if (pool.work_ == nullptr) return nullptr;
    try {
      pool.work_->call(pool.work_->function, seat.thread);
    } catch (...) {
      pool.keep_first(std::current_exception());
    }
    if (pool.unfinished_.add(UINT32_MAX) == 0) pool.unfinished_.wake_all();
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
