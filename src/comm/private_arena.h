// SPDX-License-Identifier: Apache-2.0
// Arenas that no other rank can address: those of comms that share no memory.
#pragma once

#include <memory>

#include "comm/arena.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace zero {

class PrivateArena final : public Arena {
 public:
  static Result<std::shared_ptr<Arena>> allocate(std::shared_ptr<Comm> comm, uint32_t number,
                                                 size_t bytes, int32_t kind) {
    Memory memory = ZERO_TRY(Memory::allocate(comm->device(), bytes, "an arena"));
    return std::shared_ptr<Arena>(
        new PrivateArena(std::move(comm), number, kind, std::move(memory)));
  }

 private:
  PrivateArena(std::shared_ptr<Comm> comm, uint32_t number, int32_t kind, Memory memory)
      : Arena(std::move(comm), number, memory.data(), memory.bytes(), kind),
        memory_(std::move(memory)) {}

  Memory memory_;
};

}  // namespace zero
