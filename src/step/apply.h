// SPDX-License-Identifier: Apache-2.0
// The loop over this rank's share that updates it and stores it on every rank.
#pragma once

#include <span>
#include <vector>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Update the share: with every rank's gradients summed on the fly (`fused`), or from the reduced
/// ones, and store new parameters to every target. Returns how
/// many gradients were not finite (0 when not fused: the reduction counted them). Tells
/// memory.background how far it is, if there is one. Ends early when the comm is aborted.
/// Collective for rules with trust ratios: what ranks tell each other of norms may fail.
Result<uint64_t> update_share(Call& call, Optimizer& optim, StepMemory& memory, bool fused);

/// What updating an element from so many bytes of gradients reads and writes.
int64_t bytes_updated(const Optimizer& optim, const Section& section, size_t gradients);

/// Round this rank's owned parameters where they travel in fewer bits than they have.
void round_share(Optimizer& optim);

/// Updates owned segments one by one, as their gradients come, with the scalars of now.
class SegmentUpdater {
 public:
  /// Of views without sources, whose targets it keeps.
  SegmentUpdater(const Optimizer& optim, const StepMemory& memory, double factor);

  /// Elements [first, last) of an owned segment, from gradients that begin with its first element,
  /// one for each rank that is summed. Returns how many are not finite.
  uint64_t update(size_t segment, Sources::Row gradients, int64_t first, int64_t last);

  /// That updating an element of a section reads and writes.
  int64_t moved_bytes(const Section& section) const;

 private:
  const Optimizer& optim_;
  const StepMemory& memory_;
  std::vector<Scalars> scalars_;
  std::vector<int32_t> classes_;  // of each segment
  Targets targets_;               // likewise
  Runs run_;
};

/// Store this rank's owned parameters as they are to every other target.
void copy_share(const Optimizer& optim, const StepMemory& memory);

// ---- A step by an update function of the caller: it works on copies of the share, and what it
// made is stored once all ranks agree (custom.cpp).

/// Room for the copies. Local.
Status make_shadow(Optimizer& optim, StepMemory& memory);

/// Let the function update a copy of each range with a gradient, on all ranks or in vain: a failure
/// changes nothing but the shadow, and forgets what is reduced.
Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory);

/// Store what the function made, parameters to every target.
void store_shadow(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
