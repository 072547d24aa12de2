// SPDX-License-Identifier: Apache-2.0
// zero_options.overlap_gather: the end of a step, its updates and their way to every rank, on a
// thread of the optimizer's own, and those who wait for it, or for one parameter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/worker_thread.h"
#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

class Background {
 public:
  /// Its thread runs. ZERO_ERR_SYSTEM.
  static Result<std::unique_ptr<Background>> create();
  ~Background();  // waits for the end of a step that is under way
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Find out where the owners of each parameter will tell how far they are. Before the ranks agree
  /// on a step; may fail on one rank alone.
  Status watch(const Optimizer& optim, const StepMemory& memory);

  /// Run the end of the step on the thread, with the call that it is a part of. Nothing is under
  /// way, and watch() has succeeded. The call is left when nothing is under way any more, so who is
  /// inside another one may begin the next end.
  void begin(Call call, std::function<Status(Call&)> end);

  /// This rank has stored all that it updates in the step under way from position `share` of its
  /// share on.
  void tell(int64_t share);

  /// Return when nothing is under way: what became of the latest. Any thread.
  Status complete();

  /// Return when this parameter may be read, or the end of the step has failed. Any thread.
  Status wait(size_t param);

 private:
  struct Watch;

  Background() = default;
  void work();

  // For whoever calls the optimizer.
  uint64_t watched_addresses_ = 0;
  uint64_t watched_tables_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::shared_ptr<const Watch> watch_;
  std::optional<Call> call_;
  std::function<Status(Call&)> end_;
  bool running_ = false, leaving_ = false;
  uint64_t number_ = 0;  // of the latest end: the same on every rank
  Status status_;
  WorkerThread thread_;
};

}  // namespace zero
