// SPDX-License-Identifier: Apache-2.0
// The verbs by which the flow of a step (step.cpp) works on values, written twice: the host's loops
// do the work at once; for a device with streams it is queued in the order of the call's stream.
// Verbs are called between begin_work() and end_work(), except for those before them.
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

/// The input of a decision beside the state: the records of all ranks, or nothing.
enum class By { records, nothing };

class Walk {
 public:
  virtual ~Walk() = default;

  // ---- Before anything is touched.

  /// Begins the call, or returns this rank's own reason to refuse it.
  virtual Status begin() { return {}; }
  /// Returns OK if a norm for this p can be taken, or the reason why not.
  virtual Status check_norm_type(double p) const = 0;
  /// Copies the call's gradients that are in no arena to where other ranks read them, unless that
  /// is queued with the sums.
  virtual void stage_grads() {}
  /// Does all that may fail on one rank alone. Called after make_views(). `updates`: the call makes
  /// a step.
  virtual Status get_ready(bool updates) = 0;
  /// False if a call that finds its sums made needs nothing of get_ready().
  virtual bool always_gets_ready() const { return false; }

  virtual Status begin_work() { return {}; }
  /// Returns the status of the call. If this rank alone could not queue its work, it breaks the
  /// comm.
  virtual Status end_work(Status status) { return status; }

  // ---- Gather.

  virtual Status fill_zeros(std::byte* data, size_t bytes) = 0;
  /// Sums every rank's gradients at their owners, and measures the sums of all ranks on the way:
  /// the norm for p (0: none), and how many are not finite.
  virtual Status sum(double p) = 0;
  /// Lets the update itself sum them, if it can.
  virtual bool can_let_update_sum() const { return true; }
  virtual Status let_update_sum() { return {}; }
  /// Takes the place of sum() in a call that finds its sums made.
  virtual Status find_summed() { return {}; }
  /// Measures sums that are made already, as sum() does.
  virtual Status measure(double p) = 0;
  /// Turns sums into gradients, and brings them into [-limit, limit].
  virtual Status clamp(double limit) = 0;

  // ---- Vote.

  /// Decides. `how` lacks what a walk itself knows: its state, its records, their number. Returns
  /// ZERO_ERR_NONFINITE if the step is refused and that is known by now.
  virtual Status decide(launch::Decide how, By by) = 0;

  /// Lets the ranks agree on all else before the step is made. Returns ZERO_SKIPPED if it is not
  /// made and that is known by now.
  virtual Result<Code> vote() { return ZERO_OK; }

  // ---- Apply, publish. `fused`: from gradients, after let_update_sum(). They change nothing if
  // the step is skipped.

  /// Updates what this rank owns.
  virtual Status apply(bool fused) = 0;
  /// Brings it to all ranks, and advances.
  virtual Status publish(bool fused) = 0;
  /// Counts the step, after run().
  virtual void count_step() {}
  /// Notes how zero_step ended, for those who ask later.
  virtual void note(Code) {}

  // ---- Whole tensors, apart from run(). These calls work after all that the call's stream holds,
  // and are done when they return.

  /// Makes masters of this rank's share from the parameters as they are, from `first_section` on.
  virtual Status take_masters(size_t first_section) = 0;
  /// Sends the parameters that each rank owns, as they are in its own memory, to all ranks.
  virtual Status share_params() = 0;
  /// Send every parameter, or buffer, of `root` to all ranks.
  virtual Status broadcast_params(int32_t root) = 0;
  virtual Status broadcast_buffers(int32_t root) = 0;
  using Parts = std::vector<std::span<const std::byte>>;
  /// Makes a checksum of each of `parts`, which add_parts() has made.
  virtual Status hash(std::span<const Parts::value_type> parts, std::span<uint64_t> hashes) = 0;
};

/// Adds parts of `bytes` bytes at `data`, none longer than a device's window shows at once.
inline void add_parts(Walk::Parts& parts, const std::byte* data, size_t bytes) {
  constexpr size_t kMost = size_t{1} << 20;
  for (size_t at = 0; at < bytes; at += kMost)
    parts.emplace_back(data + at, std::min(kMost, bytes - at));
}

/// Returns the host's walk, or that of the comm's device.
std::unique_ptr<Walk> make_walk(Call& call, Optimizer& optim);

/// Lets `work` do this call's part.
template <class Work>
Status run(Walk& walk, const Work& work) {
  Status status = walk.begin_work();
  if (status.ok()) status = work();
  return walk.end_work(std::move(status));
}

}  // namespace zero
