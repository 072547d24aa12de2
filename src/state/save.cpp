// SPDX-License-Identifier: Apache-2.0
#include "state/save.h"

#include <algorithm>
#include <cerrno>

#include "base/file_size_signal.h"
#include "base/os.h"
#include "state/collective.h"
#include "state/copies.h"
#include "state/find.h"
#include "step/memory.h"

namespace zero {

Save::Save(const Optimizer& optim, std::string_view directory, int32_t flags)
    : target_(directory),
      replace_((flags & ZERO_SAVE_REPLACE) != 0),
      rank_(optim.comm->rank()),
      directory_(Status(ZERO_ERR_INTERNAL, "nothing has begun")) {}

/// Rank 0 makes the directory and draws the id.
Status Save::prepare(const Optimizer& optim, const Progress& progress) {
  ZERO_TRY(check_saveable(optim));
  block_ = ZERO_TRY(allocate_block());
  writers_ = ZERO_TRY(param_writers(optim));
  shards_ = ZERO_TRY(Shards::of(optim, writers_));
  if (rank_ != 0) return {};
  manifest_ = describe_checkpoint(optim, {}, writers_);
  staging_.emplace(
      ZERO_TRY(Staging::begin(target_, replace_, file_names(manifest_.world), progress)));
  manifest_.save_id = staging_->save_id();
  os().reached("save.begun");
  return {};
}

Status Save::begin(Call& call, Optimizer& optim, const std::function<Status()>& also) {
  Status begun = prepare(optim, [&] { return call.go_on(); });
  if (begun.ok()) begun = also();
  ZERO_TRY(vote_alike(call, optim, "begun", std::move(begun)));
  save_id_ = manifest_.save_id;
  ZERO_TRY(call.broadcast("save id", std::as_writable_bytes(std::span(save_id_)), 0));
  directory_ = enter_staging(target_, save_id_);
  return {};
}

Status Save::write(const Show& show, const Progress& progress) {
  const FileSizeSignal held;
  const Status written = directory_.ok()
                             ? shards_.write({*directory_, block_.data(), progress}, save_id_, show)
                             : directory_.failure();
  os().reached("save.written");
  return written;
}

Status Save::agree_written(Call& call, const Status& written) {
  ZERO_TRY(call.vote("written", written));
  return gather_records(call);
}

Status Save::gather_records(Call& call) {
  records_ = ZERO_TRY(call.gather("checksums", shards_.record()));
  return {};
}

/// Checks that all files that ranks say they wrote stand in the directory that will be renamed.
Status Save::check_present() const {
  for (const FileRecord& file : manifest_.files) {
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

Status Save::publish(const Progress& progress) {
  if (rank_ != 0) return {};
  const FileSizeSignal held;
  for (int32_t rank = 0; rank < manifest_.world; rank++)
    ZERO_TRY(take_record(manifest_, rank, records_[static_cast<size_t>(rank)]));
  ZERO_TRY(check_present());
  const BlockFiles files{staging_->directory(), block_.data(), progress};
  manifest_.files[static_cast<size_t>(2 * manifest_.world)] =
      ZERO_TRY(write_text(files, kIndexName, write_index(manifest_)));
  ZERO_TRY(write_manifest_file(files, manifest_));
  os().reached("save.manifest_written");
  return staging_->publish(progress);
}

/// Adds to the last vote's failure that the checkpoint may be there. Rank 0 knows whether it is,
/// the others do not.
Status Save::agree_published(Call& call, const Status& published) const {
  os().reached("save.published");
  Status status = call.vote("published", published);
  const Code code = status.code();
  if (status.ok() || !published.ok() || code == ZERO_ERR_PEER) return status;
  return {code, text(status.text(), " (the checkpoint '", target_,
                     rank_ == 0 ? "' is complete)" : "' may be complete: a load tells)")};
}

Status agree_save(Call& call, const Optimizer& optim, std::string_view directory, int32_t flags) {
  return call.agree("arguments", operation_name(call.operation()),
                    text("directory '", directory, "'\nflags ", flags, "\n", optim.agreed_lines()));
}

Status save_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags) {
  const TimedSpan watch(optim.comm->trace, "save", optim.counters.save_seconds);
  os().reached("save.begin");
  ZERO_TRY(agree_save(call, optim, directory, flags));
  const auto save_all = [&]() -> Status {
    const Progress progress = [&] { return call.go_on(); };
    Windows* windows = nullptr;
    Save save(optim, directory, flags);
    ZERO_TRY(save.begin(call, optim, [&]() -> Status {
      windows = ZERO_TRY(windows_of(optim));
      return {};
    }));
    const Show show = [&](const std::byte* from, size_t bytes, const auto& visit) {
      return windows->values.show_all(from, bytes, visit);
    };
    ZERO_TRY(save.agree_written(call, save.write(show, progress)));
    return save.agree_published(call, save.publish(progress));
  };
  Status status = with_working_directories(call, directory, save_all());
  os().reached("save.done");
  return status;
}

}  // namespace zero
