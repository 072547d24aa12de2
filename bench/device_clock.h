// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU with random numbers in it, and what work there takes.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

/// Seconds of one piece of work and of the host's part in it: of several in a row.
struct Times {
  double device, host;
};

class Clock {
 public:
  Clock(std::shared_ptr<zero::Device> device, void* stream)
      : device_(std::move(device)), stream_(stream), done_(must(make_event(device_))) {}

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
  /// Busy all the while: the library's own wait looks once a millisecond, which rounds would show.
  void wait() {
    must(device_->record(done_.handle(), stream_));
    const int64_t until_ms = zero::now_ms() + kPatienceMs;
    while (!must(device_->done(done_.handle()))) {
      if (zero::now_ms() > until_ms) must(zero::Status(ZERO_ERR_TIMEOUT, "a round does not end"));
    }
  }

 private:
  std::shared_ptr<zero::Device> device_;
  void* const stream_;
  zero::Event done_;
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Random bits of a floating type with its usual exponents.
inline void fill(zero::Device& device, std::byte* to, size_t bytes, uint64_t seed) {
  std::vector<float> values(std::min<size_t>(bytes / 4 + 1, size_t{1} << 24));
  random_fill(values.data(), values.size(), 1.0f, seed);
  for (size_t at = 0; at < bytes; at += values.size() * 4) {
    const size_t part = std::min(bytes - at, values.size() * 4);
    must(device.copy(nullptr, to + at, values.data(), part));
  }
}

}  // namespace bench
