// SPDX-License-Identifier: Apache-2.0
// Round to nearest, denormals kept, whatever the caller's thread has set; restored on the way out.
#pragma once

#include <cstdint>

namespace zero {

class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace zero
