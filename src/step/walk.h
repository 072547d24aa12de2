// SPDX-License-Identifier: Apache-2.0
// The interface through which the flow of a step (step.cpp) works on values. The implementation for
// the host does the work immediately. The one for devices queues work on the stream of the call.
// Functions are called between begin_work() and end_work(), except for those declared before them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "kernels/launches.h"
#include "optim/optimizer.h"

namespace zero {

/// The input of a decision in addition to the state: the records of all ranks, or nothing.
enum class By { records, nothing };

class Walk {
 public:
  virtual ~Walk() = default;

  // ---- Before anything is changed.

  /// Begins the call, or returns this rank's own failure.
  virtual Status begin() { return {}; }
  /// Returns OK if a p-norm can be computed, or the reason why it cannot.
  virtual Status check_norm_type(double p) const = 0;
  /// Copies gradients of the call that are in no arena to staging, unless that is queued together
  /// with the sums.
  virtual void stage_grads() {}
  /// Does everything that may fail on a single rank. Called after make_views(). `updates` is true
  /// if the call takes a step.
  virtual Status get_ready(bool updates) = 0;
  /// Returns true if a call that uses existing sums also needs get_ready().
  virtual bool always_gets_ready() const { return false; }

  virtual Status begin_work() { return {}; }
  /// Ends the work, and returns the status of the call. Breaks the comm if this rank failed to
  /// queue its work.
  virtual Status end_work(Status status) { return status; }

  // ---- Gather.

  virtual Status fill_zeros(std::byte* data, size_t bytes) = 0;
  /// Sums the gradients of all ranks at their owners. Measures the sums of all ranks on the way:
  /// their p-norm (none if p is 0), and how many are not finite.
  virtual Status sum(double p) = 0;
  /// Returns true if the update itself can sum gradients.
  virtual bool can_let_update_sum() const { return true; }
  /// Replaces sum() if the update itself sums gradients.
  virtual Status let_update_sum() { return {}; }
  /// Replaces sum() in a call that uses existing sums.
  virtual Status find_summed() { return {}; }
  /// Measures existing sums as sum() does.
  virtual Status measure(double p) = 0;
  /// Turns sums into gradients, and clamps them to [-limit, limit].
  virtual Status clamp(double limit) = 0;

  // ---- Vote.

  /// Makes a decision. The implementation adds its state and records to `how`. Returns
  /// ZERO_ERR_NONFINITE if the step is refused and the host already knows it.
  virtual Status decide(launch::Decide how, By by) = 0;

  /// Makes the ranks agree on everything else before the step is taken. Returns ZERO_SKIPPED if it
  /// is skipped and the host already knows it.
  virtual Result<Code> vote() { return ZERO_OK; }

  // ---- Apply and publish. `fused` is true after let_update_sum(). These functions change nothing
  // if the step is skipped.

  /// Updates what this rank owns.
  virtual Status apply(bool fused) = 0;
  /// Makes the new parameters available on all ranks, and advances the state.
  virtual Status publish(bool fused) = 0;
  /// Counts the step. Called after end_work().
  virtual void count_step() {}
  /// Records the outcome of zero_step for later queries.
  virtual void note(Code) {}

  // ---- Whole tensors. These functions are not called between begin_work() and end_work(). They
  // follow all work on the call's stream, and have done their work when they return.

  /// Sets the master weights of this rank's share, in the sections from `first_section` on, to the
  /// present values of the parameters.
  virtual Status take_masters(size_t first_section) = 0;
  /// Sends the parameters that each rank owns, with the values in its own memory, to all ranks.
  virtual Status share_params() = 0;
  /// Send all parameters, or all buffers, of `root` to all ranks.
  virtual Status broadcast_params(int32_t root) = 0;
  virtual Status broadcast_buffers(int32_t root) = 0;
  using Parts = std::vector<std::span<const std::byte>>;
  /// Sets `hashes` to the checksums of `parts`, which are from add_parts().
  virtual Status hash(std::span<const Parts::value_type> parts, std::span<uint64_t> hashes) = 0;
};

/// Divides `bytes` bytes at `data` into parts that fit into a window of a device, and adds them.
inline void add_parts(Walk::Parts& parts, const std::byte* data, size_t bytes) {
  constexpr size_t kMost = size_t{1} << 20;
  for (size_t at = 0; at < bytes; at += kMost)
    parts.emplace_back(data + at, std::min(kMost, bytes - at));
}

/// Creates the implementation for the host or for the comm's device.
std::unique_ptr<Walk> make_walk(Call& call, Optimizer& optim);

/// Calls work() between begin_work() and end_work().
template <class Work>
Status run(Walk& walk, const Work& work) {
  Status status = walk.begin_work();
  if (status.ok()) status = work();
  return walk.end_work(std::move(status));
}

}  // namespace zero
