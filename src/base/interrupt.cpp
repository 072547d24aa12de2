// SPDX-License-Identifier: Apache-2.0
// As in log.cpp, the function is copied under a lock and called without it.
#include "base/interrupt.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/callers_time.h"
#include "base/os.h"

namespace zero {
namespace {

constexpr int64_t kPauseNs = 50'000'000;

std::mutex hook_mutex;
zero_interrupt_fn function = nullptr;
void* function_ctx = nullptr;
std::atomic<bool> is_set{false};

struct Thread {
  int calls = 0;         // number of calls that the thread is in
  int64_t asked_ns = 0;  // time of the last query, or of the first poll of a call
  bool interrupted = false;
  bool told = false;  // interrupted() has returned true in this call
};
thread_local Thread thread;

}  // namespace

void set_interrupt(zero_interrupt_fn ask, void* ctx) {
  const std::lock_guard lock(hook_mutex);
  function = ask;
  function_ctx = ctx;
  is_set.store(ask != nullptr, std::memory_order_relaxed);
}

bool interrupted() {
  if (thread.calls == 0) return false;
  if (thread.interrupted) return thread.told = true;
  if (!is_set.load(std::memory_order_relaxed)) return false;
  const int64_t now = now_ns();
  if (thread.asked_ns == 0) thread.asked_ns = now;
  if (now - thread.asked_ns < kPauseNs) return false;
  thread.asked_ns = now;
  if (os().gettid() != os().getpid()) return false;
  std::unique_lock lock(hook_mutex);
  const auto [ask, ctx] = std::pair(function, function_ctx);
  lock.unlock();
  const CallersTime spent;
  return thread.told = thread.interrupted = ask != nullptr && ask(ctx) != 0;
}

InterruptibleCall::InterruptibleCall() {
  if (thread.calls++ != 0) return;
  thread.asked_ns = 0;
  thread.told = false;
}

InterruptibleCall::~InterruptibleCall() { thread.calls--; }

bool InterruptibleCall::heeds() const {
  return thread.calls == 1 && thread.told && std::exchange(thread.interrupted, false);
}

}  // namespace zero
