// SPDX-License-Identifier: Apache-2.0
// What the flow of a step (step.cpp) does with values, written twice: the host's loops do it at
// once, a device with streams is told to by work in the order of the call's stream. Verbs are
// called inside run(), but for those before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/comm.h"
#include "kernels/launches.h"
#include "optim/optimizer.h"

namespace zero {

/// What a decision looks at beside the state: what every rank found, or nothing.
enum class By { records, nothing };

class Walk {
 public:
  virtual ~Walk() = default;

  // ---- Before anything is touched.

  /// Take the call's turn; else this rank's own reason to refuse the call.
  virtual Status begin() { return {}; }
  /// Why no norm for this p can be taken; OK if one can.
  virtual Status check_norm_type(double p) const = 0;
  /// Whatever may fail on one rank alone, behind make_views(). `updates`: the call makes a step.
  virtual Status prepare(bool updates) = 0;
  /// False if a call that finds its sums made needs nothing of prepare().
  virtual bool prepares_every_call() const { return false; }

  virtual Status begin_work() { return {}; }
  /// The status of the call. What one rank alone could not tell to be done breaks the comm.
  virtual Status end_work(Status status) { return status; }

  // ---- Gather.

  virtual Status fill_zeros(std::byte* data, size_t bytes) = 0;
  /// Every rank's gradients to sums at their owners, measured on the way: the norm for p, 0 for
  /// none, and how many are not finite, from all ranks.
  virtual Status sum(double p) = 0;
  /// The update itself is to sum them.
  virtual Status let_update_sum() { return {}; }
  /// Nothing is to be summed any more.
  virtual Status find_summed() { return {}; }
  /// The same of sums that stand as sum() finds out.
  virtual Status measure(double p) = 0;
  /// Turn sums into gradients, and bring them into [-limit, limit].
  virtual Status clamp(double limit) = 0;

  // ---- Vote.

  /// `how` lacks what a walk itself knows: its state, its records, their number. ZERO_ERR_NONFINITE
  /// if the step is refused, where that is known by now.
  virtual Status decide(launch::Decide how, By by) = 0;

  /// Whatever else the ranks must agree on before the step is made. ZERO_SKIPPED if it is not made,
  /// where that is known by now.
  virtual Result<Code> vote() { return ZERO_OK; }

  // ---- Apply, publish. `fused`: from gradients, behind let_update_sum(). Nothing happens to a
  // step that is skipped.

  /// Update what this rank owns.
  virtual Status apply(bool fused) = 0;
  /// Put it on all ranks; advance.
  virtual Status publish(bool fused) = 0;
  /// Behind run(): the step counts.
  virtual void count_step() {}
  /// How zero_step ended, for those who ask later.
  virtual void note(Code) {}

  // ---- Whole tensors, apart from run(). They are behind what the call's stream holds, and done
  // when they return.

  /// Make the parameters, as they stand, the masters of this rank's share from `first_section` on.
  virtual Status take_masters(size_t first_section) = 0;
  /// What each rank owns of the parameters, as it stands in its own memory, to all ranks.
  virtual Status share_params() = 0;
  /// Every parameter, or buffer, of `root` to all ranks.
  virtual Status broadcast_params(int32_t root) = 0;
  virtual Status broadcast_buffers(int32_t root) = 0;
  /// A checksum of each of `parts`, a megabyte each at most.
  virtual Status hash(std::span<const std::span<const std::byte>> parts,
                      std::span<uint64_t> hashes) = 0;
};

/// The host's walk, or that of the comm's device.
std::unique_ptr<Walk> make_walk(Call& call, Optimizer& optim);

/// Let `work` do this call's part.
template <class Work>
Status run(Walk& walk, const Work& work) {
  Status status = walk.begin_work();
  if (status.ok()) status = work();
  return walk.end_work(std::move(status));
}

}  // namespace zero
