// SPDX-License-Identifier: Apache-2.0
// One wait for other ranks: its place in the code, its limit, and its duration so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace zero {

struct Patience {
  const char* operation;
  const char* phase;
  int64_t limit_ms;
  bool extended_by_progress;  // the limit starts at the last sign of life instead of at the start
  Code code = ZERO_OK;        // replaces the cause's code; ZERO_ERR_RENDEZVOUS while a comm forms

  std::string where() const;  // "zero_step: vote"
};

/// Returns a text like "rank 1, rank 2 and 5 more".
std::string list_some(const std::vector<std::string>& names);

/// A rank that has not arrived yet, and the start of the wait for it.
struct Missing {
  int32_t rank;
  int64_t since_ns;
};

class Watch {
 public:
  explicit Watch(const Patience& patience);

  /// Reads the clock. Returns for how many nanoseconds this process was stopped, for example
  /// because the job was suspended. The caller must add this time to other ranks' signs of life,
  /// because it counts against no rank. The first stop of a wait counts in full. All later stops
  /// together count up to two limits minus the first, so a process that hardly ever runs waits for
  /// at most three limits. Time in the caller's functions does not count as a stop.
  int64_t look();
  int64_t now_ns() const { return now_ns_; }
  std::string where() const { return patience_.where(); }
  /// Returns the start of the wait for a rank whose last sign of life was at `sign_ns`.
  int64_t since_ns(int64_t sign_ns) const {
    return patience_.extended_by_progress ? std::max(start_ns_, sign_ns) : start_ns_;
  }
  /// Returns true if a rank that has been waited for since `since_ns` is late.
  bool is_late(int64_t since_ns) const {
    return now_ns_ - since_ns >= patience_.limit_ms * 1'000'000;
  }
  /// Returns the ranks in `missing` that are late.
  std::vector<Missing> late_of(std::span<const Missing> missing) const;
  /// Returns the next polling interval. It grows with the time waited, as waiters may share a core.
  int64_t slice_ms() const;
  /// Returns the time until one of `missing` is late, at most `most_ms`.
  int64_t slice_ns(std::span<const Missing> missing, int64_t most_ms) const;
  /// Returns true once, when a wait has become long.
  bool warns();

  /// Return messages: what the ranks in `names` have not done, and this rank's warning about them.
  std::string late(std::string_view names) const;
  std::string warning(int32_t rank, std::string_view names) const;

 private:
  const Patience patience_;
  int64_t start_ns_, now_ns_;
  int64_t callers_ns_;     // CallersTime at the latest look()
  int64_t absent_ns_ = 0;  // sum of the results of look()
  bool warned_ = false;
};

}  // namespace zero
