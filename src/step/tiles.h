// SPDX-License-Identifier: Apache-2.0
// The work on one tile of a share: summing its gradients, and loading and storing its master
// weights.
#pragma once

#include <bit>
#include <cstring>

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"
#include "step/pieces.h"

namespace zero {

/// Returns the scalars of every class for the next step.
std::vector<Scalars> prepare_classes(const Optimizer& optim, const StepMemory& memory,
                                     double factor);

/// One update of a share, or of a part of it.
struct Pass {
  Call* call;  // reports progress; may be null
  const Optimizer& optim;
  const StepMemory& memory;
  const std::vector<Scalars>& scalars;  // by class
  bool fused;                           // uses gradients of all ranks, not reduced gradients
};

/// Provides the gradients of one tile at a time to one thread.
class TileGradients : Pass {
 public:
  explicit TileGradients(const Pass& pass);

  /// Returns true if gradients must be converted before an update can use them. Then a tile must
  /// have at most kBlock elements.
  bool converts(const Section& section) const {
    return dtype(section) != section.sum() || rounding_of(section).any();
  }

  /// Sets the gradients of `update`, whose tile begins at element `at` of every source. The update
  /// sums them itself. If they must be converted, they are summed here instead.
  template <class Real>
  void take(const Section& section, Sources::Row sources, int64_t at, UpdateRunOf<Real>& update);

  /// Returns how many sums of elements [begin, end) of the tile of the last take() are not finite.
  uint64_t nonfinite(const Section& section, int64_t begin, int64_t end);

 private:
  DType dtype(const Section& section) const { return fused ? section.grad_dtype : section.sum(); }
  Rounding rounding_of(const Section& section) const;

  std::vector<const void*> in_;
  alignas(64) std::byte sum_[kTile * sizeof(double)];
  alignas(64) std::byte scratch_[kBlock * sizeof(float)];
};

/// Provides the slots of one tile at a time to one thread, in the type of its arithmetic. A tile of
/// slots that are stored in another format must have at most kBlock elements.
class TileSlots {
 public:
  TileSlots(const Optimizer& optim, const Section& section)
      : optim_(optim), section_(section), slots_(optim.rule_of(section).slots.size()) {}

  static bool converts(const Optimizer& optim, const Section& section) {
    return optim.slot_format(section) != SlotFormat::full;
  }

  /// Sets the slots of `run` to those from position `share` of the share on.
  template <class Real>
  void load(UpdateRunOf<Real>& run, int64_t share);
  /// Stores them after an update. `random_at` is the position of the first element in the random
  /// bits.
  template <class Real>
  void store(const UpdateRunOf<Real>& run, int64_t share, int64_t random_at, int64_t step) const;

 private:
  std::byte* at(size_t slot, int64_t share) const {
    return optim_.slot(static_cast<int>(slot), section_.number, share);
  }

  const Optimizer& optim_;
  const Section& section_;
  const size_t slots_;
  alignas(64) float room_[kMaxSlots][kBlock];
};

/// Returns the address of the values to update. These are the parameter itself, the master weights
/// at `kept`, or master weights that it computes in `room`.
std::byte* load_master(const Optimizer& optim, const Section& section, std::byte* param,
                       std::byte* kept, std::byte* room, size_t count);
/// Stores updated values to `param` and, if they are stored as remainders, to `kept`.
void store_master(const Optimizer& optim, const Section& section, std::byte* param, std::byte* kept,
                  const std::byte* master, size_t count);

/// Returns the bytes of slots that the update of an element of a section reads and writes.
inline size_t bytes_of_slots(const Optimizer& optim, const Section& section) {
  return 2 * static_cast<size_t>(std::popcount(optim.slots_used(section))) *
         state_bytes_of(section.dtype, optim.slot_format(section));
}

/// Copies bytes [at, at + bytes) of this rank's own parameter to every other target.
inline void copy_to_others(Targets::Row targets, size_t at, size_t bytes) {
  for (std::byte* const target : targets.subspan(1)) {
    if (target == nullptr) return;
    std::memcpy(target + at, targets[0] + at, bytes);
  }
}

}  // namespace zero
