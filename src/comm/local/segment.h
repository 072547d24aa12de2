// SPDX-License-Identifier: Apache-2.0
// Shared memory of processes: sealed anonymous memfds, which are checked before they are mapped and
// reserved before they are used. A process maps each one once for all its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/os.h"
#include "base/status.h"

namespace zero::local {

/// Alignment of large mappings, so that the kernel can use huge pages.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// The mapping of a memfd in this process, shared by all its users.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Takes ownership of a mapped range.
  void hold(std::byte* data, size_t bytes) {
    data_ = data;
    bytes_ = bytes;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Creates a memfd of `bytes` zeros, whose size is fixed. Does not reserve memory.
Result<Fd> create_segment(const char* name, size_t bytes);

/// Fails if a descriptor is not a memfd of this size, or if its size can still change.
Status check_segment(int fd, size_t bytes);

enum class Access {
  read_only,  // not mapped in child processes
  hidden,     // read and write, but not mapped in child processes
  shown,      // read and write, also in child processes
};

/// Returns this process's mapping of the whole memfd. Reuses an existing mapping.
Result<std::shared_ptr<Mapping>> map_segment(int fd, size_t bytes, Access access);

/// Allocates the memory of [offset, offset + bytes) now. Fails with ZERO_ERR_MEMORY if there is too
/// little, which avoids a later SIGBUS.
Status reserve(int fd, const Mapping& mapping, size_t offset, size_t bytes);

/// Returns the number of mappings in this process.
size_t mapped_segments();

}  // namespace zero::local
