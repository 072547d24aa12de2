// SPDX-License-Identifier: Apache-2.0
// The host's workers: a few threads of one rank that share its part of a step.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"

namespace zero {

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 starts no thread. Workers block all signals.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  virtual ~ThreadPool() = default;  // joins

  virtual int threads() const = 0;

  /// Run work(0) ... work(threads - 1), one on each thread with the standard FloatEnvironment, and
  /// return when all are done, or throw then what the first of them has thrown. Not reentrant.
  /// Workers spin for some microseconds, then sleep.
  virtual void run(const std::function<void(int thread)>& work) = 0;
};

}  // namespace zero
