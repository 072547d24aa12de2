// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file as blocks of 4 MiB, each with its checksum: taken from memory while writing,
// and compared before a byte that was read is used.
#pragma once

#include <cstdint>
#include <functional>
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

/// Writes one new file from start to end. `progress` is called once a block, here and below.
class BlockWriter {
 public:
  static Result<BlockWriter> create(const Fd& directory, std::string_view directory_path,
                                    FileRecord file, BlockBuffer& buffer,
                                    std::function<void()> progress);
  Status append(std::span<const std::byte> bytes);
  /// On stable storage and closed. Exactly the announced bytes have been appended.
  Result<FileRecord> finish();

 private:
  BlockWriter(Fd fd, std::string path, FileRecord file, BlockBuffer& buffer,
              std::function<void()> progress);
  Status put(std::span<const std::byte> block);

  Fd fd_;
  std::string path_;
  FileRecord file_;
  BlockBuffer& buffer_;
  std::function<void()> progress_;
  uint64_t written_ = 0;
  size_t filled_ = 0;  // of the buffer
};

/// Reads a file of which the manifest knows size and checksums; every byte it gives out is
/// verified.
class BlockReader {
 public:
  /// `file` and `buffer` outlive the reader.
  static Result<BlockReader> open(const Fd& directory, std::string_view directory_path,
                                  const FileRecord& file, BlockBuffer& buffer,
                                  std::function<void()> progress);
  /// ZERO_ERR_CKPT_INVALID, naming the bytes, if block `index` is damaged.
  Status verify(uint64_t index);
  /// Copy bytes of the file to `to`. A range that leaves the file is ZERO_ERR_INTERNAL.
  Status read(uint64_t offset, std::span<std::byte> to);
  const std::string& path() const { return path_; }

 private:
  BlockReader(InputFile input, std::string path, const FileRecord& file, BlockBuffer& buffer,
              std::function<void()> progress)
      : input_(std::move(input)),
        path_(std::move(path)),
        file_(&file),
        buffer_(&buffer),
        progress_(std::move(progress)) {}

  InputFile input_;
  std::string path_;
  const FileRecord* file_;
  BlockBuffer* buffer_;
  std::function<void()> progress_;
  uint64_t held_ = UINT64_MAX;  // the block in the buffer
};

}  // namespace zero
