// SPDX-License-Identifier: Apache-2.0
#include "state/blocks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/hash.h"
#include "base/refusals.h"

namespace zero {
namespace {

/// Bytes between syncs of a file that is being written, so that the last one does not take longer
/// than the other ranks' deadline.
constexpr uint64_t kSyncBytes = 256 * kBlockBytes;

constexpr unsigned kFileMode = 0666;  // the umask decides

/// The file's space, so that a full disk shows before anything is written.
Status reserve(const Fd& file, std::string_view path, uint64_t bytes) {
  if (bytes == 0) return {};
  const int answer =
      uninterrupted([&] { return os().fallocate(file.get(), 0, 0, static_cast<int64_t>(bytes)); });
  if (answer == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return io_error(path, text("reserve ", bytes, " bytes"), errno);
}

}  // namespace

Result<BlockBuffer> BlockBuffer::create() {
  BlockBuffer buffer;
  buffer.data_.reset(new (std::nothrow) std::byte[kBlockBytes]);
  if (!buffer.data_)
    return Status(ZERO_ERR_MEMORY, text("no memory for a block of ", kBlockBytes, " bytes"));
  return buffer;
}

Result<BlockWriter> BlockWriter::create(const BlockFiles& files, FileRecord file) {
  BlockWriter writer;
  writer.files_ = &files;
  writer.path_ = text(files.path, "/", file.name);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  writer.fd_ = open_at(files.directory.get(), file.name, kFlags, kFileMode);
  if (!writer.fd_.valid()) return io_error(writer.path_, "create", errno);
  ZERO_TRY(reserve(writer.fd_, writer.path_, file.bytes));
  file.blocks.clear();
  writer.file_ = std::move(file);
  return writer;
}

Status BlockWriter::put(std::span<const std::byte> block) {
  file_.blocks.push_back(hash64(block));
  ZERO_TRY(write_fully(fd_, path_, block.data(), block.size(), written_));
  written_ += block.size();
  if (written_ % kSyncBytes == 0) ZERO_TRY(sync(fd_, path_));
  files_->progress();
  return {};
}

Status BlockWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == 0 && bytes.size() >= kBlockBytes) {  // straight from the caller's memory
      ZERO_TRY(put(bytes.first(kBlockBytes)));
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const size_t part = std::min<size_t>(bytes.size(), kBlockBytes - filled_);
    std::memcpy(files_->buffer.data() + filled_, bytes.data(), part);
    filled_ += part;
    bytes = bytes.subspan(part);
    if (filled_ == kBlockBytes) {
      filled_ = 0;
      ZERO_TRY(put({files_->buffer.data(), kBlockBytes}));
    }
  }
  return {};
}

Result<FileRecord> BlockWriter::finish() {
  if (filled_ > 0) ZERO_TRY(put({files_->buffer.data(), filled_}));
  filled_ = 0;
  if (written_ != file_.bytes)
    return Status(ZERO_ERR_INTERNAL,
                  text("'", path_, "': ", written_, " bytes written, ", file_.bytes, " announced"));
  ZERO_TRY(sync(fd_, path_));
  ZERO_TRY(close_checked(std::move(fd_), path_));
  return std::move(file_);
}

Result<BlockReader> BlockReader::open(const BlockFiles& files, const FileRecord& file) {
  BlockReader reader;
  reader.files_ = &files;
  reader.file_ = &file;
  reader.path_ = text(files.path, "/", file.name);
  InputFile input = ZERO_TRY(open_input(files.directory, file.name, reader.path_));
  if (input.bytes != file.bytes)
    return invalid("'", reader.path_, "': has ", input.bytes, " bytes, the manifest says ",
                   file.bytes);
  reader.fd_ = std::move(input.fd);
  return reader;
}

Status BlockReader::verify(uint64_t index) {
  const uint64_t begin = index * kBlockBytes;
  if (index >= file_->blocks.size() || begin >= file_->bytes)
    return {ZERO_ERR_INTERNAL, text("'", path_, "': block ", index, " of ", file_->blocks.size())};
  const size_t bytes = std::min(kBlockBytes, file_->bytes - begin);
  held_ = UINT64_MAX;
  ZERO_TRY(read_fully(fd_, path_, files_->buffer.data(), bytes, begin));
  if (hash64({files_->buffer.data(), bytes}) != file_->blocks[index])
    return invalid("'", path_, "': bytes ", begin, " to ", begin + bytes - 1,
                   " do not have the checksum that the manifest says");
  held_ = index;
  files_->progress();
  return {};
}

Status BlockReader::read(uint64_t offset, std::span<std::byte> to) {
  if (offset > file_->bytes || to.size() > file_->bytes - offset)
    return {ZERO_ERR_INTERNAL,
            text("'", path_, "': ", to.size(), " bytes at ", offset, " of ", file_->bytes)};
  while (!to.empty()) {
    if (held_ != offset / kBlockBytes) ZERO_TRY(verify(offset / kBlockBytes));
    const uint64_t within = offset % kBlockBytes;
    const size_t part = std::min<uint64_t>(to.size(), kBlockBytes - within);
    std::memcpy(to.data(), files_->buffer.data() + within, part);
    offset += part;
    to = to.subspan(part);
  }
  return {};
}

}  // namespace zero
