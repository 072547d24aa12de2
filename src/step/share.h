// SPDX-License-Identifier: Apache-2.0
// This rank's share, dealt over its threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"

namespace zero {

/// `total` elements, dealt over a number of threads and cut at multiples of `step`.
class Dealt {
 public:
  Dealt(int64_t total, int64_t step, int threads)
      : total_(total), part_(threads == 1 ? total : round_up(total / threads + 1, step)) {}

  struct Part {
    int64_t begin, end;
  };
  Part part(int thread) const {
    const int64_t begin = std::min(total_, part_ * thread);
    return {begin, std::min(total_, begin + part_)};
  }

 private:
  int64_t total_, part_;
};

/// Elements: a tile of every stream fits the first-level cache, for what is read a second time.
inline constexpr int64_t kTile = 2048;

/// Stands for a gradient that a rank does not have.
alignas(64) inline constexpr std::byte kZeros[kTile * sizeof(double)] = {};

}  // namespace zero
