// SPDX-License-Identifier: Apache-2.0
// Uses gradients that an engine announces during its backward pass. A thread sums them or, if a
// step has begun, updates parameters with them. This work is optional, because the call that needs
// the results computes whatever is missing. So each rank works independently, and ranks agree only
// on the round.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/worker_thread.h"
#include "comm/comm.h"
#include "step/apply.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero {

class Backward {
 public:
  Backward(Optimizer& optim, StepMemory& memory) : optim_(optim), memory_(memory) {}
  ~Backward();  // waits for one tile at most
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  /// Announces that the gradient of a parameter is final. If `grad` is null, this rank has none.
  /// Local. A failure has no effect.
  Status announce(int64_t param, std::byte* grad);

  /// Begins a round in which gradients that all ranks have announced update parameters instead of
  /// being summed. Views without sources must have been made.
  Status begin_updates(double factor);

  /// Stops the work. Its results can be queried until the next announcement.
  void pause();

  /// Discards all announcements and results, because they have been used or dropped. The work must
  /// be paused.
  void forget();
  /// Discards all results, which may be wrong, but keeps the announcements. The work must be
  /// paused.
  void distrust();

  bool announced() const { return !announced_.empty(); }
  bool announced(size_t param) const { return param < announced_.size() && announced_[param].is; }
  std::byte* grad(size_t param) const { return announced_[param].grad; }
  /// Returns true if the gradient has been copied to staging.
  bool staged(size_t param) const { return param < announced_.size() && announced_[param].staged; }

  /// Returns true if this round computes sums. They are in sums(), in the layout of the share.
  bool sums_here() const { return makes_ == Makes::sums; }
  std::byte* sums() const { return sums_.data(); }
  /// Returns how many elements of an owned segment, from its first one on, are summed or updated.
  int64_t done(size_t segment) const { return segment < done_.size() ? done_[segment] : 0; }
  /// Returns true if this round updates parameters.
  bool updates_here() const { return makes_ == Makes::updates; }
  /// Returns how many gradients used by updates were not finite.
  uint64_t nonfinite() const { return nonfinite_; }
  /// Return the record of the sums, and p of its norm.
  NormSums record() const { return reducer_ ? reducer_->record() : NormSums{}; }
  double norm_type() const { return norm_type_; }

  /// Returns how many elements have been summed or updated so far by the thread. Elements are
  /// counted after they are done.
  int64_t elements() const { return elements_.load(std::memory_order_acquire); }
  /// Returns how many of these elements were updated.
  int64_t updates() const { return updates_.load(std::memory_order_acquire); }

 private:
  struct Announced {
    bool is = false, staged = false;
    std::byte* grad = nullptr;
  };
  enum class Makes { nothing, sums, updates };
  enum class Outcome { done, waits, never };

  Status begin_sums();
  Status expect(Makes makes);
  bool alone() const { return updates_here() && reduces_alone(optim_, memory_); }
  Location location_of(const std::byte* grad, size_t bytes) const;
  void publish(int64_t param, const Location& grad);
  void work();
  bool pass();
  void stage(int64_t param);
  Outcome work_on(size_t segment);
  Outcome find(const Segment& segment);
  void sum(size_t number, const Section& section);
  void update(size_t number);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  Optimizer& optim_;
  StepMemory& memory_;

  // Used by threads of the engine, one at a time.
  std::vector<Announced> announced_;  // by parameter
  Makes makes_ = Makes::nothing;

  // Used by the working thread unless it is paused.
  HostMemory sums_;
  std::vector<size_t> pending_;  // owned segments
  std::vector<int64_t> done_;
  std::optional<Reducer> reducer_;
  double norm_type_ = 0;
  std::optional<SegmentUpdater> updater_;
  uint64_t nonfinite_ = 0;
  std::vector<const std::byte*> in_;  // sources of the current segment
  std::vector<std::shared_ptr<Arena>> held_;
  int64_t moved_bytes_ = 0, copied_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<int64_t> to_stage_;
  bool running_ = false, busy_ = false, leaving_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> elements_{0}, updates_{0};
  WorkerThread thread_;
};

/// Implements zero_grad_ready. Local. Fails with ZERO_ERR_STATE if gradients have been reduced.
Status grad_ready(Optimizer& optim, int64_t param, std::byte* grad);

/// Returns the Backward, or null if it has not been needed yet.
const Backward* backward_of(const Optimizer& optim);

/// Gives up the step that has begun. It must not have updated anything.
void give_up_begun(Optimizer& optim, StepMemory& memory);

/// Ends a round whose announcements have been used or dropped.
void end_round(StepMemory& memory);

/// Returns the Backward that has sums of this round, or null if a call must not use them.
inline const Backward* early(const StepMemory& memory) {
  const Backward* const backward = memory.backward.get();
  return backward != nullptr && backward->sums_here() && !memory.none ? backward : nullptr;
}

/// Returns true if parameters may already have been updated, because a step has begun.
inline bool updates_early(const StepMemory& memory) {
  return memory.backward != nullptr && memory.backward->updates_here();
}
inline bool updates_announced(const StepMemory& memory) {
  return updates_early(memory) && memory.backward->announced();
}

}  // namespace zero
