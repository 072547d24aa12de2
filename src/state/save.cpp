// SPDX-License-Identifier: Apache-2.0
// The save, in order: agree; rank 0 makes the temporary directory; every rank writes its two files
// and has them on stable storage; vote; rank 0 writes index and manifest and renames; vote.
#include "state/save.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/os.h"
#include "base/text.h"
#include "state/blocks.h"
#include "state/commit.h"
#include "state/file_size_signal.h"
#include "state/layout.h"
#include "state/working_directories.h"
#include "step/windows.h"

namespace zero {
namespace {

/// What must be the same on every rank.
std::string agreed_text(const Optimizer& optim, std::string_view directory, int32_t flags) {
  return text("directory '", directory, "'\nflags ", flags, "\n", optim.agreed_lines());
}

/// Writes the files of one rank.
class RankWriter {
 public:
  RankWriter(const Optimizer& optim, Windows& windows, BlockFiles files)
      : optim_(optim), windows_(windows), files_(std::move(files)) {}

  Result<FileRecord> write(std::string name, const std::vector<StoredTensor>& tensors,
                           SafetensorsHeader header) {
    const std::string head = ZERO_TRY(build_safetensors_header(header));
    BlockWriter file = ZERO_TRY(BlockWriter::create(
        files_, {std::move(name), header.data_start + header.data_bytes(), {}}));
    ZERO_TRY(file.append(zero::bytes_of(head)));
    for (const StoredTensor& tensor : tensors) ZERO_TRY(append(file, tensor));
    return file.finish();
  }

  Result<FileRecord> write_text(std::string name, std::string_view content) {
    BlockWriter file = ZERO_TRY(BlockWriter::create(files_, {std::move(name), content.size(), {}}));
    ZERO_TRY(file.append(zero::bytes_of(content)));
    return file.finish();
  }

 private:
  Status append(BlockWriter& file, const StoredTensor& tensor) {
    const Segment& part = tensor.part;
    const auto index = static_cast<size_t>(part.param);
    const size_t bytes = static_cast<size_t>(part.count) * size_of(tensor.dtype);
    if (tensor.slot == kBufferItself) return append_all(file, optim_.buffers[index].data, bytes);
    const Param& param = optim_.params[index];
    if (tensor.slot == kParameterItself) return append_all(file, param.data, bytes);
    if (part.count == 0) return {};
    const std::byte* values = optim_.slot(tensor.slot, part.section, part.share);
    if (!values) return {ZERO_ERR_INTERNAL, text("no memory of live state '", tensor.key, "'")};
    const bool joins =
        tensor.slot == kMasterSlot && master_of(param.dtype, optim_.options) == Master::remainder;
    return joins ? append_joined(file, part, values) : append_all(file, values, bytes);
  }

  Status append_all(BlockWriter& file, const std::byte* values, size_t bytes) {
    const auto most = static_cast<size_t>(windows_.values.most(1));
    for (size_t done = 0; done < bytes;) {
      const size_t part = std::min(most, bytes - done);
      ZERO_TRY(file.append({ZERO_TRY(windows_.values.show(values + done, part)), part}));
      done += part;
    }
    return {};
  }

  /// Parameter and remainder, as the fp32 master that they are.
  Status append_joined(BlockWriter& file, const Segment& all, const std::byte* remainders) {
    const Param& param = optim_.params[static_cast<size_t>(all.param)];
    const int64_t most = windows_.values.most(sizeof(uint16_t));
    for (int64_t done = 0; done < all.count;) {
      const int64_t part = std::min(most, all.count - done);
      const size_t bytes = static_cast<size_t>(part) * sizeof(uint16_t);
      const std::byte* const rest = remainders + static_cast<size_t>(done) * sizeof(uint16_t);
      const std::byte* const values = param.element(all.first + done);
      ZERO_TRY(append_joined(
          file, reinterpret_cast<const uint16_t*>(ZERO_TRY(windows_.values.show(values, bytes))),
          reinterpret_cast<const uint16_t*>(ZERO_TRY(windows_.remainders.show(rest, bytes))),
          part));
      done += part;
    }
    return {};
  }

  Status append_joined(BlockWriter& file, const uint16_t* params, const uint16_t* remainders,
                       int64_t all) {
    constexpr int64_t kJoined = 1024;
    float masters[kJoined];
    for (int64_t done = 0; done < all; done += kJoined) {
      const auto count = static_cast<size_t>(std::min(kJoined, all - done));
      kernel_table(best_isa()).join_remainder(masters, params + done, remainders + done, count);
      ZERO_TRY(file.append(std::as_bytes(std::span(masters, count))));
    }
    return {};
  }

  const Optimizer& optim_;
  Windows& windows_;
  const BlockFiles files_;
};

/// One save on one rank.
class Save {
 public:
  Save(Call& call, Optimizer& optim, std::string_view directory, int32_t flags)
      : call_(call),
        optim_(optim),
        target_(directory),
        replace_((flags & ZERO_SAVE_REPLACE) != 0) {}

  Status run() {
    Digest mine{};
    const Status begun = begin(mine);
    std::vector<Digest> ids(static_cast<size_t>(call_.world()));
    ZERO_TRY(call_.vote("begun", begun, std::as_bytes(std::span(&mine, 1)),
                        std::as_writable_bytes(std::span(ids))));
    save_id_ = ids[0];

    const Status written = write_own();
    os().reached("save.written");
    ZERO_TRY(call_.vote("written", written));
    const std::vector<std::string> records = ZERO_TRY(call_.gather("checksums", own_record()));

    const Status published = call_.rank() == 0 ? publish(records) : Status();
    os().reached("save.published");
    return conclude(call_.vote("published", published), published);
  }

