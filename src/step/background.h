// SPDX-License-Identifier: Apache-2.0
// Implements zero_options.overlap_gather. A thread of the optimizer runs the end of a step, which
// updates parameters and stores them on every rank. Other threads can wait for it or for a single
// parameter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/worker_thread.h"
#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

class Background {
 public:
  /// Starts the thread. Fails with ZERO_ERR_SYSTEM. `comm` must outlive the object.
  static Result<std::unique_ptr<Background>> create(Comm& comm);
  ~Background();  // waits for a step in progress
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Finds out where the owners of each parameter will report their progress. Must be called before
  /// the ranks agree on a step, because it may fail on a single rank.
  Status watch(const Optimizer& optim, const StepMemory& memory);

  /// Runs `end` on the thread, inside `call`. No step may be in progress, and watch() must have
  /// succeeded. The thread leaves the call only after the step has ended, so a thread that has
  /// entered another call can begin the next one.
  void begin(Call call, std::function<Status(Call&)> end);

  /// Reports to the other ranks that this rank has stored all its updates of the step in progress
  /// from position `share` of its share on.
  void tell(int64_t share);

  /// Waits until no step is in progress, and returns the status of the latest one. Any thread may
  /// call it.
  Status complete();

  /// Waits until the parameter can be read or the step has failed. Any thread may call it.
  Status wait(size_t param);

 private:
  struct Watch;

  explicit Background(Comm& comm) : comm_(comm) {}
  void work();
  void heed_interrupt(std::unique_lock<std::mutex>& lock);

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::shared_ptr<const Watch> watch_;  // set by watch()
  std::optional<Call> call_;
  std::function<Status(Call&)> end_;
  bool running_ = false, leaving_ = false;
  uint64_t number_ = 0;  // number of calls of begin(), the same on every rank
  Status status_;
  WorkerThread thread_;
};

}  // namespace zero
