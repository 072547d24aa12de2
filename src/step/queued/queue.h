// SPDX-License-Identifier: Apache-2.0
// The data that steps on a device with streams keep between calls. These are streams, events, the
// tables that launches read, and the progress of parameters on the device.
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

/// Returns how long to wait for queued work. A stream may wait at a gate for another rank as long
/// as the host waits for this rank's own work, and the gates must report that rank before this wait
/// ends.
inline int64_t patience_ms(Comm& comm) {
  return comm.options().timeout_ms * (comm.gates() == nullptr ? 1 : 2);
}

/// The reasons why a step makes one stream wait for another.
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

/// Copies data to the device without waiting for the copy. Uses a few buffers in turn. A buffer is
/// reused after the device has read it.
class Upload {
 public:
  static Result<Upload> create(const std::shared_ptr<Comm>& comm);

  /// Allocates room for blocks of `bytes` bytes, so that put() cannot fail for lack of memory.
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

/// A stream that computes gradients.
struct Announcing {
  uint64_t stream;  // Device::number_of
  Event event;
  bool waited;  // a call has queued a wait for `event`
};

/// The tables and events of a call. Each captured call has its own frame, which lives as long as
/// the optimizer, because the graph holds addresses in it.
struct Frame {
  uint64_t capture = 0;  // number of the capture; 0: none
  uint64_t layout = 0;   // layout_of() when the call was captured

  Tables tables;
  Memory table_memory;
  bool tables_uploaded = false;

  // In this order: settings of classes, settings of groups, slots that groups use, and the settings
  // to fetch from device memory.
  Memory settings;
  std::vector<std::byte> settings_sent;
  size_t group_settings_at = 0, groups_used_at = 0, given_at = 0;
  uint32_t given_count = 0;
  Memory scalars;

  // On comms that transfer data through collectives, one stream for each direction.
  Stream reduces, gathers;
  Event given, measured, decided, gathered, ended;
  std::vector<Event> summed, updated, arrived;  // by transfer
  // A captured call uses these instead of the events of the plane, because it cannot wait for
  // events that were recorded outside its capture.
  Event plane_reduced, plane_gathered;
};

struct Queue : Frame {
  static Result<std::unique_ptr<Queue>> create(const Optimizer& optim);
  Queue() = default;
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Creates the streams and events of a frame.
  Status make_frame();

  std::shared_ptr<Comm> comm;
  Device* device;
  int64_t timeout_ms;
  Upload tables_upload, settings_upload, progress_upload;

  std::vector<Announcing> announcing;
  Stream looks;  // for copies that the host awaits; the caller's stream may be gone or captured
  Event looked;
  // With overlap_gather, parameters may still be gathered after the step. Any thread may call
  // zero_param_wait.
  std::mutex waiting;
  bool gathering = false;
  std::shared_ptr<const std::vector<int32_t>> last_gathers;  // from the tables of that step
  const Frame* aside = nullptr;  // frame of other calls while a captured one is in progress

  std::vector<Frame> captured;
  std::vector<Memory> retired;  // memory that graphs may still use
  uint64_t layout_sent = 0;

  Memory progress, state, records;
  std::shared_ptr<Arena> shared_records;  // replaces `records` if other ranks store theirs there
  HostBuffer progress_read, state_read;
  std::vector<std::shared_ptr<Arena>> leaving;  // not needed by later calls
  StepState known;                              // as last read or written
  bool host_is_newer = true;  // the host's progress is valid, and is sent before the next step
  bool in_flight = false;     // queued steps may not be in `known`
  bool publishing = false;    // this rank may have parameters of a step that others have not taken
  Code failed = ZERO_OK;      // code of the latest zero_step if it was not queued

  /// Waits until `event` is done. Fails if the comm breaks.
  Status await(const Event& event, std::string_view what) const;
  /// Waits until no queued work uses the memory of the queue.
  Status drain() const;
  /// Waits for the end of all queued work, even on a broken comm. Returns false if the device still
  /// uses memory of the optimizer after timeout_ms. Then arenas that it may use must stay mapped.
  bool await_end() noexcept;
  bool await_flight();
  bool await_all_streams();
  /// Record that a step is queued, and that all queued steps have ended.
  void note_publishing();
  void note_published();
  /// Waits until the work queued on `looks` is done.
  Status await_looks();

  /// Returns true if launches of graphs may have taken steps that the host does not know.
  bool replays() const { return !captured.empty(); }
  /// Frees `memory` unless a graph may still use it.
  void retire(Memory memory) {
    if (replays() && memory.bytes() > 0) retired.push_back(std::move(memory));
  }
  /// Keeps arenas of earlier calls until no queued work uses them.
  void keep(std::span<const std::shared_ptr<Arena>> arenas) {
    leaving.insert(leaving.end(), arenas.begin(), arenas.end());
  }

  StepState* device_state() const { return reinterpret_cast<StepState*>(state.data()); }
  NormSums* records_of_all() const {
    std::byte* const shared = shared_records != nullptr ? shared_records->data() : records.data();
    return reinterpret_cast<NormSums*>(shared);
  }
};

/// Adds what the comm does through the host during a call to the counters of an optimizer.
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

/// Copies settings that the host has changed and, if `all` is true, the progress to where launches
/// of captured steps read them. Waits for the copies. Does nothing if no step was captured.
Status send_changes(Optimizer& optim, bool all);
/// Returns a number that changes when a graph captured now becomes outdated.
uint64_t layout_of(const Optimizer& optim);

/// Returns true if the host's progress may be ahead of the device's, because steps in flight may
/// have been skipped.
bool may_have_skipped(const Optimizer& optim, const StepMemory& memory);

/// Records that the present work on `stream` computes announced gradients. The next call waits for
/// it.
Status note_announced(Optimizer& optim, StreamHandle stream);

/// Makes later work on `stream` wait for the values that the latest step gives to the parameter, or
/// to all parameters if `param` is ZERO_ALL_PARAMS. Any thread may call it.
Status wait_for_param(Optimizer& optim, int64_t param, StreamHandle stream);

/// Waits for queued work, and copies the progress to the host, which may then change it.
Status settle(Optimizer& optim);

// ---- Calls whose stream is being captured (capture.cpp). Their queued work runs later, each time
// the graph is launched, without the host.

/// Returns OK, or this rank's failure if it cannot make a call in `capture` (0: not in a capture),
/// for example because sums belong to another capture. In a capture, also waits until all steps so
/// far have been taken.
Status check_capture(Optimizer& optim, uint64_t capture);

/// One call, which may be captured. A captured call uses its own frame, which is kept if anything
/// was queued. From then on each parameter has its own class, because the host does not know which
/// steps are launched, and so which parameters have taken the same steps.
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
  Frame other_;  // frame of calls that are not captured
  const Counters counters_;
};

// ---- Tables, settings and progress, which the host writes and the device reads.

/// Returns the present settings of classes and groups, the slots that groups use, and the addresses
/// of settings that the caller keeps in device memory.
Blob settings_of_now(const Optimizer& optim, Frame& frame);

/// Queues on `stream` the copies of everything that has changed since it was last sent.
Status send(const Optimizer& optim, StepMemory& memory, StreamHandle stream);

}  // namespace zero::queued
