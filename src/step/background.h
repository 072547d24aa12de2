// SPDX-License-Identifier: Apache-2.0
// zero_options.overlap_gather: a thread of the optimizer's own makes the end of a step, its updates
// and their way to every rank. Others may wait for it, or for one parameter.
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
  /// Starts its thread. Fails with ZERO_ERR_SYSTEM. The comm lives longer.
  static Result<std::unique_ptr<Background>> create(Comm& comm);
  ~Background();  // waits for the end of a step that is under way
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Finds the places where the owners of each parameter will tell how far they are. Comes before
  /// the ranks agree on a step, because it may fail on one rank alone.
  Status watch(const Optimizer& optim, const StepMemory& memory);

  /// Runs the end of the step on the thread, with the call that it is a part of. Nothing may be
  /// under way, and watch() must have succeeded. The thread leaves the call when nothing is under
  /// way any more, so whoever is inside another call may begin the next end.
  void begin(Call call, std::function<Status(Call&)> end);

  /// Tells the others that this rank has stored all its updates of the step under way, from
  /// position `share` of its share on.
  void tell(int64_t share);

  /// Waits until nothing is under way, and returns the status of the latest end. Any thread may
  /// call it.
  Status complete();

  /// Waits until this parameter may be read, or the end of the step has failed. Any thread may call
  /// it.
  Status wait(size_t param);

 private:
  struct Watch;

  explicit Background(Comm& comm) : comm_(comm) {}
  void work();
  void heed_interrupt(std::unique_lock<std::mutex>& lock);

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::shared_ptr<const Watch> watch_;  // made by whoever calls the optimizer
  std::optional<Call> call_;
  std::function<Status(Call&)> end_;
  bool running_ = false, leaving_ = false;
  uint64_t number_ = 0;  // of the latest end: the same on every rank
  Status status_;
  WorkerThread thread_;
};

}  // namespace zero
