// SPDX-License-Identifier: Apache-2.0
// While a FloatEnvironment exists, this thread rounds to nearest and keeps denormals, whatever the
// caller has set. The destructor restores the caller's settings.
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
