// SPDX-License-Identifier: Apache-2.0
#include "comm/local/host_meeting.h"

#include "base/text.h"
#include "comm/local/gates.h"
#include "comm/local/socket.h"

namespace zero::local {
namespace {

constexpr int64_t kLookNs = 10'000'000;

}  // namespace

Result<HostMeeting> HostMeeting::open(const char* what, std::shared_ptr<Device> device,
                                      Control& control, int64_t timeout_ms,
                                      std::atomic<int64_t>& waits) {
  HostMeeting meeting(what, std::move(device), control, timeout_ms, waits);
  meeting.behind_ = ZERO_TRY(make_stream(meeting.device_));
  meeting.held_ = ZERO_TRY(make_event(meeting.device_));
  meeting.done_ = ZERO_TRY(make_event(meeting.device_));
  return meeting;
}

Status HostMeeting::pass(StreamHandle stream, const char* phase, const char* rule) {
  const Patience where{what_, phase, timeout_ms_, false};
  ZERO_TRY(device_->record(held_.handle(), stream));
  ZERO_TRY(device_->wait(behind_.handle(), held_.handle(), rule));
  ZERO_TRY(device_->record(done_.handle(), behind_.handle()));
  ++*waits_;
  // Twice the limit: the ranks that wait for this one's device are to name it first.
  ZERO_TRY(await(*device_, done_.handle(), 2 * timeout_ms_,
                 text("what comes before ", what_, " (", phase, ")"), [&] { return look(where); }));
  return control_->exchange({}, {}, where);
}

/// Whether a rank died, which this one's device would not show: asked now and then, as it costs a
/// system call a process.
Status HostMeeting::look(const Patience& where) {
  if (control_->aborted()) return control_->failure_status();
  const int64_t now = now_ns();
  if (now - looked_ns_ < kLookNs) return {};
  looked_ns_ = now;
  return control_->check(where);
}

Status HostGates::pass(Gate gate, StreamHandle stream, const char* rule) {
  return meeting_.pass(stream, name_of(gate), rule);
}

}  // namespace zero::local
