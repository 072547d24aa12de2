// SPDX-License-Identifier: Apache-2.0
// Gives the host access to tensors: in place on the host, or in parts through a device's buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "device/device.h"

namespace zero {

/// Every call waits until it is complete. On a device it uses its own stream, so other work queued
/// on the same memory must have ended before.
class Window {
 public:
  /// Creates a window on host memory.
  Window() = default;
  /// Creates a window on a device's memory, or on host memory if `device` is null.
  static Result<Window> create(const std::shared_ptr<Device>& device, int64_t timeout_ms);

  /// Returns how many elements of the given size fit at once. There is no limit on the host.
  int64_t most(size_t element_bytes) const;

  /// Returns the bytes at `from`, at most as many as most() allows. They are valid until the next
  /// call.
  Result<const std::byte*> show(const std::byte* from, size_t bytes);
  /// Returns the place at which to write the bytes for the next store() to `to`.
  Result<std::byte*> room(std::byte* to);
  Status store(std::byte* to, size_t bytes);

  // For any size, in parts: between this memory and host memory, or within this memory.
  Status show_all(const std::byte* from, size_t bytes,
                  const std::function<Status(std::span<const std::byte>)>& visit);
  Status fill_all(std::byte* to, size_t bytes,
                  const std::function<Status(std::span<std::byte>)>& fill);
  Status read(void* values, const std::byte* from, size_t bytes);
  Status write(std::byte* to, const void* values, size_t bytes);
  Status copy(std::byte* to, const std::byte* from, size_t bytes);
  Status clear(std::byte* to, size_t bytes);

 private:
  static constexpr size_t kBytes = size_t{1} << 20;

  Status finish();

  std::shared_ptr<Device> device_;
  int64_t timeout_ms_ = 0;
  HostBuffer buffer_;
  Stream stream_;
  Event done_;
};

}  // namespace zero
