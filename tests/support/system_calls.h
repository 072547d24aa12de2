// SPDX-License-Identifier: Apache-2.0
// A function of a test's own in the place of one of the system's calls.
#pragma once

#include <deque>
#include <mutex>
#include <type_traits>

#include "base/os.h"

namespace zero::test {

/// From now on the library calls `stand_in`, and for the rest what it has called so far.
template <class Function>
void replace_call(Function SystemCalls::*call, std::type_identity_t<Function> stand_in) {
  static std::mutex mutex;
  static auto& tables = *new std::deque<SystemCalls>;  // for ever: a thread may still be inside one
  const std::lock_guard lock(mutex);
  tables.emplace_back(os()).*call = stand_in;
  replace_system_calls(&tables.back());
}

/// The same while it lives.
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
