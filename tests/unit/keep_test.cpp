// SPDX-License-Identifier: Apache-2.0
#include "base/keep.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace zero {
namespace {

int given_back = 0;

struct GivenBack {
  void operator()(int* memory) const {
    ++given_back;
    delete memory;
  }
};
using Memory = std::unique_ptr<int, GivenBack>;

TEST(Keep, what_is_kept_by_any_thread_is_never_given_back) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 100; ++n) keep_for_ever(Memory(new int(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(given_back, 0);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(__lsan_do_recoverable_leak_check(), 0);
#endif
}

}  // namespace
}  // namespace zero
