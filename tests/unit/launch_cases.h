// SPDX-License-Identifier: Apache-2.0
// What tests of launches need besides arrays: tiles, and positions far from the first element.
#pragma once

#include <vector>

#include "kernels/launches.h"
#include "random_elements.h"

namespace zero::test {

/// Returns the tiles of runs or moves with these counts.
inline std::vector<launch::Tile> tiles_of(const std::vector<size_t>& counts) {
  std::vector<launch::Tile> tiles;
  for (size_t i = 0; i < counts.size(); i++) {
    for (uint32_t tile = 0; tile * launch::kTileElements < static_cast<int64_t>(counts[i]); tile++)
      tiles.push_back({static_cast<uint32_t>(i), tile});
  }
  return tiles;
}

/// Elements may come after so many others that 32 bits cannot count them. Those need not exist,
/// because a launch of this tile does not access them.
enum class Place { near, far };
inline constexpr int64_t kFar = int64_t{1} << 31;
inline constexpr launch::Tile kFarTile{0, static_cast<uint32_t>(kFar / launch::kTileElements)};

/// Returns the address of the first of all elements. Null stays null.
template <class Byte>
Byte* first_of(Byte* elements, DType type, Place place) {
  if (elements == nullptr || place == Place::near) return elements;
  const uintptr_t bytes = static_cast<uintptr_t>(kFar) * size_of(type);
  return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(elements) - bytes);
}
inline std::byte* first_of(Elements& elements, Place place) {
  return first_of(elements.data(), elements.type(), place);
}
inline int64_t count_before(Place place) { return place == Place::near ? 0 : kFar; }

}  // namespace zero::test
