// SPDX-License-Identifier: Apache-2.0
// Finds the rank that arrived last at an exchange, even if the ranks' clocks are on several hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero {

/// Clock readings of one rank. 0 means that the rank did not read its clock.
struct Stamps {
  int64_t came_ns = 0;   // arrival at this exchange
  int64_t ended_ns = 0;  // end of the previous exchange, on this rank
};

/// Estimates clock offsets from exchanges. No rank leaves an exchange before all ranks have
/// arrived, so each exchange bounds the offset between two clocks on both sides. The less the two
/// ranks waited, the narrower the bounds are. This needs no extra round trips, and follows clock
/// drift.
class Clocks {
 public:
  explicit Clocks(int32_t world) : bounds_(static_cast<size_t>(world)) {}

  /// Returns the stamps that this rank sends to the others at `now_ns`.
  Stamps stamp(int64_t now_ns) const { return {now_ns, ended_ns_}; }

  /// Records the stamps of all ranks, which rank `own` (this one) received at `now_ns`.
  void take(std::span<const Stamps> all, int32_t own, int64_t now_ns);

  /// Returns how far a rank's clock is ahead of this rank's clock. Returns 0 if the bounds allow
  /// equal clocks.
  int64_t ahead_ns(int32_t rank) const;

  /// Returns the rank that arrived last, or -1 if a rank did not read its clock.
  int32_t last() const { return last_; }

 private:
  struct Bounds {
    int64_t least = INT64_MIN, most = INT64_MAX;
  };

  std::vector<Bounds> bounds_;
  int64_t came_ns_ = 0;   // arrival of this rank at the latest exchange
  int64_t ended_ns_ = 0;  // end of the latest exchange on this rank
  int32_t last_ = -1;
};

}  // namespace zero
