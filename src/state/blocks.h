// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file as blocks of 4 MiB, each with its checksum: taken from memory while writing,
// and compared before a byte that was read is used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
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

/// Memory for one block, shared by files that are written or read one after the other: only the
/// latest reader or writer may use it.
class BlockBuffer {
 public:
  static Result<BlockBuffer> create();
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte[]> data_;
};

/// The files of one directory, which are gone through block by block.
struct BlockFiles {
  const Fd& directory;
  std::string path;  // of the directory
  BlockBuffer& buffer;
  Progress progress;  // called once a block
};

/// Writes one new file from start to end. `files` outlives it.
class BlockWriter {
 public:
  static Result<BlockWriter> create(const BlockFiles& files, FileRecord file);
  Status append(std::span<const std::byte> bytes);
  /// On stable storage and closed. Exactly the announced bytes have been appended.
  Result<FileRecord> finish();

 private:
  BlockWriter() = default;
  Status put(std::span<const std::byte> block);

  const BlockFiles* files_ = nullptr;
  Fd fd_;
  std::string path_;
  FileRecord file_;
  uint64_t written_ = 0;
  size_t filled_ = 0;  // of the buffer
};

/// Reads a file of which the manifest knows size and checksums; every byte it gives out is
/// verified. `files` and `file` outlive it.
class BlockReader {
 public:
  static Result<BlockReader> open(const BlockFiles& files, const FileRecord& file);
  /// ZERO_ERR_CKPT_INVALID, naming the bytes, if block `index` is damaged.
  Status verify(uint64_t index);
  /// Copy bytes of the file to `to`. A range that leaves the file is ZERO_ERR_INTERNAL.
  Status read(uint64_t offset, std::span<std::byte> to);
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return file_->bytes; }

 private:
  BlockReader() = default;

  const BlockFiles* files_ = nullptr;
  const FileRecord* file_ = nullptr;
  Fd fd_;
  std::string path_;
  uint64_t held_ = UINT64_MAX;  // the block in the buffer
};

}  // namespace zero
