// SPDX-License-Identifier: Apache-2.0
// GPU memory with random numbers, and the time that work on it takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/os.h"
#include "device/device.h"
#include "random_fill.h"
#include "zero.h"

namespace bench {

inline constexpr int64_t kPatienceMs = 60'000;

template <class Value>
Value must(zero::Result<Value> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.failure().text().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

inline void must(zero::Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.text().c_str());
  std::exit(1);
}

inline void must(zero_status status, const char* what) {
  if (status >= 0) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, zero_status_name(status), zero_last_error());
  std::exit(1);
}

/// Seconds of one unit of work, and of the host's part of it, averaged over several in a row.
struct Times {
  double device, host;
};

class Clock {
 public:
  Clock(std::shared_ptr<zero::Device> device, void* stream)
      : device_(std::move(device)), stream_(stream), done_(must(make_event(device_))) {}

  /// Returns how often to repeat `work` in a round of `round_seconds`. Runs it a few times before,
  /// because the first run creates tables, loads kernels and wakes the GPU.
  template <class Work>
  int repeats(double round_seconds, const Work& work) {
    time(kFirst, work);
    return std::clamp(static_cast<int>(round_seconds / time(kFirst, work).device), 1, 1000);
  }

  template <class Work>
  Times time(int repeats, const Work& work) {
    wait();
    const int64_t start = zero::now_ns();
    for (int i = 0; i < repeats; i++) work();
    const int64_t queued = zero::now_ns();
    wait();
    const int64_t end = zero::now_ns();
    return {static_cast<double>(end - start) * 1e-9 / repeats,
            static_cast<double>(queued - start) * 1e-9 / repeats};
  }
  /// Polls all the time. The library's own wait polls once per millisecond, which would show in the
  /// rounds.
  void wait() {
    must(device_->record(done_.handle(), stream_));
    const int64_t until_ms = zero::now_ms() + kPatienceMs;
    while (!must(device_->done(done_.handle()))) {
      if (zero::now_ms() > until_ms) must(zero::Status(ZERO_ERR_TIMEOUT, "a round does not end"));
    }
  }

 private:
  static constexpr int kFirst = 10;

  std::shared_ptr<zero::Device> device_;
  void* const stream_;
  zero::Event done_;
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Fills memory with finite random numbers in fp32, or in bf16, which are the upper halves of
/// those.
inline void fill(zero::Device& device, std::byte* to, size_t bytes, bool halves, uint64_t seed) {
  std::vector<float> values(std::min<size_t>(bytes / 2 + 1, size_t{1} << 24));
  random_fill(values.data(), values.size(), 1.0f, seed);
  std::vector<uint16_t> upper(halves ? values.size() : 0);
  for (size_t i = 0; i < upper.size(); i++) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof bits);
    upper[i] = static_cast<uint16_t>(bits >> 16);
  }
  const void* const from = halves ? static_cast<const void*>(upper.data()) : values.data();
  const size_t most = values.size() * (halves ? 2 : 4);
  for (size_t at = 0; at < bytes; at += most)
    must(device.copy(nullptr, to + at, from, std::min(bytes - at, most)));
}

}  // namespace bench
