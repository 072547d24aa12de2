// SPDX-License-Identifier: Apache-2.0
#include "comm/clocks.h"

#include <algorithm>

namespace zero {

void Clocks::take(std::span<const Stamps> all, int32_t own, int64_t now_ns) {
  const Stamps& mine = all[static_cast<size_t>(own)];
  last_ = own;
  int64_t latest_ns = mine.came_ns;
  for (size_t rank = 0; rank < all.size(); rank++) {
    if (rank == static_cast<size_t>(own)) continue;
    const Stamps& one = all[rank];
    if (one.came_ns == 0) {
      last_ = -1;
      continue;
    }
    Bounds found;
    found.least = one.came_ns - now_ns;
    if (one.ended_ns != 0 && came_ns_ != 0) found.most = one.ended_ns - came_ns_;
    Bounds& bounds = bounds_[rank];
    bounds.least = std::max(bounds.least, found.least);
    bounds.most = std::min(bounds.most, found.most);
    if (bounds.least > bounds.most) bounds = found;  // a clock has drifted
    const int64_t came_ns = one.came_ns - ahead_ns(static_cast<int32_t>(rank));
    if (last_ < 0 || came_ns <= latest_ns) continue;
    last_ = static_cast<int32_t>(rank);
    latest_ns = came_ns;
  }
  came_ns_ = mine.came_ns;
  ended_ns_ = now_ns;
}

int64_t Clocks::ahead_ns(int32_t rank) const {
  const auto [least, most] = bounds_[static_cast<size_t>(rank)];
  if (least <= 0 && most >= 0) return 0;
  if (least == INT64_MIN) return most;
  return most == INT64_MAX ? least : least + (most - least) / 2;
}

}  // namespace zero
