// SPDX-License-Identifier: Apache-2.0
// What nearly every test of zero.h needs: initialized structs, plain SGD, and checks that a call
// succeeds or fails with certain words.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "support/comms.h"
#include "zero.h"

namespace zero::test {

/// Returns a struct of zero.h with only its size set.
template <class Struct>
Struct initialized() {
  Struct made;
  ZERO_INIT(made);
  return made;
}

/// Returns options of which `choose` sets some.
template <class Choose>
zero_options options_with(const Choose& choose) {
  auto options = initialized<zero_options>();
  choose(options);
  return options;
}

/// SGD without momentum, whose steps are easy to compute. `lr` must outlive the options.
inline zero_options plain_sgd(const double& lr) {
  static const char* const names[] = {"lr"};
  auto options = initialized<zero_options>();
  options.optimizer = ZERO_OPTIMIZER_SGD;
  options.names = names;
  options.values = &lr;
  options.setting_count = 1;
  return options;
}
inline zero_options plain_sgd(const double& lr, const std::function<void(zero_options&)>& choose) {
  zero_options options = plain_sgd(lr);
  if (choose) choose(options);
  return options;
}
zero_options plain_sgd(double&&) = delete;
inline constexpr double kLr1 = 1;

/// Succeeds if the status is ZERO_OK.
inline ::testing::AssertionResult succeeded(zero_status status) {
  if (status == ZERO_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << zero_status_name(status) << ": " << last();
}
inline ::testing::AssertionResult succeeded(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.text();
}
#define EXPECT_OK(call) EXPECT_TRUE(::zero::test::succeeded(call))
#define ASSERT_OK(call) ASSERT_TRUE(::zero::test::succeeded(call))

/// Succeeds if the call returned `expected` and the last error contains these words.
inline ::testing::AssertionResult ends(int64_t status, int64_t expected, const std::string& words) {
  if (status == expected) return says(words);
  return ::testing::AssertionFailure()
         << "status " << status << " instead of " << expected << ": " << last();
}

}  // namespace zero::test
