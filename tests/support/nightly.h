// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace zero::test {

/// Returns true if ZERO_TEST_NIGHTLY=1 asks for the exhaustive tests, which take longer than a
/// minute.
inline bool nightly_run() {
  const char* const value = std::getenv("ZERO_TEST_NIGHTLY");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace zero::test