 private:
  /// What this rank has to check before anything is written; rank 0 makes the directory and draws
  /// the id.
  Status begin(Digest& save_id) {
    ZERO_TRY(check_saveable(optim_));
    windows_ = ZERO_TRY(windows_of(optim_));
    buffer_ = ZERO_TRY(BlockBuffer::create());
    if (call_.rank() != 0) return {};
    staging_.emplace(
        ZERO_TRY(Staging::begin(target_, replace_, file_names(call_.world()), progress())));
    save_id = staging_->save_id();
    os().reached("save.begun");
    return {};
  }

  Status write_own() {
    const std::string path = staging_path(target_, save_id_);
    const Fd directory = ZERO_TRY(enter_staging(target_, save_id_));
    writers_ = param_writers(optim_);
    RankWriter writer(optim_, *windows_, files(directory, path));
    const auto write = [&](const char* kind, const std::vector<StoredTensor>& tensors) {
      return writer.write(shard_name(kind, call_.rank(), call_.world()), tensors,
                          file_header(tensors, save_id_, call_.rank(), call_.world()));
    };
    model_ = ZERO_TRY(write("model", model_tensors(optim_, writers_, call_.rank())));
    optim_file_ = ZERO_TRY(write("optim", optim_tensors(optim_, call_.rank())));
    return sync(directory, path);
  }

  /// This rank's sizes and checksums, for rank 0.
  std::string own_record() const {
    std::vector<uint64_t> words;
    for (const FileRecord* file : {&model_, &optim_file_}) {
      words.push_back(file->bytes);
      words.insert(words.end(), file->blocks.begin(), file->blocks.end());
    }
    return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint64_t)};
  }

  /// Rank `rank`'s record into the manifest's two files of that rank.
  Status take_record(Manifest& manifest, int32_t rank, std::string_view record) const {
    const auto bad = [&] {
      return Status(ZERO_ERR_INTERNAL, text("rank ", rank, " sent no proper record of its files"));
    };
    const auto word = [&](size_t at) {
      uint64_t value = 0;
      record.copy(reinterpret_cast<char*>(&value), sizeof value, at * sizeof value);
      return value;
    };
    const size_t words = record.size() / sizeof(uint64_t);
    size_t at = 0;
    for (const int32_t file : {rank, call_.world() + rank}) {
      FileRecord& to = manifest.files[static_cast<size_t>(file)];
      if (at >= words) return bad();
      to.bytes = word(at++);
      if (to.bytes == 0 || block_count(to.bytes) > words - at) return bad();
      for (uint64_t b = 0; b < block_count(to.bytes); b++) to.blocks.push_back(word(at++));
    }
    return at * sizeof(uint64_t) == record.size() ? Status() : bad();
  }

  /// What the ranks say they wrote must stand in the directory that will be renamed.
  Status check_present(const Manifest& manifest) const {
    for (const FileRecord& file : manifest.files) {
      if (file.name == kIndexName) continue;
      const std::string path = text(staging_->path(), "/", file.name);
      struct stat info;
      if (stat_entry(staging_->directory(), file.name, info) != 0) {
        return io_error(path, "stat", errno);
      }
      if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != file.bytes) {
        return {ZERO_ERR_CKPT_IO,
                text("'", path, "': has ", info.st_size, " bytes, its rank wrote ", file.bytes)};
      }
    }
    return {};
  }

  Status publish(const std::vector<std::string>& records) {
    Manifest manifest = describe_checkpoint(optim_, save_id_, writers_);
    for (int32_t rank = 0; rank < call_.world(); rank++) {
      ZERO_TRY(take_record(manifest, rank, records[static_cast<size_t>(rank)]));
    }
    ZERO_TRY(check_present(manifest));
    RankWriter writer(optim_, *windows_, files(staging_->directory(), staging_->path()));
    manifest.files.back() = ZERO_TRY(writer.write_text(kIndexName, write_index(manifest)));
    const std::string bytes = write_manifest(manifest);
    if (bytes.size() > kLongestManifest) {
      return {ZERO_ERR_UNSUPPORTED,
              text("the manifest has ", bytes.size(), " bytes, at most ", kLongestManifest)};
    }
    ZERO_TRY(writer.write_text(kManifestName, bytes));
    os().reached("save.manifest_written");
    return staging_->publish(progress());
  }

  /// The last vote can fail although the checkpoint is there: rank 0 knows, the others cannot.
  Status conclude(Status status, const Status& published) const {
    const Code code = status.code();
    if (status.ok() || !published.ok() || code == ZERO_ERR_PEER) return status;
    return {code, text(status.text(), " (the checkpoint '", target_,
                       call_.rank() == 0 ? "' is complete)" : "' may be complete: a load tells)")};
  }

  Progress progress() {
    return [this] { call_.progress(); };
  }
  BlockFiles files(const Fd& directory, const std::string& path) {
    return {directory, path, buffer_, progress()};
  }

  Call& call_;
  Optimizer& optim_;
  const std::string target_;
  const bool replace_;
  Windows* windows_ = nullptr;
  BlockBuffer buffer_;
  std::optional<Staging> staging_;  // rank 0's: removed with this object unless it was published
  Digest save_id_{};
  std::vector<int32_t> writers_;
  FileRecord model_, optim_file_;
};

}  // namespace

Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags) {
  const int64_t began = now_ns();
  const FileSizeSignal held;
  os().reached("save.begin");
  ZERO_TRY(call.agree("arguments", "zero_state_save", agreed_text(optim, directory, flags)));
  Status status =
      with_working_directories(call, directory, Save(call, optim, directory, flags).run());
  optim.counters.save_seconds += static_cast<double>(now_ns() - began) * 1e-9;
  os().reached("save.done");
  return status;
}

}  // namespace zero
