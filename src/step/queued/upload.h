// SPDX-License-Identifier: Apache-2.0
// Copies tables and settings from the host to the device, in the order of a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "device/device.h"

namespace zero::queued {

/// Returns how long to wait for queued work, in ms. At gates that is twice the timeout: a stream
/// may wait for another rank as long as the timeout, and the gates' watch should name that rank
/// first.
inline int64_t patience_ms(Comm& comm) {
  return comm.options().timeout_ms * (comm.gates() == nullptr ? 1 : 2);
}

/// Copies that the host need not wait for. They go through a few buffers in turn; each is written
/// again when the device has read it.
class Upload {
 public:
  static Result<Upload> create(const std::shared_ptr<Comm>& comm);

  /// Makes room for blocks of so many bytes, so that put() cannot fail for lack of memory.
  Status reserve(size_t bytes);
  Status put(StreamHandle stream, void* to, std::span<const std::byte> bytes);

 private:
  struct Slot {
    HostBuffer buffer;
    Event read;
  };

  Status await(const Slot& slot) const;

  std::shared_ptr<Comm> comm_;
  std::array<Slot, 3> slots_;
  size_t next_ = 0;
};

/// Rows of several kinds laid out in one block of memory, so that one copy brings them all.
class Blob {
 public:
  /// Adds rows, and returns their offset from the start of the block.
  template <class Row>
  size_t add(std::span<const Row> rows) {
    const size_t at = (bytes_.size() + kAlign - 1) / kAlign * kAlign;
    bytes_.resize(at + rows.size_bytes());
    if (!rows.empty()) std::memcpy(bytes_.data() + at, rows.data(), rows.size_bytes());
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlign = 16;
  std::vector<std::byte> bytes_;
};

}  // namespace zero::queued
