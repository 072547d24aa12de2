// SPDX-License-Identifier: Apache-2.0
// Arenas of a local comm: in the host's memory one memfd, mapped once a process; on devices a block
// a rank, each mapped by all.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/keep.h"
#include "comm/comm.h"
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

/// What every rank reaches of every rank. On a device that is one copy a rank, whatever the kind.
class LocalArena final : public Arena {
 public:
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::shared_ptr<Mapping> mapping,
             const ArenaLayout& layout, int32_t kind)
      : LocalArena(std::move(comm), number, parts_of(*mapping, layout), layout.bytes, kind) {
    mapping_ = std::move(mapping);
  }
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::vector<SharedBlock> blocks,
             size_t bytes, int32_t kind)
      : LocalArena(std::move(comm), number, parts_of(blocks), bytes, kind) {
    blocks_ = std::move(blocks);
  }
  ~LocalArena() override {
    if (stays()) keep_for_ever(std::move(blocks_));
  }

  /// `rank`'s bytes.
  std::byte* data_of(int32_t rank) const {
    return parts_[static_cast<size_t>(rank) % parts_.size()];
  }
  bool one_copy() const override { return mapping_ != nullptr && kind() == ZERO_MEMORY_SHARED; }

 private:
  LocalArena(std::shared_ptr<Comm> comm, uint32_t number, std::vector<std::byte*> parts,
             size_t bytes, int32_t kind)
      : Arena(comm, number, parts[static_cast<size_t>(comm->rank()) % parts.size()], bytes, kind),
        parts_(std::move(parts)) {}
  static std::vector<std::byte*> parts_of(const Mapping& mapping, const ArenaLayout& layout);
  static std::vector<std::byte*> parts_of(std::span<const SharedBlock> blocks);

  std::vector<std::byte*> parts_;  // by rank, or one for all
  std::shared_ptr<Mapping> mapping_;
  std::vector<SharedBlock> blocks_;  // by rank
};

}  // namespace zero::local
