// SPDX-License-Identifier: Apache-2.0
// Expectations about a Status or a Result.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/text.h"

namespace zero::test {

/// Succeeds if `said` contains all parts. The failure shows it.
template <class... Parts>
::testing::AssertionResult contains(std::string_view said, const Parts&... parts) {
  for (const std::string_view part : {std::string_view(parts)...})
    if (said.find(part) == std::string_view::npos)
      return ::testing::AssertionFailure() << "'" << said << "' does not say '" << part << "'";
  return ::testing::AssertionSuccess() << "'" << said << "'";
}

/// Returns "ok", or "ZERO_ERR_...: " and the reason.
inline std::string outcome(const Status& status) {
  return status.ok() ? "ok" : text(code_name(status.code()), ": ", status.text());
}

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.text(); }

/// Expects this code, and all these words in the text.
template <class... Words>
void expect_failure(const Status& status, Code code, const Words&... words) {
  EXPECT_EQ(status.code(), code) << outcome(status);
  EXPECT_TRUE(contains(status.text(), words...));
}
template <class T, class... Words>
void expect_failure(const Result<T>& result, Code code, const Words&... words) {
  ASSERT_FALSE(result.ok());
  expect_failure(result.failure(), code, words...);
}

/// Returns the value of a call that must not fail.
template <class T>
T made(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.failure().text();
  return result.ok() ? std::move(*result) : T();
}

}  // namespace zero::test
