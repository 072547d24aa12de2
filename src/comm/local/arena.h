// SPDX-License-Identifier: Apache-2.0
// Arenas of a local comm: in the host's memory one memfd, mapped once a process; on devices a block
// a rank, each mapped by all.
#pragma once

#include <memory>
#include <vector>

#include "base/keep.h"
#include "comm/arena.h"
#include "comm/local/segment.h"
#include "device/device.h"

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

/// What every rank reaches of every rank.
class LocalArena : public Arena {
 public:
  /// `rank`'s bytes.
  virtual std::byte* data_of(int32_t rank) const = 0;

 protected:
  using Arena::Arena;
};

class HostArena final : public LocalArena {
 public:
  HostArena(std::shared_ptr<Comm> comm, uint32_t number, std::shared_ptr<Mapping> mapping,
            const ArenaLayout& layout, int32_t kind, int32_t rank)
      : LocalArena(std::move(comm), number, mapping->data() + place(layout, rank), layout.bytes,
                   kind),
        mapping_(std::move(mapping)),
        layout_(layout) {}

  std::byte* data_of(int32_t rank) const override {
    return mapping_->data() + place(layout_, rank);
  }
  bool one_copy() const override { return kind() == ZERO_MEMORY_SHARED; }

 private:
  static size_t place(const ArenaLayout& layout, int32_t rank) {
    return layout.slices == 1 ? 0 : layout.slice * static_cast<size_t>(rank);
  }

  std::shared_ptr<Mapping> mapping_;
  ArenaLayout layout_;
};

/// One copy a rank, whatever the kind.
class DeviceArena final : public LocalArena {
 public:
  DeviceArena(std::shared_ptr<Comm> comm, uint32_t number, std::vector<SharedBlock> blocks,
              size_t bytes, int32_t kind, int32_t rank)
      : LocalArena(std::move(comm), number, blocks[static_cast<size_t>(rank)].data(), bytes, kind),
        blocks_(std::move(blocks)) {}
  ~DeviceArena() override {
    if (stays()) keep_for_ever(std::move(blocks_));
  }

  std::byte* data_of(int32_t rank) const override {
    return blocks_[static_cast<size_t>(rank)].data();
  }

 private:
  std::vector<SharedBlock> blocks_;  // by rank
};

}  // namespace zero::local
