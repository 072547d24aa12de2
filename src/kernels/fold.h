// SPDX-License-Identifier: Apache-2.0
// Sums of more than one call, in the order of calls.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/kernels.h"

namespace zero {

/// sums = ((sums + in[0]) + in[1]) + ... of `count` elements, in the type of the sums.
inline void fold(const KernelTable& kernels, DType sum, DType from, void* sums,
                 std::span<const void* const> in, size_t count) {
  constexpr size_t kTogether = 2048;
  alignas(64) std::byte wide[kTogether * sizeof(double)];
  for (size_t done = 0; done < count; done += kTogether) {
    const size_t part = std::min(kTogether, count - done);
    std::byte* const to = static_cast<std::byte*>(sums) + done * size_of(sum);
    for (const void* const source : in) {
      const void* const more = static_cast<const std::byte*>(source) + done * size_of(from);
      if (from != sum) kernels.reduction(sum, from, Norm::none)(wide, &more, 1, part);
      const void* const both[2] = {to, from == sum ? more : wide};
      kernels.reduction(sum, sum, Norm::none)(to, both, 2, part);
    }
  }
}

}  // namespace zero
