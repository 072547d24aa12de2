// SPDX-License-Identifier: Apache-2.0
// How the host reads and writes tensors wherever they are: the host's where they stand, a device's
// piece by piece through a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace zero {

/// Every call waits until it is done. On a device its work has a stream of its own: what others
/// queued on the same memory has ended before.
class Window {
 public:
  /// On the host's memory.
  Window() = default;
  /// On a device's, or the host's if `device` is null.
  static Result<Window> create(const std::shared_ptr<Device>& device, int64_t timeout_ms);

  /// Elements of so many bytes that it shows at once: on the host without limit.
  int64_t most(size_t element_bytes) const;

  /// What stands at `from`, at most so much: valid until the next call.
  Result<const std::byte*> show(const std::byte* from, size_t bytes);
  /// Where to write what the next store() takes to `to`.
  Result<std::byte*> room(std::byte* to);
  Status store(std::byte* to, size_t bytes);

  // Of any size, between the memory and the host's, and within the memory.
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
