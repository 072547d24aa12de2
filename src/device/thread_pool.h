// SPDX-License-Identifier: Apache-2.0
// The worker threads of one rank, which share its part of a step.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/float_environment.h"
#include "base/status.h"
#include "base/worker_thread.h"

namespace zero {

/// A reference to the caller's function work(int thread). It is not copied, because the caller
/// waits until it returns.
struct ThreadWork {
  template <class Function>
  ThreadWork(const Function& called) : function(&called), call(call_of<Function>) {}

  const void* function;
  void (*call)(const void* function, int thread);

 private:
  template <class Function>
  static void call_of(const void* function, int thread) {
    (*static_cast<const Function*>(function))(thread);
  }
};

/// A word for which threads wait.
struct FutexWord {
  void wake_all();
  /// Returns after the word differs from `old`.
  void wait_while(uint32_t old);
  uint32_t* address() { return reinterpret_cast<uint32_t*>(&word); }

  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> sleepers{0};
};

class ThreadPool {
 public:
  /// Starts the workers, which block all signals. `threads` includes the caller, so 1 starts none.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  ~ThreadPool();  // joins the workers

  int threads() const { return static_cast<int>(threads_.size()); }

  /// Runs work(0) ... work(threads - 1), one on each thread, with the standard FloatEnvironment.
  /// Returns after all have finished, or throws the first exception that one of them threw. Not
  /// reentrant. Workers spin for some microseconds before they sleep.
  template <class Work>
  void run(const Work& work) {
    const FloatEnvironment environment;
    const ThreadWork shared(work);
    begin_round(shared);
    try {
      work(0);
    } catch (...) {
      keep_first(std::current_exception());
    }
    end_round();
  }

 private:
  explicit ThreadPool(int threads) : threads_(static_cast<size_t>(threads)) {}

  void begin_round(const ThreadWork& work);
  void end_round();
  void work(int thread);
  void keep_first(std::exception_ptr thrown);

  std::vector<WorkerThread> threads_;  // the first stands for the calling thread
  const ThreadWork* work_ = nullptr;   // null in the last round, which ends the workers
  std::mutex mutex_;
  std::exception_ptr thrown_;  // the first exception of this round
  alignas(64) FutexWord round_;
  alignas(64) FutexWord unfinished_;
};

}  // namespace zero
