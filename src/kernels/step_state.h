// SPDX-License-Identifier: Apache-2.0
// Defines the record of what a step finds and decides, on hosts and in device memory. Only the
// functions of launch_state.h change it.
#pragma once

#include <cstdint>

#include "kernels/bits.h"
#include "kernels/exact_sum.h"

namespace zero {

/// Returns the larger number, or NaN if either is NaN, whatever its sign.
ZERO_ELEMENT double larger_norm(double a, double b) {
  if (a != a || b != b) return real_of<double>(0x7FF8000000000000);
  return a < b ? b : a;
}

/// What a rank finds in the sums that it owns. Trivially copyable, because ranks exchange it.
struct NormSums {
  ExactSum sum;
  double max = 0;  // NaN stays NaN
  uint64_t nonfinite = 0;

  ZERO_HOST_DEVICE void add(const NormSums& other) {
    sum.add(other.sum);
    max = larger_norm(max, other.max);
    nonfinite += other.nonfinite;
  }
};

/// The progress of one parameter.
struct ParamProgress {
  int64_t step = 0;         // updates so far
  uint32_t live_slots = 0;  // bit s: slot s holds values
  uint32_t unused = 0;
  double product = 1;  // of Rule::next_product
};

/// Why a step is neither taken nor skipped.
enum class Refusal : int32_t {
  none,
  nonfinite,  // gradients are not finite, and that is an error
  broken,     // other ranks' work is not done
  outdated,   // the optimizer has changed since the launch was captured
  setting     // a value that the device reads is out of its range
};

/// How a step ended.
enum class Ending : int32_t { made, skipped, refused };

/// The record of an optimizer, which is the same on every rank.
struct StepState {
  // Kept from step to step.
  double loss_scale = 1;
  int64_t good_steps = 0;
  int64_t steps = 0;
  int64_t skipped = 0;
  // Found by the last step that was taken or skipped. all_nonfinite counts over all such steps.
  double last_norm = -1;
  double last_clip_factor = 1;
  uint64_t last_nonfinite = 0;
  uint64_t all_nonfinite = 0;
  Ending last_ending = Ending::made;  // of the last step, even a refused one
  Refusal last_refusal = Refusal::none;
  uint64_t layout = 0;  // of the optimizer as it is now; see Decide
  // For the current gradients.
  double factor = 1;       // turns their sums into gradients; includes clipping and loss scale
  double raw_norm = 0;     // of the sums, 0 if not taken
  double grad_norm = -1;   // before clipping, -1 if not taken
  double clip_factor = 1;  // 1: not clipped
  uint64_t nonfinite = 0;
  int32_t skip = 0;                 // 1: the update is not made
  Refusal refusal = Refusal::none;  // if set, the step is neither taken nor skipped
};

/// Returns true if the inverse of the scale, times 1/world and a clip factor, is an fp32 number.
ZERO_HOST_DEVICE inline bool loss_scale_allowed(double scale) {
  return scale >= 0x1p-100 && scale <= 0x1p100;
}

struct LossScaling {
  double growth_factor;
  double backoff_factor;
  int64_t growth_interval;
};

/// Does what torch.amp.GradScaler.update does: lowers the scale after a step with a value that was
/// not finite, and raises it after growth_interval steps without one. A new scale that is not
/// allowed is ignored. `good_steps` counts since the scale last changed, or would have changed.
ZERO_HOST_DEVICE inline void follow_loss_scale(double& scale, int64_t& good_steps, bool nonfinite,
                                               const LossScaling& options) {
  if (!nonfinite && ++good_steps != options.growth_interval) return;
  const double next = scale * (nonfinite ? options.backoff_factor : options.growth_factor);
  if (loss_scale_allowed(next)) scale = next;
  good_steps = 0;
}

}  // namespace zero
