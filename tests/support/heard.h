// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>

#include "base/log.h"

namespace zero::test {

/// Collects the log of all ranks that are threads, while it exists.
class Heard {
 public:
  Heard() { set_log(hear, this, ZERO_LOG_INFO); }
  ~Heard() { set_log(nullptr, nullptr, ZERO_LOG_INFO); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  std::string text;

 private:
  static void hear(void* ctx, int32_t, const char* message) {
    auto* const heard = static_cast<Heard*>(ctx);
    const std::lock_guard lock(heard->mutex_);
    heard->text += message;
  }
  std::mutex mutex_;
};

}  // namespace zero::test
