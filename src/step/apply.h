// SPDX-License-Identifier: Apache-2.0
// Updates this rank's share, and stores the new parameters on every rank.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Updates the share and stores the new parameters to every target. If `fused`, sums the gradients
/// of all ranks on the fly and returns how many sums were not finite. Otherwise uses the reduced
/// gradients and returns 0, because the reduction has counted them. Reports progress to
/// memory.background, if there is one. Ends early when the comm is aborted. For rules with trust
/// ratios, the call is collective and can fail, because ranks exchange norms.
Result<uint64_t> update_share(Call& call, Optimizer& optim, StepMemory& memory, bool fused);

/// Returns the bytes that the update of one element of a section reads and writes. `gradients` is
/// the number of bytes of its gradients.
int64_t bytes_updated(const Optimizer& optim, const Section& section, size_t gradients);

/// Rounds this rank's owned parameters that are sent in a shorter type than their own.
void round_share(Optimizer& optim);

/// Updates owned segments one by one as their gradients arrive. Uses the settings and step counts
/// at the time of its creation.
class SegmentUpdater {
 public:
  /// Copies the targets of the views, which must have been made without sources.
  SegmentUpdater(const Optimizer& optim, const StepMemory& memory, double factor);

  /// Updates elements [first, last) of an owned segment. `gradients` has an address for each rank
  /// whose gradient is summed, that of the segment's first element. Returns how many sums are not
  /// finite.
  uint64_t update(size_t segment, Sources::Row gradients, int64_t first, int64_t last);

  /// Returns the bytes that the update of one element of a section reads and writes.
  int64_t moved_bytes(const Section& section) const;

 private:
  const Optimizer& optim_;
  const StepMemory& memory_;
  std::vector<Scalars> scalars_;
  std::vector<int32_t> classes_;  // by segment
  Targets targets_;               // by segment
  Runs run_;
};

/// Stores this rank's owned parameters, unchanged, to every other target.
void copy_share(const Optimizer& optim, const StepMemory& memory);

// ---- A step with the caller's update function (custom.cpp). The function works on copies of the
// share. The results are stored once all ranks agree.

/// Allocates memory for the copies. Local.
Status make_shadow(Optimizer& optim, StepMemory& memory);

/// Calls the function for a copy of each range with a gradient. Succeeds on all ranks or on none. A
/// failure changes only the shadow, and drops the reduced gradients.
Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory);

/// Stores the results of the function. Parameters are stored to every target.
void store_shadow(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
