// SPDX-License-Identifier: Apache-2.0
// Writes and reads a checkpoint's files as blocks of 4 MiB with one checksum each. The reader
// verifies a block before any of its bytes is used.
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
  std::vector<uint64_t> blocks;  // the XXH3 of each; the last one may be shorter
  bool operator==(const FileRecord&) const = default;
};

/// The files of one directory, read or written block by block.
struct BlockFiles {
  const Directory& directory;
  std::byte* block;   // memory for one block, which only the latest reader or writer may use
  Progress progress;  // called once per block; if it fails, the work fails
};

/// Allocates memory for one block, in whole pages.
Result<HostMemory> allocate_block();

/// Writes one new file from start to end. `files` must outlive it.
class BlockWriter {
 public:
  static Result<BlockWriter> create(const BlockFiles& files, std::string name, uint64_t bytes);
  Status append(std::span<const std::byte> bytes);
  /// Syncs the file to stable storage and closes it. Exactly the announced number of bytes must
  /// have been appended.
  Result<FileRecord> finish();

 private:
  BlockWriter() = default;
  Status put();

  const BlockFiles* files_ = nullptr;
  OpenFile file_;
  FileRecord record_;
  uint64_t written_ = 0;
  size_t filled_ = 0;  // bytes in the block
};

/// Writes a file whose contents are `words`.
Result<FileRecord> write_text(const BlockFiles& files, std::string name, std::string_view words);

/// Reads a file, and checks it against the size and checksums in its manifest. Every byte that it
/// returns has been verified. `files` and `record` must outlive it.
class BlockReader {
 public:
  static Result<BlockReader> open(const BlockFiles& files, const FileRecord& record);
  /// Fails with ZERO_ERR_CKPT_INVALID if block `index` is damaged. The text names the bytes.
  Status verify(uint64_t index);
  /// Copies bytes of the file to `to`. Fails with ZERO_ERR_INTERNAL if the range exceeds the file.
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
