// SPDX-License-Identifier: Apache-2.0
// System calls of a test's own, for the length of a block.
#pragma once

#include "base/os.h"

namespace zero::test {

struct ReplacedCalls {
  explicit ReplacedCalls(const SystemCalls& calls) { replace_system_calls(&calls); }
  ~ReplacedCalls() { replace_system_calls(nullptr); }
  ReplacedCalls(const ReplacedCalls&) = delete;
  ReplacedCalls& operator=(const ReplacedCalls&) = delete;
};

}  // namespace zero::test
