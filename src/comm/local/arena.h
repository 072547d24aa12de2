// SPDX-License-Identifier: Apache-2.0
// Arenas of a local comm. In host memory an arena is one memfd, which each process maps once. On
// devices it is one block for each rank, which every rank maps.
#pragma once

#include <memory>
#include <vector>

#include "base/keep.h"
#include "comm/comm.h"
#include "comm/local/segment.h"
#include "device/device.h"

namespace zero::local {

/// The layout of an arena in its memfd: `slices` copies of `bytes`, each aligned to a huge page.
struct ArenaLayout {
  size_t bytes;
  size_t slice;
  int32_t slices;

  size_t total() const { return slice * static_cast<size_t>(slices); }
  /// Returns the offset of `rank`'s bytes.
  size_t at(int32_t rank) const { return slice * static_cast<size_t>(rank % slices); }
  /// Returns the range that `rank` of `world` reserves: its own slice, or a part of the single
  /// copy.
  struct Part {
    size_t first, size;
  };
  Part part_of(int32_t rank, int32_t world) const;
  /// Fails with ZERO_ERR_MEMORY if the size overflows.
  static Result<ArenaLayout> of(size_t bytes, int32_t kind, int32_t world);
};

/// An arena in which every rank can access every rank's part. On a device there is one copy for
/// each rank, whatever the kind.
class LocalArena final : public Arena {
 public:
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::shared_ptr<Mapping> mapping,
             const ArenaLayout& layout, int32_t kind)
      : Arena(comm, number, mapping->data() + layout.at(comm->rank()), layout.bytes, kind),
        layout_(layout),
        mapping_(std::move(mapping)) {}
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::vector<SharedBlock> blocks,
             size_t bytes, int32_t kind)
      : Arena(comm, number, blocks[static_cast<size_t>(comm->rank())].data(), bytes, kind),
        blocks_(std::move(blocks)) {}
  ~LocalArena() override {
    if (stays()) keep_for_ever(std::move(blocks_));
  }

  /// Returns the address of `rank`'s bytes.
  std::byte* data_of(int32_t rank) const {
    return mapping_ != nullptr ? mapping_->data() + layout_.at(rank)
                               : blocks_[static_cast<size_t>(rank)].data();
  }
  bool one_copy() const override { return mapping_ != nullptr && kind() == ZERO_MEMORY_SHARED; }

 private:
  // layout_ and mapping_ are for host memory, and blocks_, indexed by rank, is for devices.
  const ArenaLayout layout_{};
  const std::shared_ptr<Mapping> mapping_;
  std::vector<SharedBlock> blocks_;
};

}  // namespace zero::local
