// SPDX-License-Identifier: Apache-2.0
// Who came last to an exchange, by the clocks of the ranks, which may be those of several hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero {

/// What a rank's clock said; 0: it did not look.
struct Stamps {
  int64_t came_ns = 0;   // to this exchange
  int64_t ended_ns = 0;  // the exchange before, on this rank
};

/// No rank leaves an exchange before all have come. So each exchange bounds the difference of two
/// clocks from both sides: the narrower, the less their ranks waited. Ranks need no round trips of
/// their own, and clocks that drift are followed.
class Clocks {
 public:
  explicit Clocks(int32_t world) : bounds_(static_cast<size_t>(world)) {}

  /// Returns what this rank tells the others at `now_ns`.
  Stamps stamp(int64_t now_ns) const { return {now_ns, ended_ns_}; }

  /// Takes what all ranks told; this one is `own`, and has found that out at `now_ns`.
  void take(std::span<const Stamps> all, int32_t own, int64_t now_ns);

  /// Returns by how much a rank's clock is ahead of this rank's. Clocks that may be one are one.
  int64_t ahead_ns(int32_t rank) const;

  /// Returns the rank that came last, or -1 if a rank did not look at its clock.
  int32_t last() const { return last_; }

 private:
  struct Bounds {
    int64_t least = INT64_MIN, most = INT64_MAX;
  };

  std::vector<Bounds> bounds_;
  int64_t came_ns_ = 0;   // to the latest exchange, on this rank
  int64_t ended_ns_ = 0;  // that one, on this rank
  int32_t last_ = -1;
};

}  // namespace zero
