// SPDX-License-Identifier: Apache-2.0
#include "state/find.h"

#include <fcntl.h>

#include <cerrno>
#include <new>
#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "state/file.h"
#include "state/manifest.h"

namespace zero {
namespace {

Status invalid(std::string what) { return {ZERO_ERR_CKPT_INVALID, std::move(what)}; }

/// True if there is anything called zero.json, sound or not.
Result<bool> has_manifest(const Fd& directory, const std::string& path) {
  struct stat info;
  if (stat_entry(directory, kManifestName, info) == 0) return true;
  if (errno == ENOENT) return false;
  return io_error(text(path, "/", kManifestName), "stat", errno);
}

Result<std::string> read_manifest(const Fd& directory, const std::string& directory_path) {
  const std::string path = text(directory_path, "/", kManifestName);
  const InputFile file = ZERO_TRY(open_input(directory, kManifestName, path));
  if (file.bytes > kLongestManifest) {
    return invalid(text("'", path, "': has ", file.bytes, " bytes, at most ", kLongestManifest));
  }
  std::string bytes(file.bytes, '\0');
  ZERO_TRY(read_fully(file.fd, path, bytes.data(), bytes.size(), 0));
  return bytes;
}

/// A candidate's manifest and its step.
struct Candidate {
  std::string manifest;
  int64_t step = 0;
};

Result<Candidate> read_candidate(const Fd& directory, const std::string& path) {
  Candidate candidate;
  candidate.manifest = ZERO_TRY(read_manifest(directory, path));
  const auto manifest = parse_manifest(candidate.manifest);
  if (!manifest.ok())
    return Status(manifest.failure()).within(text("'", path, "/", kManifestName, "'"));
  candidate.step = (*manifest).step;
  return candidate;
}

/// The newest sound checkpoint among the sub-directories; the later name where steps are equal.
Result<FoundCheckpoint> find_newest(const Fd& directory, const std::string& path,
                                    const std::function<void()>& progress) {
  std::optional<FoundCheckpoint> best;
  int64_t best_step = 0;
  std::string skipped;
  for (const std::string& name : ZERO_TRY(list_directory(directory, path))) {
    if (name[0] == '.') continue;  // unfinished ones, among others
    const std::string child_path = text(path, "/", name);
    auto child = open_directory(directory.get(), name, child_path, false);
    if (!child.ok()) continue;  // a file or a link
    auto present = has_manifest(*child, child_path);
    if (present.ok() && !*present) continue;
    progress();
    auto candidate = read_candidate(*child, child_path);
    if (!candidate.ok()) {
      log(ZERO_LOG_WARNING, text("skipped: ", candidate.failure().text()));
      if (skipped.empty()) skipped = candidate.failure().text();
    } else if (!best || candidate->step >= best_step) {
      best_step = candidate->step;
      best = FoundCheckpoint{child_path, std::move(candidate->manifest)};
    }
  }
  if (best) return std::move(*best);
  return invalid(text("'", path, "': neither it nor a directory in it is a complete checkpoint",
                      skipped.empty() ? "" : "; ", skipped));
}

}  // namespace

Result<FoundCheckpoint> find_checkpoint(const std::string& path,
                                        const std::function<void()>& progress) {
  Fd directory(uninterrupted(
      [&] { return os().openat(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); }));
  if (!directory.valid()) {
    if (errno == ENOENT) return invalid(text("'", path, "': there is no such directory"));
    if (errno == ENOTDIR) return invalid(text("'", path, "': is not a directory"));
    return io_error(path, "open", errno);
  }
  if (!ZERO_TRY(has_manifest(directory, path))) return find_newest(directory, path, progress);
  Candidate found = ZERO_TRY(read_candidate(directory, path));
  return FoundCheckpoint{path, std::move(found.manifest)};
}

}  // namespace zero
