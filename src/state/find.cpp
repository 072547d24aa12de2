// SPDX-License-Identifier: Apache-2.0
#include "state/find.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <tuple>

#include "base/log.h"
#include "base/os.h"
#include "state/file.h"
#include "state/json.h"

namespace zero {
namespace {

Result<Directory> open_place(const Directory& parent, const std::string& name, Links links) {
  Directory entered = enter(parent, name, links);
  if (entered.fd.valid()) return entered;
  if (errno == ENOENT) return invalid("'", entered.path, "': there is no such directory");
  if (errno == ENOTDIR || errno == ELOOP)
    return invalid("'", entered.path, "': is not a directory");
  return io_error(entered.path, "open", errno);
}

/// Returns true if `name` still refers to the directory that was opened with that name, or if that
/// cannot be determined.
bool stands(const Directory& parent, const std::string& name, const Directory& directory,
            Links links) {
  return is_same_directory(parent, name, directory, links).value_or(errno != ENOENT);
}

/// Returns true if there is an entry named zero.json, even if it is not a sound manifest.
Result<bool> has_manifest(const Directory& directory) {
  struct stat info;
  if (stat_entry(directory, kManifestName, info) == 0) return true;
  if (errno == ENOENT) return false;
  return io_error(directory.path_of(kManifestName), "stat", errno);
}

}  // namespace

Result<FoundCheckpoint> read_manifest(const Directory& directory) {
  const InputFile file = ZERO_TRY(open_input(directory, kManifestName, Links::refused));
  if (file.bytes > kLongestManifest)
    return invalid("'", file.path, "': has ", file.bytes, " bytes; at most ", kLongestManifest,
                   " are allowed");
  FoundCheckpoint found{directory.path, std::string(file.bytes, '\0'), {}};
  ZERO_TRY(read_fully(file, std::as_writable_bytes(std::span(found.bytes)), 0));
  found.manifest = ZERO_TRY(parse_manifest(found.bytes).within(text("'", file.path, "'")));
  return found;
}

namespace {

/// Returns the checkpoint in a directory. Tries again if a save has meanwhile put another directory
/// in its place and removed its files.
Result<FoundCheckpoint> look_at(const Directory& parent, const std::string& name, Links links) {
  for (int attempt = 1;; attempt++) {
    const Directory directory = ZERO_TRY(open_place(parent, name, links));
    auto found = read_manifest(directory);
    const bool sound = found.ok() || found.failure().code() != ZERO_ERR_CKPT_INVALID;
    if (sound || attempt == kMostReplacements || stands(parent, name, directory, links))
      return found;
  }
}

/// Calls visit(name, checkpoint) for each subdirectory that is a sound checkpoint. Returns the
/// reason why the first other entry is not one, or "". Fails, with `so` in the text, at an entry
/// that cannot be read, because it may be the newest checkpoint.
template <class Visit>
Result<std::string> visit_checkpoints(const Directory& directory, const Progress& progress,
                                      const char* so, const Visit& visit) {
  std::string skipped;
  for (const std::string& name : ZERO_TRY(list_directory(directory))) {
    const std::string path = directory.path_of(name);
    if (name[0] == '.') continue;  // hidden, like temporary directories
    if (name == "lost+found") {    // belongs to the file system
      log(ZERO_LOG_WARNING, text("skipped: '", path, "'"));
      continue;
    }
    ZERO_TRY(progress());
    auto found = look_at(directory, name, Links::refused);
    if (found.ok()) {
      visit(name, std::move(*found));
      continue;
    }
    const Status& why = found.failure();
    if (why.code() != ZERO_ERR_CKPT_INVALID)
      return Status(why.code(),
                    text(why.text(), "; '", path, "' may be the newest checkpoint, so ", so));
    log(ZERO_LOG_WARNING, text("skipped: ", why.text()));
    if (skipped.empty()) skipped = why.text();
  }
  return skipped;
}

/// Returns the newest sound checkpoint among the subdirectories. If several have the same step,
/// returns the last one by name.
Result<FoundCheckpoint> find_newest(const Directory& directory, const Progress& progress) {
  std::optional<FoundCheckpoint> best;
  const std::string skipped =
      ZERO_TRY(visit_checkpoints(directory, progress, "none was loaded: name the one to load",
                                 [&](const std::string&, FoundCheckpoint found) {
                                   if (!best || found.manifest.step >= best->manifest.step)
                                     best = std::move(found);
                                 }));
  if (best) return std::move(*best);
  return invalid("'", directory.path,
                 "': neither it nor a directory in it is a complete checkpoint",
                 skipped.empty() ? "" : "; ", skipped);
}

}  // namespace

Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress) {
  const Directory start = start_of_paths();
  for (int attempt = 1;; attempt++) {
    const Directory directory = ZERO_TRY(open_place(start, path, Links::followed));
    if (ZERO_TRY(has_manifest(directory))) return look_at(start, path, Links::followed);
    if (attempt == kMostReplacements || stands(start, path, directory, Links::followed))
      return find_newest(directory, progress);
  }
}

Result<std::vector<ListedCheckpoint>> list_checkpoints(const std::string& folder) {
  std::vector<ListedCheckpoint> listed;
  const Directory directory = enter(start_of_paths(), folder, Links::followed);
  if (!directory.fd.valid() && errno == ENOENT) return listed;  // there was no save yet
  if (!directory.fd.valid()) return io_error(folder, "open", errno);
  ZERO_TRY(visit_checkpoints(directory, unhindered, "the list would be wrong",
                             [&](const std::string& name, const auto& found) {
                               uint64_t bytes = found.bytes.size();
                               for (const FileRecord& file : found.manifest.files)
                                 bytes += file.bytes;
                               listed.push_back({found.manifest.step, name, found.manifest.world,
                                                 bytes, found.manifest.save_id});
                             }));
  std::ranges::sort(listed, std::greater(),
                    [](const auto& one) { return std::tie(one.step, one.name); });
  return listed;
}

bool is_replaced(const FoundCheckpoint& found) {
  const auto now = look_at(start_of_paths(), found.path, Links::followed);
  return now.ok() ? (*now).manifest.save_id != found.manifest.save_id
                  : now.failure().code() == ZERO_ERR_CKPT_INVALID;
}

Status with_working_directories(Call& call, std::string_view path, Status status) {
  if (status.ok() || path.empty() || path[0] == '/') return status;
  const auto all = call.gather("working directories", working_directory());
  if (!all.ok()) return status;  // the comm is broken
  const std::vector<std::string>& of = *all;
  const auto other = std::ranges::find_if(of, [&](const auto& one) { return one != of[0]; });
  if (other == of.end()) return status;
  return {status.code(), text(status.text(), "; '", path,
                              "' is relative, and the working directory of rank 0 is '", of[0],
                              "', that of rank ", other - of.begin(), " is '", *other, "'")};
}

}  // namespace zero
