// SPDX-License-Identifier: Apache-2.0
#include "base/os.h"

#include <atomic>

namespace zero {
namespace {

static_assert(sizeof(off_t) == sizeof(int64_t));

constexpr SystemCalls kRealCalls = {};
std::atomic<const SystemCalls*> in_force{&kRealCalls};

}  // namespace

const SystemCalls& os() { return *in_force.load(std::memory_order_acquire); }

void replace_system_calls(const SystemCalls* calls) {
  in_force.store(calls != nullptr ? calls : &kRealCalls, std::memory_order_release);
}

const SystemCalls& real_system_calls() { return kRealCalls; }

int64_t now_ns() {
  struct timespec time = {};
  os().clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t now_ms() { return now_ns() / 1'000'000; }

std::string working_directory() {
  char path[4096];
  return ::getcwd(path, sizeof path) != nullptr ? path : "unknown";
}

int usable_cores() {
  cpu_set_t cores[8];
  CPU_ZERO_S(sizeof cores, cores);
  if (os().sched_getaffinity(0, sizeof cores, cores) < 0) return 1;
  const int count = CPU_COUNT_S(sizeof cores, cores);
  return count > 0 ? count : 1;
}

}  // namespace zero
