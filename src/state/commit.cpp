// SPDX-License-Identifier: Apache-2.0
#include "state/commit.h"

#include <fcntl.h>
#include <linux/fs.h>

#include <cerrno>

#include "base/log.h"
#include "base/refusals.h"
#include "comm/watch.h"
#include "state/find.h"
#include "state/json.h"
#include "state/manifest.h"
#include "state/temporary.h"

namespace zero {
namespace {

constexpr int kAttempts = 8;

/// Returns true if the file system does not support the flag passed to renameat2.
bool means_no_flag(int error) { return error == EINVAL || error == ENOSYS; }

/// Returns true if a file server may have executed the rename, or may execute it later. A soft
/// mount stops waiting for the reply, but does not withdraw the request.
bool may_be_done_later(int error) { return error == EIO || error == ETIMEDOUT; }

/// Checks that a directory holds only files that a checkpoint may have.
Status check_entries(const Directory& directory, const char* wanted) {
  for (const std::string& entry : ZERO_TRY(list_directory(directory))) {
    if (!is_checkpoint_file(entry))
      return wrong_state("'", directory.path, "' holds ", shown(entry),
                         ", which is not a checkpoint file: it was not ", wanted);
  }
  return {};
}

/// Returns the save id of the checkpoint in a directory, or nothing if the directory is not open or
/// has no sound manifest.
std::optional<Digest> id_in(const Directory& directory) {
  if (!directory.fd.valid()) return {};
  auto found = read_manifest(directory);
  return found.ok() ? std::optional(found->manifest.save_id) : std::nullopt;
}

/// Checks that the target does not exist or, with `replace`, is a directory with only files of a
/// checkpoint. Returns that directory, or a Directory that is not open if the target is missing.
Result<Directory> check_target(const Directory& parent, const std::string& name, bool replace) {
  const std::string path = parent.path_of(name);
  const auto refuse = [&](const auto&... why) { return wrong_state("'", path, "' ", why...); };
  struct stat info;
  if (stat_entry(parent, name, info) != 0)
    return errno == ENOENT ? Result<Directory>(Directory()) : io_error(path, "stat", errno);
  if (!replace) return refuse("exists: save elsewhere, or with ZERO_SAVE_REPLACE");
  if (!S_ISDIR(info.st_mode)) return refuse("is not a directory: it was not replaced");
  Directory old = ZERO_TRY(open_directory(parent, name, Links::refused));
  ZERO_TRY(check_entries(old, "replaced"));
  return Result<Directory>(std::move(old));
}

}  // namespace

Status save_given_up() { return Status(ZERO_ERR_ABORTED, "the save was given up"); }

Result<Directory> enter_staging(std::string_view directory, const Digest& id) {
  const SplitPath split = ZERO_TRY(split_path(directory));
  return open_directory(start_of_paths(), joined(split.parent, temporary_name(id)), Links::refused);
}

Result<bool> delete_checkpoint(const Directory& parent, const std::string& name, const Digest& id) {
  Directory directory = enter(parent, name, Links::refused);
  if (!directory.fd.valid() && errno == ENOENT) return false;  // another prune was faster
  if (!directory.fd.valid()) return io_error(directory.path, "open", errno);
  const auto set_aside_if_ours = [&]() -> Result<std::string> {
    const std::string path = directory.path;
    NameLock lock(parent, name);
    if (!ZERO_TRY(lock.try_take()))
      return wrong_state("'", path, "' is in use by a save or prune, and was not deleted");
    (void)directory.fd.lock();  // so that no sweep deletes it as well
    if (ZERO_TRY(read_manifest(directory)).manifest.save_id != id)
      return wrong_state("'", path, "' was replaced in the meantime, and was not deleted");
    ZERO_TRY(check_entries(directory, "deleted"));
    return set_aside(parent, name, directory);
  };
  auto aside = set_aside_if_ours();
  const bool is_gone = !is_same(parent, name, directory);
  if (!aside.ok() && (is_gone || aside.failure().code() == ZERO_ERR_STATE)) {
    log(ZERO_LOG_WARNING, aside.failure().text());
    return false;
  }
  const std::string doomed = ZERO_TRY(std::move(aside));
  os().reached("prune.renamed");
  ZERO_TRY(sync(parent));  // or a power failure could bring back the name without the files
  remove_checkpoint(parent, doomed, directory, unhindered);
  return true;
}

Result<Staging> Staging::begin(std::string_view directory, bool replace,
                               std::vector<std::string> files, const Progress& progress) {
  SplitPath split = ZERO_TRY(split_path(directory));
  if (is_temporary_name(split.name))
    return bad_argument("'", directory, "' has a name reserved for unfinished checkpoints");
  Staging staging;
  staging.target_ = std::move(split.name);
  staging.files_ = std::move(files);
  staging.parent_ = ZERO_TRY(make_directories(split.parent));
  staging.replaced_ = ZERO_TRY(check_target(staging.parent_, staging.target_, replace));
  staging.replaced_id_ = id_in(staging.replaced_);
  sweep(staging.parent_, progress);
  ZERO_TRY(staging.make());
  return staging;
}

Status Staging::make() {
  for (int attempt = 0; attempt < kAttempts; attempt++)
    if (ZERO_TRY(take(ZERO_TRY(draw_id())))) return {};
  return {ZERO_ERR_CKPT_IO, text("'", parent_.path, "': another save removed ", kAttempts,
                                 " temporary directories as soon as they were created")};
}

/// Creates and locks the directory. Returns false if another save's sweep locked or removed it
/// first.
Result<bool> Staging::take(const Digest& id) {
  std::string name = temporary_name(id);
  left_behind_ = text("'", parent_.path_of(name),
                      "' could not be removed: the next save in that folder will remove it");
  Directory directory = ZERO_TRY(make_locked(parent_, name));
  if (!directory.fd.valid()) return false;
  save_id_ = id;
  temporary_ = std::move(name);
  directory_ = std::move(directory);
  return true;
}

bool Staging::is_ours(const std::string& name) const { return is_same(parent_, name, directory_); }

Staging::~Staging() {
  if (published_ || !directory_.fd.valid()) return;
  if (outcome_known_) {
    if (!is_ours(temporary_)) return;
    for (const std::string& file : files_) (void)remove_entry(directory_, file, 0);
    if (remove_entry(parent_, temporary_, AT_REMOVEDIR) == 0) return;
  }
  log(ZERO_LOG_WARNING, left_behind_);
}

Status Staging::publish(const Progress& progress, int64_t wait_ms,
                        const std::function<bool()>& commits) {
  ZERO_TRY(sync(directory_));
  os().reached("save.staged");
  ZERO_TRY(take_name(progress, wait_ms, commits));
  os().reached("save.renamed");
  if (Status status = sync(parent_); !status.ok())
    return std::move(status).within(text("the checkpoint '", target_path(),
                                         "' is complete, but may be lost in a power failure"));
  os().reached("save.durable");
  // The old checkpoint now has the temporary name. The next save sweeps what is left of it.
  if (is_same(parent_, temporary_, replaced_))
    (void)succeeds(
        [&] { return remove_checkpoint(parent_, temporary_, replaced_, progress), true; });
  replaced_.fd.unlock();
  return {};
}

/// Renames the directory to its final name, under the lock that saves and prunes take on that name.
Status Staging::take_name(const Progress& progress, int64_t wait_ms,
                          const std::function<bool()>& commits) {
  NameLock lock(parent_, target_);
  constexpr int kLookMs = 20;
  for (Watch watch({"save", "replacement", wait_ms, false}); !ZERO_TRY(lock.try_take());) {
    (void)watch.look();
    if (watch.is_late(watch.since_ns(0)))
      return Status(ZERO_ERR_CKPT_IO,
                    text("'", target_path(), "' was locked by another save or prune for ", wait_ms,
                         " ms, and was not changed: save again after that finishes"));
    ZERO_TRY(progress());
    // Wait: a slice of wait_ms.
    os().poll(nullptr, 0, kLookMs);
  }
  const bool exchanges = ZERO_TRY(finds_replaced());
  if (exchanges) (void)replaced_.fd.lock();  // so that no sweep deletes it as well
  if (!commits()) return save_given_up();
  os().reached("save.committing");
  ZERO_TRY(rename_into_place(exchanges));
  published_ = true;
  directory_.fd.unlock();
  return {};
}

/// Returns true if the checkpoint that is to be replaced is still at the target, and false if
/// nothing is there. Fails if something else is.
Result<bool> Staging::finds_replaced() const {
  struct stat info;
  if (stat_entry(parent_, target_, info) != 0) {
    if (errno == ENOENT) return false;
    return io_error(target_path(), "stat", errno);
  }
  if (!replaced_.fd.valid())
    return wrong_state("'", target_path(), "' was created during this save, and was not replaced");
  // Another checkpoint may also have been copied into the same directory.
  if (!is_same(parent_, target_, replaced_) || id_in(replaced_) != replaced_id_)
    return was_replaced();
  ZERO_TRY(check_entries(replaced_, "replaced"));
  return true;
}

/// Undoes the exchange if a program that takes no lock has meanwhile put another directory at the
/// target.
Status Staging::keep_others() {
  // If undoing fails, the save has succeeded, because its checkpoint is at the target.
  if (is_same_directory(parent_, temporary_, replaced_, Links::refused).value_or(true) ||
      rename_entry(parent_, temporary_, target_, RENAME_EXCHANGE) != 0)
    return {};
  return was_replaced();
}

Status Staging::was_replaced() const {
  return wrong_state("'", target_path(),
                     "' was replaced by another directory during this save: that ",
                     "one was kept, and this save was given up");
}

Status Staging::rename_into_place(bool exchanges) {
  const auto rename = [&](unsigned flags) {
    if (rename_entry(parent_, temporary_, target_, flags) == 0) return 0;
    // If a request was sent twice, a file server may report failure although the first succeeded.
    const int error = errno;
    return is_ours(target_) ? 0 : error;
  };
  int error = rename(exchanges ? RENAME_EXCHANGE : RENAME_NOREPLACE);
  if (exchanges && means_no_flag(error)) {
    return {ZERO_ERR_CKPT_IO, text("'", target_path(),
                                   "': this file system cannot exchange two directories "
                                   "atomically (",
                                   errno_text(error), "): remove it, or save elsewhere")};
  }
  if (exchanges && error == ENOENT) {
    // A program that takes no lock removed the old checkpoint, so there is nothing to replace.
    exchanges = false;
    error = rename(RENAME_NOREPLACE);
  }
  if (means_no_flag(error)) {
    // Even without the flag, renaming a directory can replace only an empty directory.
    ZERO_TRY(check_target(parent_, target_, false));
    error = rename(0);
  }
  if (error == 0) return exchanges ? keep_others() : Status();
  if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR)
    return wrong_state("'", target_path(), "' was created during this save");
  Status failed = io_error(directory_.path, text("rename to '", target_path(), "'"), error);
  if (!may_be_done_later(error)) return failed;
  // Under another name, a rename request that is still under way does not find the directory.
  const auto aside = set_aside(parent_, temporary_, directory_);
  if (is_ours(target_)) return exchanges ? keep_others() : Status();
  outcome_known_ = aside.ok() && is_ours(*aside);
  if (!outcome_known_)
    return {failed.code(),
            text(failed.text(), " (outcome unknown: load the directory to find out)")};
  temporary_ = *aside;
  return failed;
}

}  // namespace zero
