// SPDX-License-Identifier: Apache-2.0
// The trace of one seat: what its threads did, and for whom they waited, as a file of Chrome's
// Trace Event Format; and, on a device, as ranges for the device's own tools. Threads note events
// in memory of a fixed size; one more thread writes them, so nobody waits for the disk. What finds
// no room is dropped and counted.
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

  /// What a file says of its seat.
  struct Seat {
    std::string group;  // tells comms of one rank apart; "" for the first
    int32_t rank;
    int32_t world;
    const char* comm;
  };

  /// `device`: whose tools see ranges, also while there is no file; or null.
  explicit Trace(Device* device);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Begins a file in `directory`, which is made if it is not there.
  Status start(const std::string& directory, const Seat& seat);
  /// Ends the file. Fails if it lacks something that the disk refused.
  Status stop();
  bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Notes what this thread did. `value`: the rank that a wait was for (-1: unknown), the bytes of
  /// a transfer.
  void add(Kind kind, std::string_view name, int64_t begin_ns, int64_t end_ns, int64_t value = 0);

  /// Begins a range for the device's tools.
  DeviceRange range(const char* name) const { return {device_, name}; }

  /// From now on `offset_ns` is added to times, to make them rank 0's.
  void set_offset_ns(int64_t offset_ns);

 private:
  struct Event;
  struct State;

  Device* const device_;
  std::atomic<bool> on_{false};
  const std::shared_ptr<State> state_;  // also the writer's, which may outlive this
  Apart<Status> writer_;
};

/// Notes what a thread does while this lives.
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

/// A phase of a call: its time is also added to a counter.
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
