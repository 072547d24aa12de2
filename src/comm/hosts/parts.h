// SPDX-License-Identifier: Apache-2.0
// The parts in which data goes between hosts.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/checked.h"

namespace zero::hosts {

/// Parts of `bytes` that go between each two of some fellows.
struct Parts {
  static constexpr size_t kRooms = 4;             // parts on their way
  static constexpr size_t kRoomBytes = 1u << 20;  // of a part, with all fellows, in one direction
  static constexpr size_t kLeastBytes = 4096;     // with one of them

  size_t fellows, bytes;

  size_t most() const {
    const size_t all = std::max(bytes, size_t{1});
    return std::min(std::max(kRoomBytes / fellows / 64 * 64, kLeastBytes),
                    round_up(all, size_t{64}));
  }
  size_t count() const { return (bytes + most() - 1) / most(); }
};

/// A part of one of several transfers.
struct Part {
  size_t transfer = 0, at = 0, bytes = 0;
  size_t most = 0;  // bytes of a part of this transfer
};

}  // namespace zero::hosts
