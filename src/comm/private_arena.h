// SPDX-License-Identifier: Apache-2.0
// Arenas of comms that share no memory. No other rank can address them.
#pragma once

#include <functional>
#include <memory>

#include "base/keep.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/arena.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace zero {

class PrivateArena final : public Arena {
 public:
  /// Allocates an arena. On a device it uses shareable memory, like arenas of a local comm, if the
  /// driver provides it.
  static Result<std::shared_ptr<PrivateArena>> allocate(std::shared_ptr<Comm> comm, uint32_t number,
                                                        size_t bytes, int32_t kind) {
    SharedBlock block = comm->device() != nullptr ? share(comm->device(), bytes) : SharedBlock();
    Memory memory;
    if (block.data() == nullptr)
      memory = ZERO_TRY(Memory::allocate(comm->device(), bytes, "an arena", Children::see_it));
    return std::shared_ptr<PrivateArena>(new PrivateArena(std::move(comm), number, bytes, kind,
                                                          std::move(block), std::move(memory)));
  }

  /// Returns true if libraries that connect devices can map the arena on other ranks.
  bool shareable() const { return block_.data() != nullptr; }

  /// Registers that a library knows this memory. `forget` deregisters it before the memory is
  /// freed. If `forget` returns false, the memory is never freed.
  void attach(std::function<bool()> forget) { forget_ = std::move(forget); }

  ~PrivateArena() override {
    const bool forgotten = forget_ == nullptr || succeeds(forget_);
    if (forgotten && !stays()) return;
    keep_for_ever(std::move(block_));
    keep_for_ever(std::move(memory_));
  }

 private:
  /// Returns an empty block if the driver cannot allocate shareable memory.
  static SharedBlock share(const std::shared_ptr<Device>& device, size_t bytes) {
    Result<SharedBlock> made = SharedBlock::allocate_zeroed(device, bytes, "an arena");
    if (made.ok()) return std::move(*made);
    log(ZERO_LOG_INFO,
        text("an arena will use memory that other ranks cannot map: ", made.failure().text()));
    return SharedBlock();
  }

  PrivateArena(std::shared_ptr<Comm> comm, uint32_t number, size_t bytes, int32_t kind,
               SharedBlock block, Memory memory)
      : Arena(std::move(comm), number, block.data() != nullptr ? block.data() : memory.data(),
              bytes, kind),
        block_(std::move(block)),
        memory_(std::move(memory)) {}

  SharedBlock block_;
  Memory memory_;
  std::function<bool()> forget_;
};

}  // namespace zero
