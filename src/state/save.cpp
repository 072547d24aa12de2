// SPDX-License-Identifier: Apache-2.0
// A save does this in order: agree; rank 0 makes the temporary directory; vote; every rank writes
// its files to stable storage; vote; rank 0 writes index and manifest and renames; vote.
#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/os.h"
#include "base/refusals.h"
#include "state/access.h"
#include "state/blocks.h"
#include "state/collective.h"
#include "state/commit.h"
#include "state/extras.h"
#include "state/find.h"
#include "state/layout.h"
#include "step/memory.h"

namespace zero {
namespace {

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
    save_id_ = ZERO_TRY(call_.vote("begun", begun, mine))[0];

    const Status written = write_own();
    os().reached("save.written");
    ZERO_TRY(call_.vote("written", written));
    const std::vector<std::string> records = ZERO_TRY(call_.gather("checksums", record()));

    const Status published = call_.rank() == 0 ? publish(records) : Status();
    os().reached("save.published");
    return conclude(call_.vote("published", published), published);
  }

 private:
  /// Checks what this rank must check before anything is written. Rank 0 makes the directory and
  /// draws the id.
  Status begin(Digest& save_id) {
    ZERO_TRY(check_saveable(optim_));
    windows_ = ZERO_TRY(windows_of(optim_));
    block_ = ZERO_TRY(allocate_block());
    if (call_.rank() != 0) return {};
    staging_.emplace(
        ZERO_TRY(Staging::begin(target_, replace_, file_names(call_.world()), progress())));
    save_id = staging_->save_id();
    os().reached("save.begun");
    return {};
  }

  /// Writes a file: `head`, which is a header or the whole text, and the data of `tensors`.
  Result<FileRecord> write(const BlockFiles& files, std::string name, std::string_view head,
                           uint64_t data_bytes = 0, const std::vector<StoredTensor>& tensors = {}) {
    BlockWriter file =
        ZERO_TRY(BlockWriter::create(files, std::move(name), head.size() + data_bytes));
    ZERO_TRY(file.append(zero::bytes_of(head)));
    for (const StoredTensor& tensor : tensors) ZERO_TRY(append(file, tensor));
    return file.finish();
  }

  Status append(BlockWriter& file, const StoredTensor& tensor) {
    const Segment& part = tensor.part;
    const auto index = static_cast<size_t>(part.param);
    const size_t bytes = static_cast<size_t>(part.count) * size_of(tensor.dtype);
    if (tensor.slot == kBufferItself) return append_all(file, optim_.buffers[index].data, bytes);
    const Param& param = optim_.params[index];
    if (tensor.slot == kParameterItself) return append_all(file, param.data, bytes);
    if (part.count == 0) return {};
    const std::byte* values = optim_.slot(tensor.slot, part);
    if (!values) return internal_error("no memory of live state '", tensor.key, "'");
    if (!keeps_remainders(optim_, part.param, tensor.slot)) return append_all(file, values, bytes);
    return join_masters(optim_, *windows_, part, [&](std::span<const float> masters) {
      return file.append(std::as_bytes(masters));
    });
  }

  Status append_all(BlockWriter& file, const std::byte* values, size_t bytes) {
    return windows_->values.show_all(
        values, bytes, [&](std::span<const std::byte> shown) { return file.append(shown); });
  }

  Status write_own() {
    const Directory directory = ZERO_TRY(enter_staging(target_, save_id_));
    writers_ = ZERO_TRY(param_writers(optim_));
    const BlockFiles files = files_in(directory);
    const auto write_shard = [&](const char* kind,
                                 const std::vector<StoredTensor>& tensors) -> Result<FileRecord> {
      SafetensorsHeader header = file_header(tensors, save_id_, call_.rank(), call_.world());
      const std::string head = ZERO_TRY(build_safetensors_header(header));
      return write(files, shard_name(kind, call_.rank(), call_.world()), head, header.data_bytes(),
                   tensors);
    };
    const int32_t rank = call_.rank(), world = call_.world();
    own_files_.push_back(ZERO_TRY(write_shard("model", model_tensors(optim_, writers_, rank))));
    own_files_.push_back(ZERO_TRY(write_shard("optim", optim_tensors(optim_, rank))));
    if (!optim_.extras.empty()) {
      const std::string all = ZERO_TRY(extras_file(optim_.extras, save_id_, rank, world));
      own_files_.push_back(ZERO_TRY(write(files, shard_name(kExtra, rank, world), all)));
    }
    return sync(directory);
  }

