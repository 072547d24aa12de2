// SPDX-License-Identifier: Apache-2.0
// An arena of a local comm: one memfd, mapped once a process.
#pragma once

#include <memory>

#include "comm/arena.h"
#include "comm/local/segment.h"

namespace zero::local {

/// How an arena lies in its memfd: `slices` copies of `bytes`, each at a huge page.
struct ArenaLayout {
  size_t bytes;
  size_t slice;
  int32_t slices;

  size_t total() const { return slice * static_cast<size_t>(slices); }
  /// ZERO_ERR_MEMORY if that many bytes cannot be.
  static Result<ArenaLayout> of(size_t bytes, int32_t kind, int32_t world);
};

class LocalArena final : public Arena {
 public:
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::shared_ptr<Mapping> mapping,
             const ArenaLayout& layout, int32_t kind, int32_t rank)
      : Arena(std::move(comm), number, mapping->data() + place(layout, rank), layout.bytes, kind),
        mapping_(std::move(mapping)),
        layout_(layout) {}

  /// `rank`'s bytes.
  std::byte* data_of(int32_t rank) const { return mapping_->data() + place(layout_, rank); }

 private:
  static size_t place(const ArenaLayout& layout, int32_t rank) {
    return layout.slices == 1 ? 0 : layout.slice * static_cast<size_t>(rank);
  }

  std::shared_ptr<Mapping> mapping_;
  ArenaLayout layout_;
};

}  // namespace zero::local
