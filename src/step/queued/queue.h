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
}  // namespace order

struct Queue {
  static Result<std::unique_ptr<Queue>> create(const Optimizer& optim);
  Queue() = default;
  /// Waits, but not for ever, until the device has done with the memory of its optimizer.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  std::shared_ptr<Comm> comm;
  Device* device;
  int64_t timeout_ms;
  Upload tables_upload, settings_upload, progress_upload;

  Stream looks;  // by which the host reads: the caller's may be gone by then
  // Of comms whose data travels through collectives: one stream for each direction.
  Stream reduces, gathers;
  Event given, measured, decided, gathered, ended, looked;
  std::vector<Event> summed, updated, arrived;  // by transfer
  // With overlap_gather parameters may travel behind the step, and zero_param_wait comes from any
  // thread.
  std::mutex waiting;
  bool gathering = false;
  std::shared_ptr<const std::vector<int32_t>> last_gathers;  // of that step, as in its tables

  Tables tables;
  DeviceMemory table_memory;
  bool tables_uploaded = false;

  // Behind each other: settings of classes, of groups, slots that groups use.
  DeviceMemory settings;
  std::vector<std::byte> settings_sent;
  size_t group_settings_at = 0, groups_used_at = 0;

  DeviceMemory progress, state, scalars, records;
  std::shared_ptr<Arena> shared_records;  // instead, where other ranks write theirs there
  HostBuffer progress_read, state_read;
  launch::State known{};      // as last read or written
  bool host_is_newer = true;  // the host's progress counts, and is written before the next step
  bool in_flight = false;     // the device may be ahead of what is known
  Code failed = ZERO_OK;      // of the latest zero_step, which was not queued
  StreamHandle last_stream = nullptr;  // on which `ended` was recorded

  /// Until `event` is done, as long as the comm is sound.
  Status await(const Event& event, std::string_view what) const;
  /// Nothing that is queued uses its memory any more.
  Status drain() const;

  launch::State* device_state() const { return reinterpret_cast<launch::State*>(state.data()); }
  launch::NormSums* records_of_all() const {
    std::byte* const shared = shared_records != nullptr ? shared_records->data() : records.data();
    return reinterpret_cast<launch::NormSums*>(shared);
  }
};

/// Whatever may fail on one rank alone before anything is queued: memory and tables for the views
/// at hand.
Status prepare(Optimizer& optim, StepMemory& memory);

/// Begin a call on `stream`: behind the call before, with tables, settings and progress on the
/// device.
Status begin(Optimizer& optim, StepMemory& memory, StreamHandle stream);
/// Everything of the call is queued; what comes after it on `stream` sees it.
Status end(Queue& queue, StreamHandle stream);

/// Wait for what is queued on `stream`, which is `what`.
Status finish(const Optimizer& optim, StreamHandle stream, std::string_view what);

/// True if the host's progress may be ahead of the device's: steps in flight can have been skipped.
bool may_have_skipped(const Optimizer& optim, const StepMemory& memory);

/// What `stream` holds so far makes gradients that were announced: the next call goes behind it.
Status note_announced(Optimizer& optim, StreamHandle stream);

/// What comes on `stream` from here on sees the parameter's values of the latest step; all of them
/// for ZERO_ALL_PARAMS. Any thread.
Status wait_for_param(Optimizer& optim, int64_t param, StreamHandle stream);

/// Wait for what is queued, and let the host know the progress: it may change it then.
Status settle(Optimizer& optim);

}  // namespace zero::queued
