// SPDX-License-Identifier: Apache-2.0
// A tree of ranks, in which each rank is connected to its parent and its children.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zero::tcp {

/// One place in a tree of `world` places. The root is place 0.
struct Tree {
  static constexpr int32_t kFanOut = 16;

  int32_t place = 0;
  int32_t world = 1;
  int32_t fan_out = kFanOut;

  bool is_root() const { return place == 0; }
  int32_t parent() const { return (place - 1) / fan_out; }  // not for the root
  int32_t first_child() const { return place * fan_out + 1; }
  int32_t children() const { return std::clamp(world - first_child(), 0, fan_out); }

  int32_t depth() const { return is_root() ? 0 : 1 + at(parent()).depth(); }

  /// Returns the same tree as another place sees it.
  Tree at(int32_t other) const { return {other, world, fan_out}; }
  /// Returns true if `other` is this place or below it.
  bool holds(int32_t other) const {
    while (other > place) other = (other - 1) / fan_out;
    return other == place;
  }
  /// Appends this place and all places below it in preorder, in which rows go up.
  void list(std::vector<int32_t>& places) const {
    places.push_back(place);
    for (int32_t i = 0; i < children(); ++i) at(first_child() + i).list(places);
  }
  /// Returns the number of these places.
  int32_t count() const {
    int32_t total = 0;
    for (int32_t first = place, width = 1; first < world; first = first * fan_out + 1) {
      total += std::min(width, world - first);
      width *= fan_out;
    }
    return total;
  }
};

}  // namespace zero::tcp
