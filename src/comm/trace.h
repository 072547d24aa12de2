// SPDX-License-Identifier: Apache-2.0
// The trace of one rank of a comm. It records what the threads did and which ranks they waited for,
// in a file in Chrome's Trace Event Format. On a device it also marks ranges for the device's own
// tools. Threads record events in a fixed amount of memory, and another thread writes them, so that
// no thread waits for the disk. Events that find no room are dropped and counted.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/os.h"
#include "base/status.h"
#include "comm/apart.h"
#include "device/device.h"

namespace zero {

class Trace {
 public:
  enum class Kind : uint8_t { call, phase, transfer, wait };

  /// What a file says about its rank.
  struct Seat {
    std::string group;  // distinguishes comms of one rank; "" for the first
    int32_t rank;
    int32_t world;
    const char* comm;
  };

  /// The tools of `device` see ranges even while no file is written. `device` may be null.
  explicit Trace(Device* device);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Begins a file in `directory`, which is created if it does not exist.
  Status start(const std::string& directory, const Seat& seat);
  /// Ends the file. Fails if the file is incomplete because of a disk error.
  Status stop();
  bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Records what this thread did. `value` is the rank that a wait was for (-1 if unknown), or the
  /// number of bytes of a transfer.
  void add(Kind kind, std::string_view name, int64_t begin_ns, int64_t end_ns, int64_t value = 0);

  /// Begins a range for the device's tools.
  DeviceRange range(const char* name) const { return {device_, name}; }

  /// Sets the offset that is added to later times to convert them to rank 0's clock.
  void set_offset_ns(int64_t offset_ns);

 private:
  struct Event;
  struct State;

  Device* const device_;
  std::atomic<bool> on_{false};
  const std::shared_ptr<State> state_;  // shared with the writer, which may outlive this object
  Apart<Status> writer_;
};

/// Records what a thread does during the lifetime of this object.
class Span {
 public:
  Span(Trace& trace, Trace::Kind kind, const char* name, size_t bytes = 0)
      : trace_(trace),
        range_(trace.range(name)),
        kind_(kind),
        name_(name),
        bytes_(bytes),
        begin_ns_(trace.on() ? now_ns() : 0) {}
  ~Span() {
    if (begin_ns_ != 0) trace_.add(kind_, name_, begin_ns_, now_ns(), static_cast<int64_t>(bytes_));
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace& trace_;
  const DeviceRange range_;
  const Trace::Kind kind_;
  const char* const name_;
  const size_t bytes_;
  const int64_t begin_ns_;
};

/// Records a phase of a call, and adds its duration to a counter.
class TimedSpan {
 public:
  TimedSpan(Trace& trace, const char* name, double& seconds)
      : trace_(trace),
        range_(trace.range(name)),
        name_(name),
        seconds_(seconds),
        begin_ns_(now_ns()) {}
  ~TimedSpan() {
    const int64_t end_ns = now_ns();
    seconds_ += static_cast<double>(end_ns - begin_ns_) * 1e-9;
    trace_.add(Trace::Kind::phase, name_, begin_ns_, end_ns);
  }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;

 private:
  Trace& trace_;
  const DeviceRange range_;
  const char* const name_;
  double& seconds_;
  const int64_t begin_ns_;
};

}  // namespace zero
