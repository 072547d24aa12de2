// SPDX-License-Identifier: Apache-2.0
#include "state/commit.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>

#include <cerrno>

#include "base/log.h"
#include "base/refusals.h"
#include "base/secret.h"
#include "state/json.h"
#include "state/manifest.h"

namespace zero {
namespace {

constexpr std::string_view kPrefix = ".tmp-";
constexpr int kAttempts = 8;

std::string joined(const std::string& parent, const std::string& name) {
  return parent == "." ? name : parent == "/" ? text("/", name) : text(parent, "/", name);
}

Result<Digest> draw_id() {
  Digest id{};
  ZERO_TRY(draw_random(std::as_writable_bytes(std::span(id))));
  return id;
}

int remove(const Fd& directory, const std::string& name, int flags) {
  return uninterrupted([&] { return os().unlinkat(directory.get(), name.c_str(), flags); });
}

int rename_entry(const Fd& directory, const std::string& from, const std::string& to,
                 unsigned flags) {
  return uninterrupted([&] {
    return os().renameat2(directory.get(), from.c_str(), directory.get(), to.c_str(), flags);
  });
}

/// File systems without flock cannot tell a live save from a dead one: then nothing is locked or
/// swept.
bool means_no_locks(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == EINVAL; }

/// True if the file system does not know renameat2's flag.
bool means_no_flag(int error) { return error == EINVAL || error == ENOSYS; }

/// True if `name` in `parent` is known to be the directory that is open as `directory`.
bool is_same(const Fd& parent, const std::string& name, const Fd& directory) {
  return is_same_directory(parent.get(), name, directory, false).value_or(false);
}

int try_lock(const Fd& directory) {
  return uninterrupted([&] { return os().flock(directory.get(), LOCK_EX | LOCK_NB); });
}

/// Delete a checkpoint's files, and the directory if nothing else is in it. What cannot go stays,
/// with a word in the log: a leftover is swept again by the next save.
void remove_checkpoint(const Fd& parent, const std::string& name, const Fd& directory,
                       const std::string& path, const Progress& progress) {
  auto names = list_directory(directory, path);
  if (!names.ok()) return log(ZERO_LOG_WARNING, text("cannot clean up: ", names.failure().text()));
  for (const std::string& file : *names) {
    if (!is_checkpoint_file(file)) continue;
    if (remove(directory, file, 0) != 0 && errno != ENOENT)
      log(ZERO_LOG_WARNING, io_error(text(path, "/", file), "unlink", errno).text());
    progress();
  }
  if (remove(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
    log(ZERO_LOG_WARNING, io_error(path, "rmdir", errno).text());
}

/// Remove one directory that a save has left, if that save is dead. It gets a new name first: where
/// locks do not reach another host, a save that lives after all then fails to rename it, and loses
/// nothing that is published.
void sweep_one(const Fd& parent, const std::string& parent_path, const std::string& name,
               const Progress& progress) {
  const std::string path = joined(parent_path, name);
  auto directory = open_directory(parent.get(), name, path, false);
  if (!directory.ok() || try_lock(*directory) != 0) return;
  // The lock may be free because that save has just been published, under another name.
  if (!is_same(parent, name, *directory)) return;
  auto id = draw_id();
  if (!id.ok()) return;
  const std::string doomed = text(kPrefix, hex(*id));
  if (rename_entry(parent, name, doomed, 0) != 0) return;
  log(ZERO_LOG_INFO, text("removing '", path, "', which a save that died has left"));
  remove_checkpoint(parent, doomed, *directory, joined(parent_path, doomed), progress);
}

/// Remove what saves that died have left in `parent`: only directories with exactly our kind of
/// name that nobody has locked, and in them only a checkpoint's files.
void sweep(const Fd& parent, const std::string& parent_path, const Progress& progress) {
  auto names = list_directory(parent, parent_path);
  if (!names.ok()) return log(ZERO_LOG_WARNING, text("cannot sweep: ", names.failure().text()));
  for (const std::string& name : *names) {
    if (is_staging_name(name)) sweep_one(parent, parent_path, name, progress);
  }
}

/// Whether something stands at the place of the new checkpoint that may stay there or be replaced.
Status check_target(const Fd& parent, const std::string& name, std::string_view path,
                    bool replace) {
  const auto refuse = [&](const auto&... why) {
    return Status(ZERO_ERR_STATE, text("'", path, "' ", why...));
  };
  struct stat info;
  if (stat_entry(parent, name, info) != 0)
    return errno == ENOENT ? Status() : io_error(path, "stat", errno);
  if (!replace) return refuse("exists: save elsewhere, or with ZERO_SAVE_REPLACE");
  if (!S_ISDIR(info.st_mode)) return refuse("is not a directory: it is not replaced");
  const Fd directory = ZERO_TRY(open_directory(parent.get(), name, path, false));
  for (const std::string& entry : ZERO_TRY(list_directory(directory, path))) {
    if (!is_checkpoint_file(entry))
      return refuse("holds ", shown(entry),
                    ", which is no file of a checkpoint: it is not replaced");
  }
  return {};
}

}  // namespace

bool is_staging_name(std::string_view name) {
  Digest id;
  return name.substr(0, kPrefix.size()) == kPrefix && parse_hex(name.substr(kPrefix.size()), id);
}

std::string staging_path(std::string_view directory, const Digest& id) {
  auto split = split_path(directory);
  return split.ok() ? joined(split->parent, text(kPrefix, hex(id))) : std::string();
}

Result<Fd> enter_staging(std::string_view directory, const Digest& id) {
  const std::string path = staging_path(directory, id);
  return open_directory(AT_FDCWD, path, path, false);
}

Result<Staging> Staging::begin(std::string_view directory, bool replace,
                               std::vector<std::string> files, const Progress& progress) {
  SplitPath split = ZERO_TRY(split_path(directory));
  if (is_staging_name(split.name))
    return bad_argument("'", directory, "' has the name of an unfinished checkpoint");
  Staging staging;
  staging.target_path_ = joined(split.parent, split.name);
  staging.parent_path_ = std::move(split.parent);
  staging.target_ = std::move(split.name);
  staging.files_ = std::move(files);
  staging.replace_ = replace;
  staging.parent_ = ZERO_TRY(make_directories(staging.parent_path_));
  ZERO_TRY(check_target(staging.parent_, staging.target_, staging.target_path_, replace));
  sweep(staging.parent_, staging.parent_path_, progress);
  ZERO_TRY(staging.make());
  return staging;
}

Status Staging::make() {
  for (int attempt = 0; attempt < kAttempts; attempt++)
    if (ZERO_TRY(take(ZERO_TRY(draw_id())))) return {};
  return {ZERO_ERR_CKPT_IO, text("'", parent_path_, "': another save removed ", kAttempts,
                                 " temporary directories as soon as they were made")};
}

/// Make and lock the directory. False: another save's sweep got hold of it before the lock was
/// taken.
Result<bool> Staging::take(const Digest& id) {
  std::string name = text(kPrefix, hex(id));
  std::string path = joined(parent_path_, name);
  left_behind_ = text("'", path, "' cannot be removed now: the next save in that folder does it");
  const auto fail = [&](const char* operation, int error, int swept) -> Result<bool> {
    if (error == swept) return false;
    return io_error(path, operation, error);
  };
  if (uninterrupted([&] { return os().mkdirat(parent_.get(), name.c_str(), kDirectoryMode); }) != 0)
    return fail("mkdir", errno, EEXIST);
  Fd directory = open_at(parent_.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (!directory.valid()) {
    const int error = errno;
    remove(parent_, name, AT_REMOVEDIR);
    return fail("open", error, ENOENT);
  }
  if (try_lock(directory) != 0 && !means_no_locks(errno)) {
    const int error = errno;
    if (error != EWOULDBLOCK) remove(parent_, name, AT_REMOVEDIR);
    return fail("flock", error, EWOULDBLOCK);
  }
  save_id_ = id;
  temporary_ = std::move(name);
  path_ = std::move(path);
  directory_ = std::move(directory);
  return is_ours(temporary_);  // or a sweep had removed it before it was locked
}

bool Staging::is_ours(const std::string& name) const { return is_same(parent_, name, directory_); }

Staging::~Staging() {
  if (published_ || !directory_.valid() || !is_ours(temporary_)) return;
  for (const std::string& file : files_) (void)remove(directory_, file, 0);
  if (remove(parent_, temporary_, AT_REMOVEDIR) != 0) log(ZERO_LOG_WARNING, left_behind_);
}

Status Staging::publish(const Progress& progress) {
  ZERO_TRY(sync(directory_, path_));
  os().reached("save.staged");
  ZERO_TRY(rename_into_place());
  published_ = true;
  os().reached("save.renamed");
  if (Status status = sync(parent_, parent_path_); !status.ok())
    return std::move(status).within(
        text("the checkpoint '", target_path_,
             "' is complete, but after a power failure it may be gone"));
  os().reached("save.durable");
  // What is left of the old one is swept by the next save.
  if (exchanged_) (void)succeeds([&] { return remove_replaced(progress), true; });
  return {};
}

Status Staging::rename_into_place() {
  const auto rename = [&](unsigned flags) {
    if (rename_entry(parent_, temporary_, target_, flags) == 0) return 0;
    // A file server may answer a repeated request with a failure although the first one was done.
    const int error = errno;
    return is_ours(target_) ? 0 : error;
  };
  int error = ENOENT;  // nothing to exchange with
  if (replace_) {
    error = rename(RENAME_EXCHANGE);
    exchanged_ = error == 0;
  }
  struct stat info;
  if (replace_ && means_no_flag(error) && stat_entry(parent_, target_, info) == 0) {
    return {ZERO_ERR_CKPT_IO, text("'", target_path_,
                                   "': this file system cannot exchange two directories in "
                                   "one step (",
                                   errno_text(error), "): remove it, or save elsewhere")};
  }
  if (error == ENOENT || means_no_flag(error)) error = rename(RENAME_NOREPLACE);
  if (means_no_flag(error)) {
    // Without the flag a rename of a directory still replaces nothing, or an empty directory.
    ZERO_TRY(check_target(parent_, target_, target_path_, false));
    error = rename(0);
  }
  if (error == 0) return {};
  if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR)
    return {ZERO_ERR_STATE, text("'", target_path_, "' has come to exist during this save")};
  return io_error(path_, text("rename to '", target_path_, "'"), error);
}

/// After an exchange the old checkpoint has the temporary name.
void Staging::remove_replaced(const Progress& progress) const {
  auto old = open_directory(parent_.get(), temporary_, path_, false);
  if (!old.ok()) return log(ZERO_LOG_WARNING, old.failure().text());
  remove_checkpoint(parent_, temporary_, *old, path_, progress);
}

}  // namespace zero
