// SPDX-License-Identifier: Apache-2.0
#include "state/blocks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/refusals.h"

namespace zero {
namespace {

/// The bytes between two syncs of a file that is being written. They limit how long the last sync
/// takes, for which the other ranks wait with a deadline.
constexpr uint64_t kSyncBytes = 256 * kBlockBytes;

constexpr unsigned kFileMode = 0666;  // the umask applies

/// Reserves space for the file, so that a full disk is detected before anything is written.
Status reserve(const OpenFile& file, uint64_t bytes) {
  if (bytes == 0) return {};
  const int answer = uninterrupted(
      [&] { return os().fallocate(file.fd.get(), 0, 0, static_cast<int64_t>(bytes)); });
  if (answer == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return io_error(file.path, text("reserve ", bytes, " bytes"), errno);
}

}  // namespace

Result<HostMemory> allocate_block() { return HostMemory::allocate(kBlockBytes, "a file's block"); }

Result<BlockWriter> BlockWriter::create(const BlockFiles& files, std::string name, uint64_t bytes) {
  BlockWriter writer;
  writer.files_ = &files;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  writer.file_ = {files.directory.path_of(name), open_at(files.directory, name, kFlags, kFileMode)};
  if (!writer.file_.fd.valid()) return io_error(writer.file_.path, "create", errno);
  ZERO_TRY(reserve(writer.file_, bytes));
  if (bytes >= kBlockBytes) write_past_cache(writer.file_);
  writer.record_ = {std::move(name), bytes, {}};
  return writer;
}

Status BlockWriter::put() {
  const std::span block(files_->block, std::exchange(filled_, 0));
  record_.blocks.push_back(hash64(block));
  ZERO_TRY(write_fully(file_, block, written_));
  written_ += block.size();
  if (written_ % kSyncBytes == 0) ZERO_TRY(sync(file_));
  return files_->progress();
}

Status BlockWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t part = std::min<size_t>(bytes.size(), kBlockBytes - filled_);
    std::memcpy(files_->block + filled_, bytes.data(), part);
    filled_ += part;
    bytes = bytes.subspan(part);
    if (filled_ == kBlockBytes) ZERO_TRY(put());
  }
  return {};
}

Result<FileRecord> BlockWriter::finish() {
  if (filled_ > 0) ZERO_TRY(put());
  if (written_ != record_.bytes)
    return internal_error("'", file_.path, "': ", written_, " bytes written, ", record_.bytes,
                          " announced");
  ZERO_TRY(sync(file_));
  ZERO_TRY(close_checked(std::move(file_)));
  return std::move(record_);
}

Result<FileRecord> write_text(const BlockFiles& files, std::string name, std::string_view words) {
  BlockWriter file = ZERO_TRY(BlockWriter::create(files, std::move(name), words.size()));
  ZERO_TRY(file.append(bytes_of(words)));
  return file.finish();
}

Result<BlockReader> BlockReader::open(const BlockFiles& files, const FileRecord& record) {
  BlockReader reader;
  reader.files_ = &files;
  reader.record_ = &record;
  reader.file_ = ZERO_TRY(open_input(files.directory, record.name, Links::refused));
  if (reader.bytes() == record.bytes) return reader;
  return invalid("'", reader.path(), "': has ", reader.bytes(), " bytes, but the manifest says ",
                 record.bytes);
}

Status BlockReader::verify(uint64_t index) {
  const uint64_t begin = index * kBlockBytes;
  if (index >= record_->blocks.size() || begin >= bytes())
    return internal_error("'", path(), "': block ", index, " of ", record_->blocks.size());
  const std::span block(files_->block, std::min(kBlockBytes, bytes() - begin));
  held_ = UINT64_MAX;
  ZERO_TRY(read_fully(file_, block, begin));
  if (hash64(block) != record_->blocks[index])
    return invalid("'", path(), "': bytes ", begin, " to ", begin + block.size() - 1,
                   " do not match the checksum in the manifest");
  held_ = index;
  return files_->progress();
}

Status BlockReader::read(uint64_t offset, std::span<std::byte> to) {
  if (offset > bytes() || to.size() > bytes() - offset)
    return internal_error("'", path(), "': ", to.size(), " bytes at ", offset, " of ", bytes());
  while (!to.empty()) {
    if (held_ != offset / kBlockBytes) ZERO_TRY(verify(offset / kBlockBytes));
    const uint64_t within = offset % kBlockBytes;
    const size_t part = std::min<uint64_t>(to.size(), kBlockBytes - within);
    std::memcpy(to.data(), files_->block + within, part);
    offset += part;
    to = to.subspan(part);
  }
  return {};
}

}  // namespace zero
