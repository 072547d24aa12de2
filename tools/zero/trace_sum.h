// SPDX-License-Identifier: Apache-2.0
// Sums up the events of traces.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "output.h"

namespace zero::tool {

/// What one rank has done. Times are in microseconds, as in the files.
struct RankSum {
  double begin = 0, end = 0;  // of the summed events; 0: there are none
  int64_t steps = 0;
  double calls = 0;                      // time inside calls
  std::map<std::string, double> phases;  // of steps and saves
  std::map<int64_t, double> waits;       // for each rank; this rank's own number: it was last
  double transfers = 0;
  int64_t bytes = 0;  // of transfers
  int64_t dropped = 0;

  void add(const Json& event, int32_t own);
  double waited() const;
  double seconds() const { return (end - begin) * 1e-6; }
  /// Returns the other rank for which this one waited longest, or -1.
  int64_t waited_for(int32_t own) const;
};

using RankSums = std::map<int32_t, RankSum>;
using GroupSums = std::map<std::string, RankSums>;

/// The rank of a group for which the others waited longest, and for how long. -1 if nobody waited.
struct Slowest {
  int64_t rank = -1;
  double waited = 0;
};
Slowest slowest_of(const RankSums& ranks);

/// Returns "comm", or the splits from which the group resulted.
std::string group_text(const std::string& group);

Json json_of(const GroupSums& groups);

}  // namespace zero::tool
