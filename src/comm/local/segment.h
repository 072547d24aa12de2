// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: sealed memfds without a name, checked before they are mapped,
// reserved before they are used, and mapped once a process, however many of its threads are ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/os.h"
#include "base/status.h"

namespace zero::local {

/// Pages that a large mapping is aligned to, so that the kernel can use huge ones.
inline constexpr size_t kHugePage = size_t{2} << 20;

/// One mapping of a memfd in this process, shared by all who map it.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Takes over what was mapped.
  void hold(std::byte* data, size_t bytes) {
    data_ = data;
    bytes_ = bytes;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Makes a memfd of `bytes` zeros, whose size can never change. Nothing is reserved yet.
Result<Fd> create_segment(const char* name, size_t bytes);

/// Refuses a descriptor that is no memfd of this size, or that somebody could still shrink or grow.
Status check_segment(int fd, size_t bytes);

enum class Access {
  read_only,  // hidden
  hidden,     // read and write, but not in the children of this process
  shown,      // read and write, also in children
};

/// Returns this process's mapping of the whole memfd: the one that stands, or a new one.
Result<std::shared_ptr<Mapping>> map_segment(int fd, size_t bytes, Access access);

/// Allocates the memory behind [offset, offset + bytes) now. It may fail with ZERO_ERR_MEMORY here,
/// but no SIGBUS comes later.
Status reserve(int fd, const Mapping& mapping, size_t offset, size_t bytes);

/// Returns the number of mappings that stand in this process.
size_t mapped_segments();

}  // namespace zero::local
