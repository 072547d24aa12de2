// SPDX-License-Identifier: Apache-2.0
// The data that a step on a device with streams keeps between calls: streams and events, the tables
// that launches walk, and the progress as the device knows it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "device/device.h"
#include "step/memory.h"
#include "step/queued/tables.h"

namespace zero::queued {

/// Returns how long to wait for queued work. At a gate a stream may wait as long for another rank
/// as the host does for this one's own work, and the gates' watch must name that rank first.
inline int64_t patience_ms(Comm& comm) {
  return comm.options().timeout_ms * (comm.gates() == nullptr ? 1 : 2);
}

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

/// Copies that the host need not wait for, through a few buffers, one after the other: one is
/// written again when the device has read it.
class Upload {
 public:
  static Result<Upload> create(const std::shared_ptr<Comm>& comm);

  /// Makes room for blocks of so many bytes, so that put() cannot fail for lack of memory.
  Status reserve(size_t bytes);
  Status put(StreamHandle stream, void* to, std::span<const std::byte> bytes);

 private:
  struct Slot {
    HostBuffer buffer;
    Event read;
  };

  Status await(const Slot& slot) const;

  std::shared_ptr<Comm> comm_;
  std::array<Slot, 3> slots_;
  size_t next_ = 0;
};

/// A stream that makes gradients.
struct Announcing {
  StreamHandle stream;
  Event event;
  bool waited;  // a call waits for what it last announced
};

/// The tables that one call walks, and the events that it waits by. A captured call has a frame of
/// its own, which stays as long as the optimizer, because its graph holds the addresses.
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
  // A captured call uses these instead of the plane's, because it cannot wait for events that were
  // recorded elsewhere.
  Event plane_reduced, plane_gathered;
};

struct Queue : Frame {
  static Result<std::unique_ptr<Queue>> create(const Optimizer& optim);
  Queue() = default;
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Streams and events that a call waits by.
  Status make_frame();

  std::shared_ptr<Comm> comm;
  Device* device;
  int64_t timeout_ms;
  Upload tables_upload, settings_upload, progress_upload;

  std::vector<Announcing> announcing;
  Stream looks;  // the host reads by it, because the caller's may be gone by then
  Event looked;
  // With overlap_gather parameters may travel behind the step, and zero_param_wait comes from any
  // thread.
  std::mutex waiting;
  bool gathering = false;
  std::shared_ptr<const std::vector<int32_t>> last_gathers;  // of that step, as in its tables
  const Frame* aside = nullptr;  // frame of the other calls, while one is captured

  std::vector<Frame> captured;
  std::vector<Memory> retired;  // graphs may still know it
  uint64_t layout_sent = 0;

  Memory progress, state, records;
  std::shared_ptr<Arena> shared_records;  // instead of records, if other ranks write theirs there
  HostBuffer progress_read, state_read;
  std::vector<std::shared_ptr<Arena>> leaving;  // in use no more by calls to come
  StepState known;                              // as last read or written
  bool host_is_newer = true;  // the host's progress counts, and is written before the next step
  bool in_flight = false;     // the device may be ahead of what is known
  bool publishing = false;  // and this rank may have parameters of a step that others have not made
  Code failed = ZERO_OK;    // of the latest zero_step, if it was not queued
  StreamHandle last_stream = nullptr;  // on which `ended` was recorded

  /// Waits until `event` is done. Fails if the comm breaks.
  Status await(const Event& event, std::string_view what) const;
  /// Waits until nothing that is queued uses this memory any more.
  Status drain() const;
  /// Waits for the end of all queued work, also on a broken comm. Returns false if the device still
  /// uses memory of the optimizer after timeout_ms: then arenas that it may use must stay.
  bool await_end() noexcept;
  bool await_flight();
  bool await_all_streams();
  /// Note that a step is queued, and that all queued steps have been made.
  void note_publishing();
  void note_published();
  /// Waits until the work queued on `looks` is done.
  Status await_looks();

  /// True if launches of graphs may have made steps that the host knows nothing of.
  bool replays() const { return !captured.empty(); }
  /// Gives `memory` back, unless a graph may still know it.
  void retire(Memory memory) {
    if (replays() && memory.bytes() > 0) retired.push_back(std::move(memory));
  }
  /// Keeps arenas of calls before until nothing that is queued reads or writes them.
  void keep(std::span<const std::shared_ptr<Arena>> arenas) {
    leaving.insert(leaving.end(), arenas.begin(), arenas.end());
  }

  StepState* device_state() const { return reinterpret_cast<StepState*>(state.data()); }
  NormSums* records_of_all() const {
    std::byte* const shared = shared_records != nullptr ? shared_records->data() : records.data();
    return reinterpret_cast<NormSums*>(shared);
  }
};

/// Counts, for an optimizer, what the comm does by way of the host during one of its calls.
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

/// Brings the host's changes to where launches of captured steps read them, and waits for that:
/// settings and, with `all`, the progress. Does nothing if no step was captured.
Status send_changes(Optimizer& optim, bool all);
/// Returns the layout that a graph captured now depends on.
uint64_t layout_of(const Optimizer& optim);

/// True if the host's progress may be ahead of the device's, because steps in flight may have been
/// skipped.
bool may_have_skipped(const Optimizer& optim, const StepMemory& memory);

/// Notes that the work on `stream` so far makes announced gradients. The next call goes behind it.
Status note_announced(Optimizer& optim, StreamHandle stream);

/// Makes later work on `stream` see the parameter's values of the latest step; for ZERO_ALL_PARAMS,
/// those of all parameters. Any thread may call it.
Status wait_for_param(Optimizer& optim, int64_t param, StreamHandle stream);

/// Waits for what is queued, and brings the progress to the host, which may then change it.
Status settle(Optimizer& optim);

// ---- Calls whose stream is captured: what they queue is done by each launch of a graph, later and
// without the host (capture.cpp).

/// Returns this rank's reason to refuse a call in `capture` (0: in none), such as sums that belong
/// to another capture. For a call in a capture it also waits until all steps so far have been made.
Status check_capture(Optimizer& optim, uint64_t capture);

/// A call, which may be captured. A captured call works with a frame of its own, which stays if
/// anything was queued. From then on each parameter has a class of its own: only launches, of which
/// the host knows nothing, decide which parameters have made the same steps.
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
  Frame other_;  // frame of the calls that are not captured
  const Counters counters_;
};

// ---- Data of the host's that the device reads: tables, settings, progress.

/// Returns the present settings of classes and groups, the slots that groups use, and the places of
/// settings that the caller keeps.
Blob settings_of_now(const Optimizer& optim, Frame& frame);

/// Sends what the device has not been sent yet, in the order of `stream`.
Status send(const Optimizer& optim, StepMemory& memory, StreamHandle stream);

}  // namespace zero::queued
