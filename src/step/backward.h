// SPDX-License-Identifier: Apache-2.0
// What an engine says during its backward, and the sums that are made meanwhile. They are never
// needed: a call sums what it does not find done. So each rank begins by itself, where it can, and
// nothing is agreed upon but the round.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero {

class Backward {
 public:
  Backward(Optimizer& optim, StepMemory& memory) : optim_(optim), memory_(memory) {}
  ~Backward();  // waits for a tile at most
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  /// The gradient of a parameter is final; null: there is none on this rank. Local; what fails has
  /// no effect.
  Status announce(int64_t param, std::byte* grad);

  /// Sum no more. What is done stands, and can be asked for until the next announcement.
  void settle();

  /// Nothing is announced, and what is done is used up. Settled.
  void forget();
  /// What is done is wrong, though what is announced stands. Settled.
  void distrust();

  bool announced(size_t param) const { return param < announced_.size() && announced_[param]; }
  std::byte* grad(size_t param) const { return grads_[param]; }
  /// Its gradient is in staging already.
  bool staged(size_t param) const { return param < staged_.size() && staged_[param]; }

  /// Sums of this round stand in `sums`, which lie as the share does, or will.
  bool sums_here() const { return begun_; }
  std::byte* sums() const { return sums_.data(); }
  /// Elements of an owned segment, from its first one, that are summed.
  int64_t done(size_t segment) const { return segment < done_.size() ? done_[segment] : 0; }
  /// The norm of them, for this p.
  NormRecord record() const { return reducer_ ? reducer_->record() : NormRecord{}; }
  double norm_type() const { return norm_type_; }

  /// Elements that were summed before the call that needed them, so far.
  int64_t elements() const { return elements_.load(std::memory_order_relaxed); }

 private:
  enum class Outcome { done, waits, never };

  Status begin();
  void publish(int64_t param, const Location& grad);
  static void* main(void* self);
  void work();
  bool pass();
  void stage(int64_t param);
  Outcome sum(size_t segment);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  Optimizer& optim_;
  StepMemory& memory_;

  // Of the engine's threads, one at a time.
  std::vector<bool> announced_, staged_;
  std::vector<std::byte*> grads_;
  bool begun_ = false;

  // Of the thread that sums, unless it is settled.
  HostMemory sums_;
  std::vector<size_t> pending_;  // owned segments
  std::vector<int64_t> done_;
  std::optional<Reducer> reducer_;
  double norm_type_ = 0;
  std::vector<const void*> in_;
  int64_t moved_bytes_ = 0, copied_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<int64_t> to_stage_;
  bool running_ = false, busy_ = false, leaving_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> elements_{0};
  std::optional<pthread_t> thread_;
};

/// zero_grad_ready. Local; ZERO_ERR_STATE once gradients are reduced.
Status grad_ready(Optimizer& optim, int64_t param, std::byte* grad);

/// Elements that were summed before the call that needed them, so far.
int64_t early_elements(const Optimizer& optim);

/// What was announced is taken, or dropped: the next announcements are of another round.
void end_round(StepMemory& memory);

/// The sums made during the backward, where a call may use them; else null.
inline const Backward* early(const StepMemory& memory) {
  const Backward* const backward = memory.backward.get();
  return backward != nullptr && backward->sums_here() && !memory.none ? backward : nullptr;
}

}  // namespace zero
