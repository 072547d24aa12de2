// SPDX-License-Identifier: Apache-2.0
#include "state/temporary.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>

#include <cerrno>

#include "base/log.h"
#include "base/refusals.h"
#include "base/secret.h"
#include "state/file_names.h"
#include "state/manifest.h"

namespace zero {
namespace {

constexpr std::string_view kPrefix = ".tmp-";

/// Returns true if the file system does not support flock. Live saves then cannot be told from dead
/// ones, so nothing is locked or swept.
bool means_no_locks(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == EINVAL; }

/// Removes one directory that a save has left, if that save is dead. Renames it first. If locks do
/// not reach other hosts and the save is in fact alive, it then fails to rename its directory, so
/// no published checkpoint loses files.
void sweep_one(const Directory& parent, const std::string& name, const Progress& progress) {
  auto directory = open_directory(parent, name, Links::refused);
  if (!directory.ok() || directory->fd.lock() != 0) return;
  // The lock may be free because that save has just renamed the directory to its final name.
  const auto doomed = set_aside(parent, name, *directory);
  if (!doomed.ok()) return;
  log(ZERO_LOG_INFO,
      text("removing '", parent.path_of(name), "', left by a save whose process died"));
  remove_checkpoint(parent, *doomed, *directory, progress);
}

}  // namespace

std::string temporary_name(const Digest& id) { return text(kPrefix, hex(id)); }

bool is_temporary_name(std::string_view name) {
  Digest id;
  return name.starts_with(kPrefix) && parse_hex(name.substr(kPrefix.size()), id);
}

Result<Digest> draw_id() {
  Digest id{};
  ZERO_TRY(draw_random(std::as_writable_bytes(std::span(id))));
  return id;
}

int remove_entry(const Directory& directory, const std::string& name, int flags) {
  return uninterrupted([&] { return os().unlinkat(directory.fd.get(), name.c_str(), flags); });
}

int rename_entry(const Directory& directory, const std::string& from, const std::string& to,
                 unsigned flags) {
  const int fd = directory.fd.get();
  return uninterrupted([&] { return os().renameat2(fd, from.c_str(), fd, to.c_str(), flags); });
}

bool is_same(const Directory& parent, const std::string& name, const Directory& directory) {
  return is_same_directory(parent, name, directory, Links::refused).value_or(false);
}

Result<Directory> make_locked(const Directory& parent, const std::string& name) {
  const bool made = make_directory(parent, name) == 0;
  if (!made && errno != EEXIST) return io_error(parent.path_of(name), "mkdir", errno);
  const auto fail = [&](const char* operation, int error, int theirs) -> Result<Directory> {
    if (error == theirs) return Directory();
    if (made) remove_entry(parent, name, AT_REMOVEDIR);
    return io_error(parent.path_of(name), operation, error);
  };
  Directory directory = enter(parent, name, Links::refused);
  if (!directory.fd.valid() && errno == ENOTDIR)
    return Status(ZERO_ERR_CKPT_IO, text("'", parent.path_of(name),
                                         "' is not a directory, so saves and prunes cannot use it "
                                         "as a lock: remove it"));
  if (!directory.fd.valid()) return fail("open", errno, ENOENT);
  if (directory.fd.lock() != 0 && !means_no_locks(errno)) return fail("flock", errno, EWOULDBLOCK);
  if (!is_same(parent, name, directory)) return Directory();
  return Result<Directory>(std::move(directory));
}

NameLock::NameLock(const Directory& parent, const std::string& name)
    : parent_(parent), name_(temporary_name(hash128(bytes_of(name)))) {}

NameLock::~NameLock() {
  if (held_.fd.valid()) remove_entry(parent_, name_, AT_REMOVEDIR);
}

Result<bool> NameLock::try_take() {
  held_ = ZERO_TRY(make_locked(parent_, name_));
  return held_.fd.valid();
}

void remove_checkpoint(const Directory& parent, const std::string& name, const Directory& directory,
                       const Progress& progress) {
  const auto warn = [](const Status& why) { log(ZERO_LOG_WARNING, why.text()); };
  auto names = list_directory(directory);
  if (!names.ok()) return warn(std::move(names).status().within("cannot clean up"));
  for (const std::string& file : *names) {
    if (!is_checkpoint_file(file)) continue;
    if (remove_entry(directory, file, 0) != 0 && errno != ENOENT)
      warn(io_error(directory.path_of(file), "unlink", errno));
    (void)progress();  // an interrupt does not stop the removal, because nobody needs these files
  }
  if (remove_entry(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
    warn(io_error(parent.path_of(name), "rmdir", errno));
}

Result<std::string> set_aside(const Directory& parent, const std::string& name,
                              Directory& directory) {
  const auto same = is_same_directory(parent, name, directory, Links::refused);
  if (!same) return io_error(directory.path, "stat", errno);
  if (!*same) return wrong_state("'", directory.path, "' was replaced in the meantime");
  std::string aside = temporary_name(ZERO_TRY(draw_id()));
  if (rename_entry(parent, name, aside, 0) != 0) return io_error(directory.path, "rename", errno);
  if (!is_same_directory(parent, aside, directory, Links::refused).value_or(true)) {
    // Just before the rename, a program that takes no lock gave the name to another directory.
    (void)rename_entry(parent, aside, name, RENAME_NOREPLACE);
    return wrong_state("'", directory.path, "' was replaced in the meantime");
  }
  directory.path = parent.path_of(aside);
  return aside;
}

void sweep(const Directory& parent, const Progress& progress) {
  auto names = list_directory(parent);
  if (!names.ok()) return log(ZERO_LOG_WARNING, text("cannot sweep: ", names.failure().text()));
  for (const std::string& name : *names) {
    if (is_temporary_name(name)) sweep_one(parent, name, progress);
  }
}

}  // namespace zero
