// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file as blocks of 4 MiB, each with its checksum: taken from memory while writing,
// and compared before a byte that was read is used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/memory.h"
#include "state/file.h"

namespace zero {

inline constexpr uint64_t kBlockBytes = 4u << 20;

constexpr uint64_t block_count(uint64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0);
}

/// What the manifest knows of a file.
struct FileRecord {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // XXH3 of each, the last one shorter
  bool operator==(const FileRecord&) const = default;
};

/// The files of one directory, which are gone through block by block.
struct BlockFiles {
  const Directory& directory;
  std::byte* block;   // memory for one, that only the latest reader or writer may use
  Progress progress;  // called once a block
};

/// Memory for one block.
Result<HostMemory> allocate_block();

/// Writes one new file from start to end. `files` outlives it.
class BlockWriter {
 public:
  static Result<BlockWriter> create(const BlockFiles& files, std::string name, uint64_t bytes);
  Status append(std::span<const std::byte> bytes);
  /// On stable storage and closed. Exactly the announced bytes have been appended.
  Result<FileRecord> finish();

 private:
  BlockWriter() = default;
  Status put(std::span<const std::byte> block);

  const BlockFiles* files_ = nullptr;
  OpenFile file_;
  FileRecord record_;
  uint64_t written_ = 0;
  size_t filled_ = 0;  // of the block
};

/// Reads a file of which the manifest knows size and checksums; every byte it gives out is
/// verified. `files` and `record` outlive it.
class BlockReader {
 public:
  static Result<BlockReader> open(const BlockFiles& files, const FileRecord& record);
  /// ZERO_ERR_CKPT_INVALID, naming the bytes, if block `index` is damaged.
  Status verify(uint64_t index);
  /// Copy bytes of the file to `to`. A range that leaves the file is ZERO_ERR_INTERNAL.
  Status read(uint64_t offset, std::span<std::byte> to);
  const std::string& path() const { return file_.path; }
  uint64_t bytes() const { return file_.bytes; }

 private:
  BlockReader() = default;

  const BlockFiles* files_ = nullptr;
  const FileRecord* record_ = nullptr;
  InputFile file_;
  uint64_t held_ = UINT64_MAX;  // the block in memory
};

}  // namespace zero
