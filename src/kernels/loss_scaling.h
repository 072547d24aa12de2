// SPDX-License-Identifier: Apache-2.0
// How a loss scale follows what steps find, on hosts and devices.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace zero {

/// The inverse of a loss scale, times 1/world and a clip factor, is an fp32 number.
ZERO_HOST_DEVICE inline bool loss_scale_allowed(double scale) {
  return scale >= 0x1p-100 && scale <= 0x1p100;
}

struct LossScaling {
  double growth_factor;
  double backoff_factor;
  int64_t growth_interval;
};

/// torch.amp.GradScaler.update: back off after a step with a value that was not finite, grow after
/// so many steps without; not where no gradient could be divided by what comes out. `good_steps`:
/// since the scale last changed, or would have.
ZERO_HOST_DEVICE inline void follow_loss_scale(double& scale, int64_t& good_steps, bool nonfinite,
                                               const LossScaling& options) {
  if (!nonfinite && ++good_steps != options.growth_interval) return;
  const double next = scale * (nonfinite ? options.backoff_factor : options.growth_factor);
  if (loss_scale_allowed(next)) scale = next;
  good_steps = 0;
}

}  // namespace zero
