// SPDX-License-Identifier: Apache-2.0
// Memory as it was at one moment, for a reader that takes its time: whoever is about to overwrite a
// part of it keeps that part first. Who keeps a part does not wait for the reader, which may have
// lost its core at any moment: the reader copies without a lock, and drops what was kept meanwhile.
// Only who lets the memory go waits for its copy of one block.
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

  /// Makes the image of all that will be read, of each range as often as it is listed. Ranges may
  /// overlap. Copies nothing yet. Copies go to `memory`, if that is enough, else to address space
  /// that is reserved instead. Fails with ZERO_ERR_MEMORY if copies of all of it could not be kept.
  static Result<std::shared_ptr<Image>> create(std::vector<Bytes> ranges, HostMemory& memory);

  /// Keeps what the image has of these bytes, unless it is kept or read already. Any thread may
  /// call it, before it overwrites them.
  void keep(const std::byte* data, size_t bytes);
  void keep_all();
  /// Keeps all, and nobody reads the memory behind it: it may go.
  void let_go();
  /// Does the same for memory of a device.
  Status keep_all(Window& window);
  /// True if nothing is left to keep.
  bool whole() const { return live_.load(std::memory_order_acquire) == 0; }

  /// Shows bytes as they were, part by part, for one reader. The range must be a part of one that
  /// was listed.
  Status show_all(const std::byte* from, size_t bytes, const std::function<Status(Bytes)>& visit);
  /// From now on nobody reads the memory, and show_all() fails.
  void close();
  /// Gives the memory of the copies away. Nothing may be used behind it.
  HostMemory release() { return std::move(copies_); }

 private:
  static constexpr size_t kBlockBytes = 256 * 1024;  // a step's block of three arrays fits a cache

  enum class Part : uint8_t { live, being_kept, kept, read };
  struct Block {
    const std::byte* data;
    size_t bytes;
    std::byte* copy;      // its place
    uint64_t unread = 0;  // bytes that will be shown still
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
  std::atomic<size_t> live_{0};  // blocks
  std::atomic<bool> reading_{false}, closed_{false};
};

}  // namespace zero
