// SPDX-License-Identifier: Apache-2.0
// The parts into which transfers between hosts are divided.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/checked.h"

namespace zero::hosts {

/// Divides `bytes` that are sent between any two of some fellows into parts.
struct Parts {
  static constexpr size_t kRooms = 4;             // parts in flight
  static constexpr size_t kRoomBytes = 1u << 20;  // of a part, with all fellows, in one direction
  static constexpr size_t kLeastBytes = 4096;     // of a part, with one fellow

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
  size_t most = 0;  // the size of a full part of this transfer
};

}  // namespace zero::hosts
