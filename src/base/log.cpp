// SPDX-License-Identifier: Apache-2.0
// The callback is copied under a lock and called outside it, so one that blocks holds up its own
// caller only. The level is a variable of its own, so a log that is off costs one load.
#include "base/log.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kLongestBytes = 4095;

std::mutex mutex;
zero_log_fn callback = nullptr;
void* callback_ctx = nullptr;
std::atomic<int32_t> highest_level{0};

}  // namespace

void set_log(zero_log_fn log, void* ctx, int32_t max_level) {
  const std::lock_guard lock(mutex);
  callback = log;
  callback_ctx = ctx;
  highest_level.store(log != nullptr ? max_level : 0, std::memory_order_relaxed);
}

void log(int32_t level, std::string_view message) {
  if (level > highest_level.load(std::memory_order_relaxed)) return;
  // Not in a string: destructors log, too, and memory may have run out.
  char terminated[kLongestBytes + 1];
  const std::string_view shown = utf8_prefix(message, kLongestBytes);
  shown.copy(terminated, shown.size());
  terminated[shown.size()] = '\0';
  std::unique_lock lock(mutex);
  if (level > highest_level.load(std::memory_order_relaxed)) return;
  const auto [log, ctx] = std::pair(callback, callback_ctx);
  lock.unlock();
  log(ctx, level, terminated);
}

}  // namespace zero
