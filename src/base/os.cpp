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

int rename_to_new(int directory, const std::string& from, const std::string& to) {
  const auto rename = [&](unsigned flags) {
    return uninterrupted(
        [&] { return os().renameat2(directory, from.c_str(), directory, to.c_str(), flags); });
  };
  const int answer = rename(RENAME_NOREPLACE);
  return answer != 0 && (errno == EINVAL || errno == ENOSYS) ? rename(0) : answer;
}

std::string working_directory() {
  char path[4096];
  return ::getcwd(path, sizeof path) != nullptr ? path : "unknown";
}

std::string read_small_file(const char* path, size_t most) {
  const Fd file = Fd::open([&] { return os().openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0); });
  std::string content(most, 0);
  size_t length = 0;
  while (file.valid() && length < most) {
    const ssize_t bytes = os().pread(file.get(), content.data() + length, most - length,
                                     static_cast<int64_t>(length));
    if (bytes <= 0) break;
    length += static_cast<size_t>(bytes);
  }
  content.resize(length);
  return content;
}

}  // namespace zero
