// SPDX-License-Identifier: Apache-2.0
// The loop over this rank's share that updates it and stores it on every rank.
#pragma once

#include <vector>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Updates the share, from every rank's gradients summed on the fly (`fused`) or from the reduced
/// ones, and stores new parameters to every target. Returns how many gradients were not finite (0
/// if not fused, because the reduction counted them). Tells memory.background how far it is, if
/// there is one. Ends early when the comm is aborted. Collective for rules with trust ratios: their
/// exchange of norms may fail.
Result<uint64_t> update_share(Call& call, Optimizer& optim, StepMemory& memory, bool fused);

/// Returns the bytes that the update of one element reads and writes. `gradients`: the bytes of its
/// gradients.
int64_t bytes_updated(const Optimizer& optim, const Section& section, size_t gradients);

/// Rounds this rank's owned parameters that travel in fewer bits than they have.
void round_share(Optimizer& optim);

/// Updates owned segments one by one, as their gradients come, with the scalars of its creation.
class SegmentUpdater {
 public:
  /// Keeps the targets of the views, which must have been made without sources.
  SegmentUpdater(const Optimizer& optim, const StepMemory& memory, double factor);

  /// Updates elements [first, last) of an owned segment. `gradients`: one for each rank that is
  /// summed, each from the segment's first element on. Returns how many sums are not finite.
  uint64_t update(size_t segment, Sources::Row gradients, int64_t first, int64_t last);

  /// Returns the bytes that the update of one element of a section reads and writes.
  int64_t moved_bytes(const Section& section) const;

 private:
  const Optimizer& optim_;
  const StepMemory& memory_;
  std::vector<Scalars> scalars_;
  std::vector<int32_t> classes_;  // of each segment
  Targets targets_;               // likewise
  Runs run_;
};

/// Stores this rank's owned parameters, as they are, to every other target.
void copy_share(const Optimizer& optim, const StepMemory& memory);

// ---- A step by an update function of the caller: it works on copies of the share, and its results
// are stored once all ranks agree (custom.cpp).

/// Makes room for the copies. Local.
Status make_shadow(Optimizer& optim, StepMemory& memory);

/// Lets the function update a copy of each range with a gradient. Succeeds on all ranks or on none.
/// A failure changes only the shadow, and forgets the reduced gradients.
Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory);

/// Stores the function's results, parameters to every target.
void store_shadow(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
