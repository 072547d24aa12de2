// SPDX-License-Identifier: Apache-2.0
// What a step on a device with streams keeps between calls: its streams and events, the tables that
// launches walk, and what the device knows of the progress.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "step/memory.h"
#include "step/queued/tables.h"
#include "step/queued/upload.h"

namespace zero::queued {

/// The orders that a step keeps between streams, by name.
namespace order {
inline constexpr const char* kAnnounced = "an announced gradient is final before it is reduced";
inline constexpr const char* kGiven = "gradients are final before they are reduced";
inline constexpr const char* kSummed = "sums have arrived before they are read";
inline constexpr const char* kMeasured = "a record is whole before it travels";
inline constexpr const char* kDecided = "the records of all have arrived before they are added";
inline constexpr const char* kReduced = "reductions are over before parameters travel";
inline constexpr const char* kApart = "nothing else of the comm travels at the same time";
inline constexpr const char* kUpdated = "parameters are updated before they travel";
inline constexpr const char* kGathered = "parameters have arrived before they are read";
inline constexpr const char* kArrived = "a parameter that is waited for has arrived";
inline constexpr const char* kEnded = "a call has ended before the next one on another stream";
inline constexpr const char* kLooked = "steps are made before the host looks";
inline constexpr const char* kShared = "what a root sends is written before it travels";
inline constexpr const char* kEntered = "gradients and parameters are final on every rank";
inline constexpr const char* kReread = "records are read before the next ones are written";
inline constexpr const char* kTold = "the records of all are written before they are read";
inline constexpr const char* kPublished =
    "parameters are written by their owners before they are read";
inline constexpr const char* kForked = "every stream of a captured call is captured";
inline constexpr const char* kJoined = "all of a captured call ends before what comes after it";
}  // namespace order

/// A stream that makes gradients.
struct Announcing {
  StreamHandle stream;
  Event event;
  bool waited;  // for what it last announced
};

/// What one call walks, and waits by. A captured call has one of its own, which stays as long as
/// the optimizer, because its graph holds the addresses.
struct Frame {
  uint64_t capture = 0;  // its number; 0: none
  uint64_t layout = 0;   // Optimizer::layout and slots in use that a captured call is made for

  Tables tables;
  Memory table_memory;
  bool tables_uploaded = false;

  // Behind each other: settings of classes, of groups, slots that groups use, settings to fetch.
  Memory settings;
  std::vector<std::byte> settings_sent;
  size_t group_settings_at = 0, groups_used_at = 0, given_at = 0;
  uint32_t given_count = 0;
  Memory scalars;

  // For comms whose data travels through collectives: one stream for each direction.
  Stream reduces, gathers;
  Event given, measured, decided, gathered, ended;
  std::vector<Event> summed, updated, arrived;  // by transfer
  // For a captured call, in place of the plane's: it cannot wait for what was recorded elsewhere.
  Event plane_reduced, plane_gathered;
};

struct Queue : Frame {
  static Result<std::unique_ptr<Queue>> create(const Optimizer& optim);
  Queue() = default;
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  std::shared_ptr<Comm> comm;
  Device* device;
  int64_t timeout_ms;
  Upload tables_upload, settings_upload, progress_upload;

  std::vector<Announcing> announcing;
  Stream looks;  // by which the host reads: the caller's may be gone by then
  Event looked;
  // With overlap_gather parameters may travel behind the step, and zero_param_wait comes from any
  // thread.
  std::mutex waiting;
  bool gathering = false;
  std::shared_ptr<const std::vector<int32_t>> last_gathers;  // of that step, as in its tables
  const Frame* aside = nullptr;  // of calls that are not captured, while one is

  std::vector<Frame> captured;
  std::vector<Memory> retired;  // that graphs may still know
  uint64_t layout_sent = 0;

  Memory progress, state, records;
  std::shared_ptr<Arena> shared_records;  // instead, where other ranks write theirs there
  HostBuffer progress_read, state_read;
  StepState known;            // as last read or written
  bool host_is_newer = true;  // the host's progress counts, and is written before the next step
  bool in_flight = false;     // the device may be ahead of what is known
  bool publishing = false;  // and some parameters may be those of a step that others have not made
  std::vector<std::shared_ptr<Arena>> leaving;  // in use no more by calls to come
  Code failed = ZERO_OK;                        // of the latest zero_step, which was not queued
  StreamHandle last_stream = nullptr;           // on which `ended` was recorded

