// SPDX-License-Identifier: Apache-2.0
// Memory for the tensors of a comm, on its device or on the host.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/refusals.h"
#include "device/device.h"

namespace zero {

/// Returns true if a loaded CUDA driver knows `data` as memory of a GPU. An access by the host
/// would crash the process.
bool is_gpu_memory(const void* data);

/// Returns OK if a comm with tensors on `device` (null for the host) can use `data` in place. If
/// not, returns ZERO_ERR_ARGUMENT and says what memory it is. what() names the memory.
template <class What>
Status check_memory(Device* device, const void* data, size_t bytes, const What& what) {
  if (device != nullptr) return device->check(data, bytes, what());
  if (!is_gpu_memory(data)) return Status();
  return bad_argument(what(),
                      " is GPU memory, but this comm is on the host: "
                      "create the comm with ZERO_DEVICE_CUDA");
}

/// Returns OK if the host itself can access `data`, wherever a comm's tensors are, and otherwise
/// ZERO_ERR_ARGUMENT.
inline Status check_host_memory(const void* data, std::string_view what) {
  if (!is_gpu_memory(data)) return Status();
  return bad_argument(what, " is GPU memory: pass host memory");
}

enum class Children { see_it, do_not };

/// Zeroed host memory that is populated at once, so that later use cannot fail. Blocks of at least
/// 2 MiB are aligned to 2 MiB. By default forked children do not map it, because otherwise writes
/// by this process would copy pages for them.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  /// Fails with ZERO_ERR_MEMORY, naming `what` and the size. An allocation of zero bytes is empty.
  static Result<HostMemory> allocate(size_t bytes, std::string_view what,
                                     Children children = Children::do_not);

  /// Does the same, but populates the memory only when it is touched, without huge pages, after a
  /// check of what is available. Making huge pages can be slow while files fill the memory.
  static Result<HostMemory> reserve(size_t bytes, std::string_view what);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static Result<HostMemory> map(size_t bytes, std::string_view what, Children children);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
};

class Memory {
 public:
  /// Allocates zeroed memory on `device`, or on the host if it is null. Fails with ZERO_ERR_MEMORY,
  /// naming `what` and the size. An allocation of zero bytes is empty.
  static Result<Memory> allocate(const std::shared_ptr<Device>& device, size_t bytes,
                                 std::string_view what, Children children = Children::do_not) {
    Memory memory;
    if (device == nullptr) {
      memory.host_ = ZERO_TRY(HostMemory::allocate(bytes, what, children));
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
