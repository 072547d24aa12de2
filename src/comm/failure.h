// SPDX-License-Identifier: Apache-2.0
// The failure that broke a comm. It is made in one place, kept by the first that finds it, and told
// to other ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"

namespace zero {

/// A failure as zero_comm_failure tells it.
struct Failure {
  Code code = ZERO_OK;
  int32_t rank = -1;
  int64_t step = 0;
  bool params_consistent = true;
  std::string phase;  // "zero_step: vote"
  std::string text;

  Status status() const { return Status(code, text); }
};

/// How far the optimizers of a comm are. A failure tells this.
struct StepsSoFar {
  std::atomic<int64_t> done{0};
  std::atomic<int32_t> publishing{0};  // optimizers that have written some parameters, not all
  std::atomic<bool> deciding{false};   // whoever knows how an exchange ended may write

  bool consistent() const { return publishing.load() == 0; }
  /// Makes a failure with the present progress.
  Failure fail(Code code, int32_t rank, std::string phase, std::string text) const;
};
class Comm;

/// Counts an optimizer of `comm` among those that publish, for as long as it lives. If the comm
/// breaks before it is done, that stands.
class Publishing {
 public:
  explicit Publishing(Comm& comm);
  ~Publishing();
  /// Says that everything is written, on all ranks.
  void done() { done_ = true; }
  Publishing(const Publishing&) = delete;
  Publishing& operator=(const Publishing&) = delete;

 private:
  Comm& comm_;
  bool done_ = false;
};

/// For a comm that has no optimizers yet.
inline const StepsSoFar kNoSteps;

/// Returns the sentence of a rank whose program ended a call that waited.
std::string interruption_of(int32_t rank);

/// Keeps a cause in this process. The first one stands.
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

/// A Failure for other ranks, of a size that fits zero_last_error.
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
/// Reads a Cause. Anything else becomes ZERO_ERR_COMM, which says so.
Failure unpack(std::span<const std::byte> bytes);

}  // namespace zero
