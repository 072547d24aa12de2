// SPDX-License-Identifier: Apache-2.0
// Replaces system calls of the library by functions of a test.
#pragma once

#include <deque>
#include <mutex>
#include <type_traits>

#include "base/os.h"

namespace zero::test {

/// Makes the library call `stand_in`, and leaves all its other calls as they are.
template <class Function>
void replace_call(Function SystemCalls::*call, std::type_identity_t<Function> stand_in) {
  static std::mutex mutex;
  static auto& tables = *new std::deque<SystemCalls>;  // never freed: a thread may be inside one
  const std::lock_guard lock(mutex);
  tables.emplace_back(os()).*call = stand_in;
  replace_system_calls(&tables.back());
}

/// Does the same while it exists.
class ReplacedCall {
 public:
  template <class Function>
  ReplacedCall(Function SystemCalls::*call, std::type_identity_t<Function> stand_in)
      : before_(&os()) {
    replace_call(call, stand_in);
  }
  ~ReplacedCall() { replace_system_calls(before_); }
  ReplacedCall(const ReplacedCall&) = delete;
  ReplacedCall& operator=(const ReplacedCall&) = delete;

 private:
  const SystemCalls* const before_;
};

}  // namespace zero::test
