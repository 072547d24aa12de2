// SPDX-License-Identifier: Apache-2.0
// The failure that broke a comm. The first rank that detects it creates it, keeps it, and sends it
// to the other ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"

namespace zero {

/// A failure as zero_comm_failure reports it.
struct Failure {
  Code code = ZERO_OK;
  int32_t rank = -1;
  int64_t step = 0;
  bool params_consistent = true;
  std::string phase;  // "zero_step: vote"
  std::string text;

  Status status() const { return Status(code, text); }
};

/// Progress of the optimizers of a comm, which failures report.
struct StepsSoFar {
  std::atomic<int64_t> done{0};
  std::atomic<int32_t> publishing{0};  // optimizers that have written some parameters but not all
  std::atomic<bool> deciding{false};   // the exchange in progress allows parameter writes

  bool consistent() const { return publishing.load() == 0; }
  /// Makes a failure with the current progress.
  Failure fail(Code code, int32_t rank, std::string phase, std::string text) const;
};
class Comm;

/// Counts an optimizer of `comm` as publishing during the lifetime of this object. If the comm
/// breaks before done(), the optimizer stays counted.
class Publishing {
 public:
  explicit Publishing(Comm& comm);
  ~Publishing();
  /// Records that everything has been written on all ranks.
  void done() { done_ = true; }
  Publishing(const Publishing&) = delete;
  Publishing& operator=(const Publishing&) = delete;

 private:
  Comm& comm_;
  bool done_ = false;
};

/// Used by comms that have no optimizers yet.
inline const StepsSoFar kNoSteps;

/// Returns the message of a rank whose program interrupted a waiting call.
std::string interruption_of(int32_t rank);

/// Keeps the first cause that is set in this process.
class FirstCause {
 public:
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void set(const Failure& cause);
  Failure get() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};
  Failure cause_;
};

/// A failure in a fixed-size form for other ranks. The text fits zero_last_error.
struct Cause {
  int32_t code;
  int32_t rank;
  int64_t step;
  uint32_t params_consistent;
  uint32_t unused;
  char phase[64];
  char text[4096];
};
Cause pack(const Failure& failure);
/// Reads a Cause. Other bytes give a ZERO_ERR_COMM failure that says that it is unreadable.
Failure unpack(std::span<const std::byte> bytes);

}  // namespace zero
