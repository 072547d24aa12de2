// SPDX-License-Identifier: Apache-2.0
// Sums the contributions of all ranks or hosts in rank order, for comms that bring them to the rank
// that needs the sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/float_environment.h"
#include "comm/queued_plane.h"
#include "kernels/kernels.h"

namespace zero {

class RankSum {
 public:
  explicit RankSum(int32_t count)
      : kernels_(kernel_table(best_isa())), parts_(static_cast<size_t>(count)) {}

  /// Pointers to the elements of each part, set by the caller.
  std::span<const void*> parts() { return parts_; }

  /// Sums `count` elements of each part as Comm::reduce_scatter() specifies.
  void add(SumTypes types, void* sums, size_t count) {
    const FloatEnvironment environment;  // code of other libraries may have changed it
    if (types.adds)
      fold(kernels_, types.sum, types.from, sums, parts_, count);
    else
      reduce(types.sum, types.from, sums, count);
  }

  /// Computes sums and converts them to `to`, which is the type of the sums or a narrower type.
  void make(DType from, DType to, void* sums, size_t count) {
    const FloatEnvironment environment;
    if (to == DType::f32 || to == DType::f64) return reduce(to, from, sums, count);
    constexpr size_t kTogether = 2048;
    float wide[kTogether];
    std::vector<const void*> parts = parts_;
    for (size_t done = 0; done < count; done += kTogether) {
      const size_t part = std::min(kTogether, count - done);
      for (size_t i = 0; i < parts_.size(); ++i)
        parts_[i] = static_cast<const std::byte*>(parts[i]) + done * size_of(from);
      reduce(DType::f32, from, wide, part);
      kernels_.half(to).narrow(static_cast<uint16_t*>(sums) + done, wide, part);
    }
  }

  /// Sums elements of the parts, which lie one after another in `all`.
  void operator()(SumTypes types, const void* all, void* sums, size_t count) {
    for (size_t r = 0; r < parts_.size(); ++r)
      parts_[r] = static_cast<const std::byte*>(all) + r * count * size_of(types.from);
    add(types, sums, count);
  }

 private:
  void reduce(DType sum, DType from, void* sums, size_t count) const {
    kernels_.reduction(sum, from, Norm::none)(sums, parts_.data(),
                                              static_cast<int32_t>(parts_.size()), count);
  }

  const KernelTable& kernels_;
  std::vector<const void*> parts_;
};

}  // namespace zero
