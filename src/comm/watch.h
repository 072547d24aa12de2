// SPDX-License-Identifier: Apache-2.0
// One wait for other ranks: where it is, how long it may take, how long it has taken.
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
  bool extended_by_progress;  // the limit counts since the last sign of life, else from the start
  Code code = ZERO_OK;        // instead of what broke it: ZERO_ERR_RENDEZVOUS while a comm forms

  std::string where() const;  // "zero_step: vote"
};

/// Returns "rank 1, rank 2 and 5 more".
std::string list_some(const std::vector<std::string>& names);

/// A rank that has not come yet, and since when it has been waited for.
struct Missing {
  int32_t rank;
  int64_t since_ns;
};

class Watch {
 public:
  explicit Watch(const Patience& patience);

  /// Looks at the clock. Returns for how many nanoseconds this process itself was stopped, as in a
  /// job that is put to sleep as a whole. That time is held against nobody, and others' signs of
  /// life are that much younger. The first stop of a wait counts whole; all later ones together, up
  /// to two limits less the first: a process that hardly ever runs waits for three limits at most.
  /// Time in functions of the caller's is no stop.
  int64_t look();
  int64_t now_ns() const { return now_ns_; }
  std::string where() const { return patience_.where(); }
  /// Returns since when a rank has been waited for that last showed a sign of life at `sign_ns`.
  int64_t since_ns(int64_t sign_ns) const {
    return patience_.extended_by_progress ? std::max(start_ns_, sign_ns) : start_ns_;
  }
  /// True if who has been waited for since then is late.
  bool is_late(int64_t since_ns) const {
    return now_ns_ - since_ns >= patience_.limit_ms * 1'000'000;
  }
  /// Returns those of `missing` that are late.
  std::vector<Missing> late_of(std::span<const Missing> missing) const;
  /// Returns how long to sleep before the next look at what nothing wakes a rank for: longer, the
  /// longer it has waited, as ranks of many wait for long, and share cores.
  int64_t slice_ms() const;
  /// Returns how long to sleep until one of them is late, at most `most_ms`.
  int64_t slice_ns(std::span<const Missing> missing, int64_t most_ms) const;
  /// True once, when a wait has become long.
  bool warns();

  /// Return sentences: what `names` have not done, and this rank's warning of them.
  std::string late(std::string_view names) const;
  std::string warning(int32_t rank, std::string_view names) const;

 private:
  const Patience patience_;
  int64_t start_ns_, now_ns_;
  int64_t callers_ns_;     // CallersTime at the latest look
  int64_t absent_ns_ = 0;  // what look() has returned so far
  bool warned_ = false;
};

}  // namespace zero
