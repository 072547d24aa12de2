// SPDX-License-Identifier: Apache-2.0
#include "support/trials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iostream>

#include "support/ranks.h"

namespace zero::test {
namespace {

std::atomic<int64_t>& counted() {
  static const SharedMemory memory(sizeof(std::atomic<int64_t>));
  return *memory.as<std::atomic<int64_t>>();
}

class Teller : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    if (const int64_t trials = counted().exchange(0)) std::cout << "trials: " << trials << "\n";
  }
};

/// Created before the first test, so that all processes share the counter.
[[maybe_unused]] const bool tells = [] {
  counted();
  testing::UnitTest::GetInstance()->listeners().Append(new Teller);
  return true;
}();

}  // namespace

void count_trial() { counted().fetch_add(1); }

}  // namespace zero::test
