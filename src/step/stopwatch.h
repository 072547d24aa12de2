// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/os.h"

namespace zero {

/// Adds the time until its destruction to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(now_ns()) {}
  ~Stopwatch() { seconds_ += static_cast<double>(now_ns() - start_) * 1e-9; }

 private:
  double& seconds_;
  int64_t start_;
};

}  // namespace zero
