// SPDX-License-Identifier: Apache-2.0
// A copy-on-write snapshot of memory for a slow reader. A thread that is about to overwrite a part
// first keeps a copy of it. It does not wait for the reader, which may be descheduled at any
// moment. The reader copies without a lock, and discards the copy if the part was kept meanwhile.
// Only a thread that frees the memory waits, for the reader's copy of one block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/memory.h"
#include "device/window.h"

namespace zero {

class Image {
 public:
  using Bytes = std::span<const std::byte>;

  /// Creates a snapshot of everything that will be read. A range is listed once for each time that
  /// it will be read. Ranges may overlap. Copies nothing yet. Copies use `memory` if it is large
  /// enough, and otherwise newly reserved address space. Fails with ZERO_ERR_MEMORY if there is no
  /// room for copies of everything.
  static Result<std::shared_ptr<Image>> create(std::vector<Bytes> ranges, HostMemory& memory);

  /// Keeps these bytes of the image, unless they have been kept or read. Any thread may call it,
  /// before it overwrites the bytes.
  void keep(const std::byte* data, size_t bytes);
  void keep_all();
  /// Keeps everything, so that the memory can be freed: it is not read after this call.
  void let_go();
  /// Does the same for memory of a device.
  Status keep_all(Window& window);
  /// Returns true if nothing is left to keep.
  bool whole() const { return live_.load(std::memory_order_acquire) == 0; }

  /// Calls `visit` with the bytes as they were, part by part. For one reader at a time. The range
  /// must be a part of a listed one.
  Status show_all(const std::byte* from, size_t bytes, const std::function<Status(Bytes)>& visit);
  /// Makes show_all() fail from now on, and stops reading the memory.
  void close();
  /// Returns the memory of the copies. The image must not be used after this call.
  HostMemory release() { return std::move(copies_); }

 private:
  static constexpr size_t kBlockBytes = 256 * 1024;  // a step's block of three arrays fits a cache

  enum class Part : uint8_t { live, being_kept, kept, read };
  struct Block {
    const std::byte* data;
    size_t bytes;
    std::byte* copy;      // its place in copies_
    uint64_t unread = 0;  // bytes that show_all() has yet to return
    std::atomic<Part> part{Part::live};
    Block(const std::byte* data, size_t bytes, std::byte* copy)
        : data(data), bytes(bytes), copy(copy) {}
    Block(Block&& other) noexcept
        : data(other.data), bytes(other.bytes), copy(other.copy), unread(other.unread) {}
  };

  size_t block_at(const std::byte* data) const;
  void keep_block(Block& block);
  bool read_live(Block& block, const std::byte* from, size_t bytes);
  void await_reader() const;

  std::vector<Block> blocks_;  // by address
  HostMemory copies_, shown_;
  std::atomic<size_t> live_{0};  // number of live blocks
  std::atomic<bool> reading_{false}, closed_{false};
};

}  // namespace zero
