// SPDX-License-Identifier: Apache-2.0
// Sums what all ranks have, in rank order: for comms that bring it to the rank that it is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/float_environment.h"
#include "comm/queued_plane.h"
#include "kernels/kernels.h"

namespace zero {

class RankSum {
 public:
  explicit RankSum(int32_t world)
      : kernels_(kernel_table(best_isa())), parts_(static_cast<size_t>(world)) {}

  /// Sums `count` elements of each rank, which lie in `all` in rank order, as
  /// Comm::reduce_scatter() says.
  void operator()(SumTypes types, const void* all, void* sums, size_t count) {
    const FloatEnvironment environment;  // others' code may have left another
    for (size_t r = 0; r < parts_.size(); ++r)
      parts_[r] = static_cast<const std::byte*>(all) + r * count * size_of(types.from);
    if (types.adds)
      fold(kernels_, types.sum, types.from, sums, parts_, count);
    else
      kernels_.reduction(types.sum, types.from, Norm::none)(
          sums, parts_.data(), static_cast<int32_t>(parts_.size()), count);
  }

 private:
  const KernelTable& kernels_;
  std::vector<const void*> parts_;
};

}  // namespace zero
