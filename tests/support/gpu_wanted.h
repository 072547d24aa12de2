// SPDX-License-Identifier: Apache-2.0
// Determines whether tests may run without a GPU.
#pragma once

#include <cstdlib>
#include <string_view>

namespace zero::test {

/// Returns true if ZERO_TEST_GPU=1 states that there is a GPU. Then a test that cannot use it
/// fails.
inline bool gpu_is_wanted() {
  const char* const value = std::getenv("ZERO_TEST_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace zero::test