  /// Until `event` is done, as long as the comm is sound.
  Status await(const Event& event, std::string_view what) const;
  /// Nothing that is queued uses its memory any more.
  Status drain() const;
  /// At the end, also of a broken comm. False if the device has not done with the memory of its
  /// optimizer after timeout_ms: arenas that it may still use must stay, as those that are leaving
  /// do.
  bool await_end() noexcept;
  bool await_flight();
  bool await_all_streams();
  /// A step is queued; and what is queued of steps has been made.
  void note_publishing();
  void note_published();
  /// Memory that is leaving is freed once nothing uses it.
  Status let_go();
  /// What is queued on `looks` is done.
  Status await_looks();

  /// Launches of graphs may have made steps that the host knows nothing of.
  bool replays() const { return !captured.empty(); }
  /// Give `memory` back, unless a graph may still know it.
  void retire(Memory memory) {
    if (replays() && memory.bytes() > 0) retired.push_back(std::move(memory));
  }

  StepState* device_state() const { return reinterpret_cast<StepState*>(state.data()); }
  NormSums* records_of_all() const {
    std::byte* const shared = shared_records != nullptr ? shared_records->data() : records.data();
    return reinterpret_cast<NormSums*>(shared);
  }
};

/// Adds what the comm does by way of the host meanwhile, inside a call on this optimizer, to its
/// counters.
class HostShare {
 public:
  explicit HostShare(Optimizer& optim)
      : optim_(optim), waits_(optim.comm->host_waits), bytes_(optim.comm->staged_bytes) {}
  ~HostShare() {
    optim_.counters.host_waits += optim_.comm->host_waits - waits_;
    optim_.counters.copied_bytes += optim_.comm->staged_bytes - bytes_;
  }
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;

 private:
  Optimizer& optim_;
  const int64_t waits_, bytes_;
};

/// Whatever may fail on one rank alone before anything is queued: memory and tables for the views
/// at hand. What the host sends of a captured call has arrived.
Status prepare(Optimizer& optim, StepMemory& memory);

/// Begin a call on `stream`: behind the call before, with tables, settings and progress on the
/// device.
Status begin(Optimizer& optim, StepMemory& memory, StreamHandle stream);
/// Everything of the call is queued; what comes after it on `stream` sees it.
Status end(Queue& queue, StreamHandle stream);

/// Wait for what is queued on `stream`, which is `what`, and may use what goes when this is over.
Status finish(const Optimizer& optim, StreamHandle stream, std::string_view what);

/// Wait, if steps were captured, until what the host has changed is where launches of their graphs
/// read it: settings, and with `all` what steps leave.
Status send_changes(Optimizer& optim, bool all);
/// What a graph that is captured now depends on.
uint64_t layout_of(const Optimizer& optim);

/// True if the host's progress may be ahead of the device's: steps in flight can have been skipped.
bool may_have_skipped(const Optimizer& optim, const StepMemory& memory);

/// What `stream` holds so far makes gradients that were announced: the next call goes behind it.
Status note_announced(Optimizer& optim, StreamHandle stream);

/// What comes on `stream` from here on sees the parameter's values of the latest step; all of them
/// for ZERO_ALL_PARAMS. Any thread.
Status wait_for_param(Optimizer& optim, int64_t param, StreamHandle stream);

/// Wait for what is queued, and let the host know the progress: it may change it then.
Status settle(Optimizer& optim);

// ---- Calls whose stream is captured: what they queue is done by each launch of a graph, later and
// without the host (capture.cpp).

/// What must be known before a call is part of `capture`, or is made outside of the capture in
/// which its sums are: this rank's reason to refuse it. Steps so far have been made then.
Status check_capture(Optimizer& optim, uint64_t capture);

/// The turn of a call, which may be captured. Then it walks with a frame of its own, which stays if
/// anything was queued, and from now on each parameter has a class of its own: which of them have
/// made the same steps depends on launches, of which the host knows nothing.
class CapturedCall {
 public:
  CapturedCall(Optimizer& optim, uint64_t capture);
  ~CapturedCall();
  CapturedCall(const CapturedCall&) = delete;
  CapturedCall& operator=(const CapturedCall&) = delete;

 private:
  void exchange();

  Optimizer& optim_;
  StepMemory& memory_;
  const bool captured_;
  Frame other_;  // that of the calls that are not captured
  const Counters counters_;
};

/// All streams of a captured call take part in the capture, from here ...
Status fork(const Optimizer& optim, Queue& queue, StreamHandle stream);
/// ... to here.
Status join(Queue& queue, StreamHandle stream);

// ---- What the host knows and the device reads: tables, settings, progress.

/// Settings of classes and groups, the slots that groups use, and where settings that the caller
/// keeps stand, as of now.
Blob settings_of_now(const Optimizer& optim, Frame& frame);

/// What the device has not been sent yet, in the order of `stream`.
Status send(const Optimizer& optim, StepMemory& memory, StreamHandle stream);

}  // namespace zero::queued
