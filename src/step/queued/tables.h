// SPDX-License-Identifier: Apache-2.0
// The tables that launches read. They are made from the views of a step, and are one block of
// memory on the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/launches.h"
#include "step/memory.h"
#include "step/travel.h"

namespace zero::queued {

/// Consecutive rows of a table.
struct Range {
  uint32_t first = 0;
  uint32_t count = 0;
};

/// A part of the share that is processed separately: a section, or what one transfer publishes.
/// `range` has its tiles or its pieces.
struct Part {
  int32_t section = 0;
  Range range;
  int64_t elements = 0;
};

/// A transfer on a device.
struct Travel : travel::Travel {
  Range packed, unpacked;  // tiles of the moves in pack and unpack

  /// Returns true if the transfer can be sent in a group with others for which this is true.
  bool plain() const { return in_place && !by_owner; }
};

/// Returns the first group of transfers in `rest`. It has at most `at_once` transfers.
inline std::span<const Travel> first_group(std::span<const Travel> rest, size_t at_once) {
  size_t count = 1;
  while (count < std::min(at_once, rest.size()) && rest[0].plain() && rest[count].plain()) count++;
  return rest.first(count);
}

/// Everything that tables depend on. If any of it changes, they are made again.
struct MadeOf {
  uint64_t views = 0;   // StepMemory::views_number
  int64_t state = -1;   // Optimizer::state_bytes, which changes with each new slot
  uint64_t places = 0;  // StepMemory::places_made, for the addresses of staged gradients
  bool adds = false;    // StepMemory::adds
  // The kinds of transfers, and their buffers. Another optimizer of the comm can change these when
  // it maps arenas.
  bool reduces_in_place = false, publishes_in_place = false;
  const std::byte *send = nullptr, *receive = nullptr;
  bool operator==(const MadeOf&) const = default;
};

/// Rows of several kinds in one block of memory, so that a single copy sends all of them.
class Blob {
 public:
  /// Adds rows, and returns their offset from the start of the block.
  template <class Row>
  size_t add(std::span<const Row> rows) {
    const size_t at = (bytes_.size() + kAlign - 1) / kAlign * kAlign;
    bytes_.resize(at + rows.size_bytes());
    if (!rows.empty()) std::memcpy(bytes_.data() + at, rows.data(), rows.size_bytes());
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlign = 16;
  std::vector<std::byte> bytes_;
};

struct Tables {
  MadeOf made_of;

  std::vector<std::byte> bytes;
  // Offsets of the tables in `bytes`.
  size_t runs = 0, tiles = 0, sources = 0, reduced = 0, targets = 0;
  size_t sums = 0, pieces = 0, sum_sources = 0, sum_self = 0, sum_incoming = 0;
  size_t moves = 0, move_tiles = 0;
  size_t class_params = 0, class_rules = 0, groups = 0, group_rules = 0, present = 0;

  uint32_t classes = 0;
  std::vector<int64_t> params_of_classes;  // one parameter of each class
  uint32_t source_width = 1, target_width = 0;
  bool all_present = true;
  std::vector<Part> batches;   // parts to update, with their tiles
  std::vector<Part> measured;  // parts to measure, with their pieces
  std::vector<Travel> reductions, gathers;
  /// By parameter, the index of the gather that completes it, or -1 if there is none.
  std::shared_ptr<const std::vector<int32_t>> last_gathers;
  // Tiles of moves, by section. `own` copies this rank's gradients to its sums. `staged` copies
  // gradients in no arena to staging. `pulled` copies parameters in no arena from their owners'
  // outboxes.
  std::vector<Part> own, staged, pulled;
};

/// Moves and their tiles.
struct Copies {
  std::vector<launch::Move> moves;
  std::vector<launch::Tile> tiles;

  /// Adds moves, and returns the range of their tiles.
  Range add(const std::vector<launch::Move>& added);
};

/// Returns the format of the elements of a section. `rounds` is true if gradients are rounded
/// before they are summed.
launch::Format format_of(const Optimizer& optim, const Section& section, bool rounds);

/// Makes tables for the views in `memory` and, on comms that are not direct, for transfers through
/// its buffers.
Tables make_tables(const Optimizer& optim, const StepMemory& memory);

}  // namespace zero::queued
