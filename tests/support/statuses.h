// SPDX-License-Identifier: Apache-2.0
// What tests expect of a Status or a Result.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace zero::test {

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.text(); }

/// With this code, and these words in its text.
inline void expect_failure(const Status& status, Code code, std::string_view words) {
  EXPECT_EQ(status.code(), code);
  EXPECT_NE(status.text().find(words), std::string::npos)
      << "'" << words << "' is not in: " << status.text();
}
template <class T>
void expect_failure(const Result<T>& result, Code code, std::string_view words) {
  ASSERT_FALSE(result.ok());
  expect_failure(result.failure(), code, words);
}

/// What a call that must not fail gives.
template <class T>
T made(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.failure().text();
  return result.ok() ? std::move(*result) : T();
}

}  // namespace zero::test
