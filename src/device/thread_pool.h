// SPDX-License-Identifier: Apache-2.0
// The host's workers: a few threads of one rank that share its part of a step.
#pragma once

#include <memory>

#include "base/status.h"

namespace zero {

/// A function of the caller's, work(int thread), who waits until it is done: nothing is copied.
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

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 starts no thread. Workers block all signals.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  virtual ~ThreadPool() = default;  // joins

  virtual int threads() const = 0;

  /// Run work(0) ... work(threads - 1), one on each thread with the standard FloatEnvironment, and
  /// return when all are done, or throw then what the first of them has thrown. Not reentrant.
  /// Workers spin for some microseconds, then sleep.
  virtual void run(const ThreadWork& work) = 0;
};

}  // namespace zero
