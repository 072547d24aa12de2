// SPDX-License-Identifier: Apache-2.0
// The factor that an engine multiplies its loss by, so that small gradients survive in 16 bits, and
// how it follows what the steps find. Every rank has the same one, as it sees the same counts.
#pragma once

#include <cstdint>

#include "kernels/loss_scaling.h"

namespace zero {

struct LossScaleOptions {
  double initial = 0;  // 0: the scale stays as it is set
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  bool dynamic() const { return initial > 0; }
};

struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // since the scale last changed

  static bool allowed(double scale) { return loss_scale_allowed(scale); }
};

}  // namespace zero
