// SPDX-License-Identifier: Apache-2.0
// Where streams of several ranks cannot wait for each other, the host does it for them: between two
// launches of a step it waits for its own stream, and then for the other ranks.
#pragma once

#include <atomic>
#include <memory>

#include "comm/comm.h"
#include "comm/local/control.h"

namespace zero::local {

/// Inside a call, which all ranks of the comm are in: its meetings are exchanges like any other.
class HostMeeting {
 public:
  /// `what` the meetings are, for errors. `control` and `waits`, which counts, outlive this.
  static Result<HostMeeting> open(const char* what, std::shared_ptr<Device> device,
                                  Control& control, int64_t timeout_ms,
                                  std::atomic<int64_t>& waits);

  /// Returns when what every rank's stream held before this is done. `phase`: a word for errors.
  /// `rule` as in Device::wait.
  Status pass(StreamHandle stream, const char* phase, const char* rule);

 private:
  HostMeeting(const char* what, std::shared_ptr<Device> device, Control& control,
              int64_t timeout_ms, std::atomic<int64_t>& waits)
      : what_(what),
        device_(std::move(device)),
        control_(&control),
        timeout_ms_(timeout_ms),
        waits_(&waits) {}
  Status look(const Patience& where);

  const char* what_;
  std::shared_ptr<Device> device_;
  Control* control_;
  int64_t timeout_ms_;
  std::atomic<int64_t>* waits_;
  Stream behind_;  // the caller's: what the host asks for is a wait between streams, like any other
  Event held_, done_;
  int64_t looked_ns_ = 0;
};

/// Gates at which the host waits. What is queued behind one has all that it needs.
class HostGates final : public Gates {
 public:
  explicit HostGates(HostMeeting meeting) : meeting_(std::move(meeting)) {}

  Status pass(Gate gate, StreamHandle stream, const char* rule) override;
  const uint32_t* broken() const override { return nullptr; }

 private:
  HostMeeting meeting_;
};

}  // namespace zero::local
