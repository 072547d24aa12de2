// SPDX-License-Identifier: Apache-2.0
// Walks over this rank's share piece by piece. A piece is the part of one parameter in one block of
// the grid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero {

// ---- Distribution of this rank's share over its threads.

/// `total` elements, divided among threads at multiples of `step`.
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

/// Elements of a tile. Tiles of all streams fit into the L1 cache together, so that they can be
/// read a second time from there.
inline constexpr int64_t kTile = 2048;

/// Stands for a gradient that a rank does not have.
alignas(64) inline constexpr std::byte kZeros[kTile * sizeof(double)] = {};

// ---- Pieces.

struct Piece {
  size_t view;
  const Section& section;
  size_t first;  // element of the view
  size_t count;
  std::byte* sums;
};

/// Calls walk(piece) for the pieces in elements [begin, end) of the views with a gradient. A piece
/// belongs to the range that contains its first element.
template <class Walk>
void walk_pieces(const Optimizer& optim, const StepMemory& memory, int64_t begin, int64_t end,
                 const Walk& walk) {
  int64_t passed = 0;
  for (size_t v = 0; v < memory.views.size() && passed < end; v++) {
    const View& view = memory.views[v];
    if (view.cls < 0) continue;
    if (passed + view.segment.count > begin) {
      const Section& section = optim.plan.section(view.segment.section);
      for_each_piece(optim.plan, view.segment, [&](int64_t first, int64_t count) {
        if (passed + first < begin || passed + first >= end) return;
        const auto skipped = static_cast<size_t>(first);
        std::byte* const sums =
            view.reduced == nullptr ? nullptr : view.reduced + skipped * size_of(section.sum());
        walk(Piece{v, section, skipped, static_cast<size_t>(count), sums});
      });
    }
    passed += view.segment.count;
  }
}

/// Divides the elements of views with a gradient among the threads, in multiples of kBlock. Calls
/// walk(thread, begin, end) on each thread that gets some.
template <class Walk>
void deal_out_views(const Optimizer& optim, const StepMemory& memory, const Walk& walk) {
  int64_t elements = 0;
  for (const View& view : memory.views) elements += view.cls < 0 ? 0 : view.segment.count;
  const Dealt dealt(elements, kBlock, optim.pool->threads());
  optim.pool->run([&](int thread) {
    const auto [begin, end] = dealt.part(thread);
    if (begin < end) walk(thread, begin, end);
  });
}

/// The chosen parameters, as a flag for each number. If empty, all parameters are chosen.
using Chosen = std::vector<bool>;

inline bool is_chosen(const View& view, const Chosen& chosen) {
  return chosen.empty() || chosen[static_cast<size_t>(view.segment.param)];
}

/// Counts bytes_of(section) bytes as moved for every element of a section that has a gradient.
template <class Bytes>
void count_moved(Optimizer& optim, const StepMemory& memory, const Bytes& bytes_of,
                 const Chosen& chosen = {}) {
  for (const View& view : memory.views) {
    if (view.cls < 0 || !is_chosen(view, chosen)) continue;
    const size_t bytes = bytes_of(optim.plan.section(view.segment.section));
    optim.counters.moved_bytes += view.segment.count * static_cast<int64_t>(bytes);
  }
}

}  // namespace zero
