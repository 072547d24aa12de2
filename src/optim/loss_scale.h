// SPDX-License-Identifier: Apache-2.0
// The factor that an engine multiplies its loss by, so that small gradients survive in 16 bits, and
// how it follows what the steps find. Every rank has the same one, as it sees the same counts.
#pragma once

#include <cstdint>

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

  /// Its inverse, times 1/world and a clip factor, is an fp32 number.
  static bool allowed(double scale) { return scale >= 0x1p-100 && scale <= 0x1p100; }

  /// torch.amp.GradScaler.update: back off after a step with a value that was not finite, grow
  /// after so many steps without.
  void update(const LossScaleOptions& options, bool nonfinite) {
    if (nonfinite) {
      multiply(options.backoff_factor);
    } else if (++good_steps == options.growth_interval) {
      multiply(options.growth_factor);
    }
  }

 private:
  /// By `factor`, unless no gradient could be divided by what comes out.
  void multiply(double factor) {
    const double next = scale * factor;
    if (allowed(next)) scale = next;
    good_steps = 0;
  }
};

}  // namespace zero
