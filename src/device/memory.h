// SPDX-License-Identifier: Apache-2.0
// Memory where the tensors of a comm are: of its device, or the host's.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/refusals.h"
#include "device/device.h"

namespace zero {

/// True if `data` is memory of a GPU, as far as a CUDA driver knows that the process has loaded,
/// for whatever use. If the host touched it, the process would end.
bool is_gpu_memory(const void* data);

/// Returns OK if a comm whose tensors are on `device` (null: on the host) can use `data` where it
/// is. If not, ZERO_ERR_ARGUMENT says what it is instead. `what` makes the words that name it.
template <class What>
Status check_memory(Device* device, const void* data, size_t bytes, const What& what) {
  if (device != nullptr) return device->check(data, bytes, what());
  if (!is_gpu_memory(data)) return Status();
  return bad_argument(what(),
                      " is GPU memory, but this comm is on the host: "
                      "create the comm with ZERO_DEVICE_CUDA");
}

/// Returns OK if the host itself can touch `data`, wherever a comm's tensors are; if not,
/// ZERO_ERR_ARGUMENT.
inline Status check_host_memory(const void* data, std::string_view what) {
  if (!is_gpu_memory(data)) return Status();
  return bad_argument(what, " is GPU memory: pass host memory");
}

enum class Children { see_it, do_not };

/// Memory of the host that is zeroed and reserved at once, so that it is there when it is needed.
/// Blocks of 2 MiB and more are aligned to 2 MiB. Forked children do not have it, unless it is said
/// that they do: what this process writes would be copied for them.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  /// Fails with ZERO_ERR_MEMORY, which names `what` and the bytes. Zero bytes are an empty block.
  static Result<HostMemory> allocate(size_t bytes, std::string_view what,
                                     Children children = Children::do_not);

  /// Does the same, but takes what the machine and its containers plainly have only when it is
  /// touched, without huge pages: to make one then can take long while files fill the memory.
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
  /// Allocates zeroed memory on `device`, or on the host if that is null. Fails with
  /// ZERO_ERR_MEMORY, which names `what` and the bytes. Zero bytes are an empty block.
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
