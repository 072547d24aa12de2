// SPDX-License-Identifier: Apache-2.0
// Arenas that no other rank can address: those of comms that share no memory. Of the comm's device,
// or the host's.
#pragma once

#include <memory>

#include "comm/arena.h"
#include "comm/comm.h"
#include "device/host_memory.h"

namespace zero {

/// An arena that owns `Memory`.
template <class Memory>
class PrivateArena final : public Arena {
 public:
  PrivateArena(std::shared_ptr<Comm> comm, uint32_t number, int32_t kind, Memory memory)
      : Arena(std::move(comm), number, memory.data(), memory.bytes(), kind),
        memory_(std::move(memory)) {}

 private:
  Memory memory_;
};

inline Result<std::shared_ptr<Arena>> allocate_private(std::shared_ptr<Comm> comm, uint32_t number,
                                                       size_t bytes, int32_t kind) {
  constexpr const char* what = "an arena";
  const auto own = [&](auto memory) {
    using Memory = decltype(memory);
    return std::shared_ptr<Arena>(
        std::make_shared<PrivateArena<Memory>>(std::move(comm), number, kind, std::move(memory)));
  };
  if (comm->device() == nullptr) return own(ZERO_TRY(HostMemory::allocate(bytes, what)));
  const std::shared_ptr<Device> device = comm->device();
  return own(ZERO_TRY(DeviceMemory::allocate_zeroed(device, bytes, what)));
}

}  // namespace zero
