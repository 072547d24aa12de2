// SPDX-License-Identifier: Apache-2.0
// Memory where the tensors of a comm are: of its device, or the host's.
#pragma once

#include <memory>
#include <string_view>

#include "device/device.h"
#include "device/host_memory.h"

namespace zero {

class Memory {
 public:
  Memory() = default;
  explicit Memory(DeviceMemory device) : device_(std::move(device)) {}

  /// Zeroed, on `device`, or on the host if that is null. ZERO_ERR_MEMORY names `what` and the
  /// bytes. Zero bytes are an empty block.
  static Result<Memory> allocate(const std::shared_ptr<Device>& device, size_t bytes,
                                 std::string_view what) {
    Memory memory;
    if (device == nullptr) {
      memory.host_ = ZERO_TRY(HostMemory::allocate(bytes, what));
    } else {
      memory.device_ = ZERO_TRY(DeviceMemory::allocate_zeroed(device, bytes, what));
    }
    return memory;
  }

  std::byte* data() const { return host_.data() != nullptr ? host_.data() : device_.data(); }
  size_t bytes() const { return host_.bytes() + device_.bytes(); }

 private:
  HostMemory host_;
  DeviceMemory device_;
};

}  // namespace zero
