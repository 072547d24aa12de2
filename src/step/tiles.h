// SPDX-License-Identifier: Apache-2.0
// The work on one tile of a share: sum its gradients, find its masters and put them back.
#pragma once

#include <bit>
#include <cstring>

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"
#include "step/pieces.h"

namespace zero {

/// Returns the scalars of every class for the step about to be made.
std::vector<Scalars> prepare_classes(const Optimizer& optim, const StepMemory& memory,
                                     double factor);

/// One update of a share, or of a part of it.
struct Pass {
  Call* call;  // whose progress is reported; null: none
  const Optimizer& optim;
  const StepMemory& memory;
  const std::vector<Scalars>& scalars;  // by class
  bool fused;                           // from gradients of all ranks, not from the reduced ones
};

/// One thread's gradients, a tile at a time.
class TileGradients : Pass {
 public:
  explicit TileGradients(const Pass& pass);

  /// True if values must be converted before an update can take them. Then a tile has at most
  /// kBlock elements.
  bool converts(const Section& section) const {
    return dtype(section) != section.sum() || rounding_of(section).any();
  }

  /// Gives `update` the gradients of its tile, which begins at element `at` of every source. The
  /// update itself sums them; if they must be converted, they are summed here.
  template <class Real>
  void take(const Section& section, Sources::Row sources, int64_t at, UpdateRunOf<Real>& update);

  /// Returns how many sums of elements [begin, end) of the tile last taken are not finite.
  uint64_t nonfinite(const Section& section, int64_t begin, int64_t end);

 private:
  DType dtype(const Section& section) const { return fused ? section.grad_dtype : section.sum(); }
  Rounding rounding_of(const Section& section) const;

  std::vector<const void*> in_;
  alignas(64) std::byte sum_[kTile * sizeof(double)];
  alignas(64) std::byte scratch_[kBlock * sizeof(float)];
};

/// Returns the values to update: the parameter itself, the kept master, or a master that it makes
/// in `room`.
std::byte* load_master(const Optimizer& optim, const Section& section, std::byte* param,
                       std::byte* kept, std::byte* room, size_t count);
void store_master(const Optimizer& optim, const Section& section, std::byte* param, std::byte* kept,
                  const std::byte* master, size_t count);

/// Returns the bytes of slots that the update of an element reads and writes. `used`: the slots in
/// use, as bits.
inline size_t bytes_of_slots(const Section& section, uint32_t used) {
  return 2 * static_cast<size_t>(std::popcount(used)) * state_bytes_of(section.dtype);
}

/// Copies bytes [at, at + bytes) of this rank's own parameter to every other target.
inline void copy_to_others(Targets::Row targets, size_t at, size_t bytes) {
  for (std::byte* const target : targets.subspan(1)) {
    if (target == nullptr) return;
    std::memcpy(target + at, targets[0] + at, bytes);
  }
}

}  // namespace zero