  /// Returns the size of each file that this rank wrote, followed by the checksums of its blocks.
  std::string record() const {
    std::string out;
    const auto add = [&](uint64_t number) {
      out.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    for (const FileRecord& file : own_files_) {
      add(file.bytes);
      std::ranges::for_each(file.blocks, add);
    }
    return out;
  }

  /// Takes the sizes and checksums of a rank's two or three files from its record into the
  /// manifest.
  Status take_record(Manifest& manifest, int32_t rank, std::string_view record) const {
    const auto take = [&](void* numbers, size_t count) {
      const size_t bytes = count * sizeof(uint64_t);
      if (bytes > record.size()) return false;
      record.copy(static_cast<char*>(numbers), bytes);
      record.remove_prefix(bytes);
      return true;
    };
    const auto take_file = [&](FileRecord& file) {
      if (!take(&file.bytes, 1) || file.bytes == 0 || block_count(file.bytes) > record.size())
        return false;
      file.blocks.resize(block_count(file.bytes));
      return take(file.blocks.data(), file.blocks.size());
    };
    std::vector<FileRecord>& files = manifest.files;
    bool sound = take_file(files[static_cast<size_t>(rank)]) &&
                 take_file(files[static_cast<size_t>(call_.world() + rank)]);
    if (sound && !record.empty()) {
      manifest.extras.push_back({rank, static_cast<int32_t>(files.size())});
      sound =
          take_file(files.emplace_back(FileRecord{shard_name(kExtra, rank, call_.world()), 0, {}}));
    }
    if (sound && record.empty()) return {};
    return internal_error("rank ", rank, " sent no proper record of its files");
  }

  /// Checks that all files that ranks say they wrote stand in the directory that will be renamed.
  Status check_present(const Manifest& manifest) const {
    for (const FileRecord& file : manifest.files) {
      if (file.name == kIndexName) continue;
      const std::string path = staging_->directory().path_of(file.name);
      struct stat info;
      if (stat_entry(staging_->directory(), file.name, info) != 0)
        return io_error(path, "stat", errno);
      if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != file.bytes)
        return {ZERO_ERR_CKPT_IO,
                text("'", path, "': has ", info.st_size, " bytes, its rank wrote ", file.bytes)};
    }
    return {};
  }

  Status publish(const std::vector<std::string>& records) {
    Manifest manifest = describe_checkpoint(optim_, save_id_, writers_);
    for (int32_t rank = 0; rank < call_.world(); rank++)
      ZERO_TRY(take_record(manifest, rank, records[static_cast<size_t>(rank)]));
    ZERO_TRY(check_present(manifest));
    const BlockFiles files = files_in(staging_->directory());
    manifest.files[static_cast<size_t>(2 * call_.world())] =
        ZERO_TRY(write(files, kIndexName, write_index(manifest)));
    const std::string bytes = write_manifest(manifest);
    if (bytes.size() > kLongestManifest)
      return unsupported("the manifest has ", bytes.size(), " bytes, at most ", kLongestManifest);
    ZERO_TRY(write(files, kManifestName, bytes));
    os().reached("save.manifest_written");
    return staging_->publish(progress());
  }

  /// Adds to the last vote's failure that the checkpoint may be there. Rank 0 knows whether it is,
  /// the others do not.
  Status conclude(Status status, const Status& published) const {
    const Code code = status.code();
    if (status.ok() || !published.ok() || code == ZERO_ERR_PEER) return status;
    return {code, text(status.text(), " (the checkpoint '", target_,
                       call_.rank() == 0 ? "' is complete)" : "' may be complete: a load tells)")};
  }

  Progress progress() {
    return [this] { call_.progress(); };
  }
  BlockFiles files_in(const Directory& directory) { return {directory, block_.data(), progress()}; }

  Call& call_;
  Optimizer& optim_;
  const std::string target_;
  const bool replace_;
  Windows* windows_ = nullptr;
  HostMemory block_;
  std::optional<Staging> staging_;  // rank 0's: removed with this object unless it was published
  Digest save_id_{};
  std::vector<int32_t> writers_;
  std::vector<FileRecord> own_files_;  // of parameters, of state, and of extras if there are any
};

}  // namespace

Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags) {
  const Stopwatch watch(optim.counters.save_seconds);
  const FileSizeSignal held;
  os().reached("save.begin");
  ZERO_TRY(
      call.agree("arguments", "zero_state_save",
                 text("directory '", directory, "'\nflags ", flags, "\n", optim.agreed_lines())));
  Status status =
      with_working_directories(call, directory, Save(call, optim, directory, flags).run());
  os().reached("save.done");
  return status;
}

}  // namespace zero
