// SPDX-License-Identifier: Apache-2.0
// Whether tests may go without a GPU.
#pragma once

#include <cstdlib>
#include <string_view>

namespace zero::test {

/// True where ZERO_TEST_GPU=1 says that there is a GPU: a test that cannot use it fails.
inline bool gpu_is_wanted() {
  const char* const value = std::getenv("ZERO_TEST_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace zero::test
