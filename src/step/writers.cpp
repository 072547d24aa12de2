// SPDX-License-Identifier: Apache-2.0
#include "step/writers.h"

#include <algorithm>

namespace zero {
namespace {

bool in_shared_memory(const Comm& comm, const Location& location) {
  const std::shared_ptr<Arena> arena = comm.arena(location);
  return arena != nullptr && arena->one_copy();
}

}  // namespace

Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root) {
  Writers writers;
  const Location at_root = locations[static_cast<size_t>(root)];
  const auto own = locations.begin() + comm.rank();
  if (in_shared_memory(comm, at_root))
    writers.any = std::count(locations.begin(), locations.end(), at_root) != comm.world();
  if (comm.rank() == root || !in_shared_memory(comm, *own)) return writers;
  writers.mine = *own != at_root && std::find(locations.begin(), own, *own) == own;
  return writers;
}

}  // namespace zero
