// SPDX-License-Identifier: Apache-2.0
#include "state/find.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/log.h"
#include "base/os.h"
#include "state/file.h"
#include "state/json.h"

namespace zero {
namespace {

/// Of os().fstatat and openat: entries of a folder may be no links, what the caller names may.
enum class Links { followed, refused };

Result<Fd> open_place(int parent, const std::string& name, const std::string& path, Links links) {
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (links == Links::refused ? O_NOFOLLOW : 0);
  Fd fd = open_at(parent, name, flags);
  if (fd.valid()) return fd;
  const int error = errno;
  if (error == ENOENT) return invalid("'", path, "': there is no such directory");
  if (error == ENOTDIR || error == ELOOP) return invalid("'", path, "': is not a directory");
  return io_error(path, "open", error);
}

/// True if `name` still means the directory that was opened by it. Where that cannot be told, it
/// does.
bool stands(int parent, const std::string& name, const Fd& directory, Links links) {
  return is_same_directory(parent, name, directory, links == Links::followed)
      .value_or(errno != ENOENT);
}

/// True if there is anything called zero.json, sound or not.
Result<bool> has_manifest(const Fd& directory, const std::string& path) {
  struct stat info;
  if (stat_entry(directory, kManifestName, info) == 0) return true;
  if (errno == ENOENT) return false;
  return io_error(text(path, "/", kManifestName), "stat", errno);
}

Result<Manifest> read_manifest(const Fd& directory, const std::string& directory_path) {
  const std::string path = text(directory_path, "/", kManifestName);
  const InputFile file = ZERO_TRY(open_input(directory, kManifestName, path));
  if (file.bytes > kLongestManifest)
    return invalid("'", path, "': has ", file.bytes, " bytes, at most ", kLongestManifest);
  std::string bytes(file.bytes, '\0');
  ZERO_TRY(read_fully(file.fd, path, bytes.data(), bytes.size(), 0));
  return parse_manifest(bytes).within(text("'", path, "'"));
}

/// The manifest in a directory, once more where a save has put another directory in its place
/// meanwhile and removed the files of this one.
Result<Manifest> look_at(int parent, const std::string& name, const std::string& path,
                         Links links) {
  for (int attempt = 1;; attempt++) {
    const Fd directory = ZERO_TRY(open_place(parent, name, path, links));
    auto manifest = read_manifest(directory, path);
    const bool sound = manifest.ok() || manifest.failure().code() != ZERO_ERR_CKPT_INVALID;
    if (sound || attempt == kMostReplacements || stands(parent, name, directory, links))
      return manifest;
  }
}

/// Of a folder's entries, what cannot be a checkpoint by its name: what is hidden, unfinished ones
/// among it, and what file systems keep for themselves.
bool is_passed_over(const std::string& name) { return name[0] == '.' || name == "lost+found"; }

/// The newest sound checkpoint among the sub-directories; the later name where steps are equal.
Result<FoundCheckpoint> find_newest(const Fd& directory, const std::string& path,
                                    const Progress& progress) {
  std::optional<FoundCheckpoint> best;
  std::string skipped;
  for (const std::string& name : ZERO_TRY(list_directory(directory, path))) {
    if (is_passed_over(name)) {
      if (name[0] != '.') log(ZERO_LOG_WARNING, text("skipped: '", path, "/", name, "'"));
      continue;
    }
    std::string child = text(path, "/", name);
    progress();
    auto manifest = look_at(directory.get(), name, child, Links::refused);
    if (!manifest.ok()) {
      const Status& why = manifest.failure();
      if (why.code() != ZERO_ERR_CKPT_INVALID)
        return Status(why.code(), text(why.text(), "; '", child,
                                       "' may be the newest checkpoint, so none is loaded: name "
                                       "the one to load"));
      log(ZERO_LOG_WARNING, text("skipped: ", why.text()));
      if (skipped.empty()) skipped = why.text();
    } else if (!best || (*manifest).step >= best->manifest.step) {
      best = FoundCheckpoint{std::move(child), std::move(*manifest)};
    }
  }
  if (best) return std::move(*best);
  return invalid("'", path, "': neither it nor a directory in it is a complete checkpoint",
                 skipped.empty() ? "" : "; ", skipped);
}

}  // namespace

Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress) {
  for (int attempt = 1;; attempt++) {
    const Fd directory = ZERO_TRY(open_place(AT_FDCWD, path, path, Links::followed));
    if (ZERO_TRY(has_manifest(directory, path))) {
      Manifest manifest = ZERO_TRY(look_at(AT_FDCWD, path, path, Links::followed));
      return FoundCheckpoint{path, std::move(manifest)};
    }
    if (attempt == kMostReplacements || stands(AT_FDCWD, path, directory, Links::followed))
      return find_newest(directory, path, progress);
  }
}

bool is_replaced(const FoundCheckpoint& found) {
  const auto now = look_at(AT_FDCWD, found.path, found.path, Links::followed);
  return now.ok() ? (*now).save_id != found.manifest.save_id
                  : now.failure().code() == ZERO_ERR_CKPT_INVALID;
}

Status with_working_directories(Call& call, std::string_view path, Status status) {
  if (status.ok() || path.empty() || path[0] == '/') return status;
  const auto all = call.gather("working directories", working_directory());
  if (!all.ok()) return status;  // the comm is broken, which the failure says
  const std::vector<std::string>& of = *all;
  const auto other = std::ranges::find_if(of, [&](const auto& one) { return one != of[0]; });
  if (other == of.end()) return status;
  return {status.code(), text(status.text(), "; '", path,
                              "' is relative, and the working directory of rank 0 is '", of[0],
                              "', that of rank ", other - of.begin(), " is '", *other, "'")};
}

}  // namespace zero
