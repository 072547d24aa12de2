// SPDX-License-Identifier: Apache-2.0
#include "state/save.h"

#include <algorithm>
#include <cerrno>

#include "base/file_size_signal.h"
#include "base/os.h"
#include "comm/memory_check.h"
#include "state/collective.h"
#include "state/copies.h"
#include "state/extras.h"
#include "state/find.h"
#include "step/memory.h"

namespace zero {

Status with_own(Status failure, const Status& own) {
  if (failure.ok() || own.ok() || failure.text() == own.text()) return failure;
  return {failure.code(), text(failure.text(), "; before that: ", own.text())};
}

Save::Save(const Optimizer& optim, std::string_view directory, int32_t flags)
    : target_(directory),
      replace_((flags & ZERO_SAVE_REPLACE) != 0),
      rank_(optim.comm->rank()),
      timeout_ms_(optim.comm->options().timeout_ms),
      comm_(optim.comm),
      directory_(Status(ZERO_ERR_INTERNAL, "nothing has begun")) {}

/// Prepares what this rank writes. Rank 0 also makes the directory and draws the save id.
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

Status Save::begin(Call& call, Optimizer& optim, const std::function<Status()>& also,
                   const std::function<uint64_t()>& wants) {
  Status begun = prepare(optim, [&] { return call.go_on(); });
  if (wants) {
    Status room =
        check_memory_of_ranks(call, begun.ok() ? wants() : 0, "a save's copy of the state");
    if (begun.ok()) begun = std::move(room);
  }
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
  ZERO_TRY(with_own(call.vote("written", written), written));
  return gather_records(call);
}

Status Save::gather_records(Call& call) {
  may_be_published_ = true;
  records_ = ZERO_TRY(call.gather("checksums", shards_.record()));
  return {};
}

/// Checks that every file that a rank reported is in the directory that will be renamed.
Status Save::check_present() const {
  for (const FileRecord& file : manifest_.files) {
    if (file.name == kIndexName) continue;
    const std::string path = staging_->directory().path_of(file.name);
    struct stat info;
    if (stat_entry(staging_->directory(), file.name, info) != 0)
      return io_error(path, "stat", errno);
    if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != file.bytes)
      return {ZERO_ERR_CKPT_IO,
              text("'", path, "': has ", info.st_size, " bytes, but its rank wrote ", file.bytes)};
  }
  return {};
}

Status Save::write_manifest(const Progress& progress) {
  for (int32_t rank = 0; rank < manifest_.world; rank++)
    ZERO_TRY(take_record(manifest_, rank, records_[static_cast<size_t>(rank)]));
  if (const uint64_t bytes = extras_bytes(manifest_); bytes > kMostExtrasBytes)
    return bad_argument("the extras of all ranks have ", bytes,
                        " bytes as files; a checkpoint can have ", "at most ", kMostExtrasBytes,
                        ": set fewer");
  ZERO_TRY(check_present());
  const BlockFiles files{staging_->directory(), block_.data(), progress};
  manifest_.files[static_cast<size_t>(2 * manifest_.world)] =
      ZERO_TRY(write_text(files, kIndexName, write_index(manifest_)));
  ZERO_TRY(write_manifest_file(files, manifest_));
  os().reached("save.manifest_written");
  return {};
}

/// Returns whether this save renames its directory. Another rank that gives up breaks the comm.
bool Save::commits() {
  using State = CommitDecision::State;
  const std::shared_ptr<const Comm> comm = comm_.lock();
  const bool broken = comm == nullptr || comm->aborted();
  return decision_.decide(broken ? State::given_up : State::committing) == State::committing;
}

Status Save::publish(const Progress& progress) {
  if (rank_ != 0) return {};
  const FileSizeSignal held;
  ZERO_TRY(write_manifest(progress));
  Status published = staging_->publish(progress, timeout_ms_, [this] { return commits(); });
  if (!given_up() && staging_->outcome_known()) decision_.end(staging_->published());
  return published;
}

/// Votes on the result of publish(). If the vote fails, only rank 0 knows the outcome.
Status Save::agree_published(Call& call, const Status& published) {
  os().reached("save.published");
  Status status = call.vote("published", published);
  if (status.ok() || status.code() == ZERO_ERR_PEER) return status;
  if (status.text() == published.text()) return status;  // rank 0 knows how it ended
  return give_up(with_own(std::move(status), published));
}

Status Save::give_up(Status why) {
  using State = CommitDecision::State;
  const State stands = decision_.decide(State::given_up);
  const auto but = [&](const auto&... words) {
    return Status(why.code(), text(why.text(), " (", words...));
  };
  if (stands == State::complete) return but("the checkpoint '", target_, "' is complete)");
  const bool stopped = stands == State::given_up && (rank_ == 0 || !may_be_published_);
  if (stopped || stands == State::failed) return why;
  return but("outcome unknown: rank 0 may have begun to rename the checkpoint to '", target_,
             "': load the directory to find out)");
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
    Status written = save.agree_written(call, save.write(show, progress));
    if (!written.ok()) return save.give_up(std::move(written));
    return save.agree_published(call, save.publish(progress));
  };
  Status status = with_working_directories(call, directory, save_all());
  os().reached("save.done");
  return status;
}

}  // namespace zero
