// SPDX-License-Identifier: Apache-2.0
// The tables that launches walk, made of the views of a step: on the device they are one block.
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

/// Neighbouring rows of a table.
struct Range {
  uint32_t first = 0;
  uint32_t count = 0;
};

/// A part of the share that is worked on by itself: a section, or what one transfer publishes.
/// `range` has its tiles, or its pieces.
struct Part {
  int32_t section = 0;
  Range range;
  int64_t elements = 0;
};

/// A transfer on a device.
struct Travel : travel::Travel {
  Range packed, unpacked;  // tiles of its moves

  /// True if it can travel in a group with others like it.
  bool plain() const { return in_place && !by_owner; }
};

/// Returns the first of `rest` with those neighbours that travel in its group: as many as the plane
/// takes `at_once`.
inline std::span<const Travel> first_group(std::span<const Travel> rest, size_t at_once) {
  size_t count = 1;
  while (count < std::min(at_once, rest.size()) && rest[0].plain() && rest[count].plain()) count++;
  return rest.first(count);
}

/// All that tables are made of: if any of it changes, tables change.
struct MadeOf {
  uint64_t views = 0;   // StepMemory::views_number
  int64_t state = -1;   // Optimizer::state_bytes: another slot changes it
  uint64_t places = 0;  // StepMemory::places_made: gradients are staged from where they lie
  bool adds = false;    // StepMemory::adds
  // How transfers go, and through which buffers. Another optimizer of the comm can change that by
  // having arenas mapped.
  bool reduces_in_place = false, publishes_in_place = false;
  const std::byte *send = nullptr, *receive = nullptr;
  bool operator==(const MadeOf&) const = default;
};

/// Rows of several kinds laid out in one block of memory, so that one copy brings them all.
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
  // The starts of tables in `bytes`.
  size_t runs = 0, tiles = 0, sources = 0, reduced = 0, targets = 0;
  size_t sums = 0, pieces = 0, sum_sources = 0, sum_self = 0, sum_incoming = 0;
  size_t moves = 0, move_tiles = 0;
  size_t class_params = 0, groups = 0, present = 0;

  uint32_t classes = 0;
  std::vector<int64_t> params_of_classes;  // any parameter of each
  uint32_t source_width = 1, target_width = 0;
  bool all_present = true;
  std::vector<Part> batches;   // to be updated
  std::vector<Part> measured;  // to be measured, by their pieces
  std::vector<Travel> reductions, gathers;
  /// By parameter: the gather that brings the last of it; -1: none does.
  std::shared_ptr<const std::vector<int32_t>> last_gathers;
  // Tiles of moves, by section. own: this rank's gradients to its sums; staged: gradients in no
  // arena to the place where other ranks read them; pulled: parameters in no arena from the place
  // where their owners wrote them.
  std::vector<Part> own, staged, pulled;
};

/// All moves, and their tiles.
struct Copies {
  std::vector<launch::Move> moves;
  std::vector<launch::Tile> tiles;

  /// Adds moves, and returns their tiles.
  Range add(const std::vector<launch::Move>& added);
};

/// Returns how the elements of a section lie. `rounds`: its gradients are rounded on the way.
launch::Format format_of(const Optimizer& optim, const Section& section, bool rounds);

/// Makes tables for the views of `memory` and, for collectives, for transfers through its buffers.
Tables make_tables(const Optimizer& optim, const StepMemory& memory);

}  // namespace zero::queued
