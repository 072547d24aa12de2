// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file as blocks of 4 MiB, each with its checksum. The writer takes it from memory;
// the reader compares it before any byte of the block is used.
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

/// A file as the manifest describes it.
struct FileRecord {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // XXH3 of each, the last one shorter
  bool operator==(const FileRecord&) const = default;
};

/// The files of one directory, read or written block by block.
struct BlockFiles {
  const Directory& directory;
  std::byte* block;   // memory for one, which only the latest reader or writer may use
  Progress progress;  // called once a block; its failure is that of the work
};

/// Allocates memory for one block, of whole pages.
Result<HostMemory> allocate_block();

/// Writes one new file from start to end. `files` must outlive it.
class BlockWriter {
 public:
  static Result<BlockWriter> create(const BlockFiles& files, std::string name, uint64_t bytes);
  Status append(std::span<const std::byte> bytes);
  /// Brings the file to stable storage and closes it. Exactly the announced bytes must have been
  /// appended.
  Result<FileRecord> finish();

 private:
  BlockWriter() = default;
  Status put();

  const BlockFiles* files_ = nullptr;
  OpenFile file_;
  FileRecord record_;
  uint64_t written_ = 0;
  size_t filled_ = 0;  // of the block
};

/// Writes a file that is all text.
Result<FileRecord> write_text(const BlockFiles& files, std::string name, std::string_view words);

/// Reads a file by the size and checksums in its manifest. Every byte that it gives out is
/// verified. `files` and `record` must outlive it.
class BlockReader {
 public:
  static Result<BlockReader> open(const BlockFiles& files, const FileRecord& record);
  /// Fails with ZERO_ERR_CKPT_INVALID, which names the bytes, if block `index` is damaged.
  Status verify(uint64_t index);
  /// Copies bytes of the file to `to`. Fails with ZERO_ERR_INTERNAL if the range leaves the file.
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
