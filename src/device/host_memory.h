// SPDX-License-Identifier: Apache-2.0
// Host memory that is there when it is needed: zeroed, aligned to 2 MiB, reserved at once.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace zero {

class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  /// ZERO_ERR_MEMORY names `what` and the bytes. Zero bytes are an empty block.
  static Result<HostMemory> allocate(size_t bytes, std::string_view what);

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
};

}  // namespace zero
