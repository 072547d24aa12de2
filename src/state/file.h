// SPDX-License-Identifier: Apache-2.0
// Opens, reads and writes the directories and files of checkpoints through os(). Interrupted calls
// are retried, links inside a checkpoint are not followed, and every failure names the file, the
// operation and the system's reason.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "base/status.h"

namespace zero {

/// Called repeatedly during long work. If it fails, the work ends.
using Progress = std::function<Status()>;
/// Returns success. It is the Progress of work that nothing interrupts.
inline Status unhindered() { return {}; }

/// Returns ZERO_ERR_CKPT_IO with a text such as "'run/zero.json': fsync: Input/output error (EIO)".
Status io_error(std::string_view path, std::string_view operation, int error);

/// Returns true if `name` can be an entry of a checkpoint: it is not a path and not hidden. `name`
/// may come from an untrusted file.
bool is_file_name(std::string_view name);

/// A path that is split at its last name: "a/b/c/" is {"a/b", "c"}, and "c" is {".", "c"}.
struct SplitPath {
  std::string parent;
  std::string name;
};
/// Fails with ZERO_ERR_ARGUMENT if the path does not end with a name that a checkpoint can have.
Result<SplitPath> split_path(std::string_view path);

/// Returns the path of `name`, which is relative to `directory`.
std::string joined(std::string_view directory, std::string_view name);

/// An open file or directory, and its path for error texts.
struct OpenFile {
  std::string path;
  Fd fd;
};

struct Directory : OpenFile {
  std::string path_of(std::string_view name) const { return joined(path, name); }
};

/// Returns the directory where relative paths start: the working directory at the time of use.
Directory start_of_paths();

/// Links in a caller's path may be followed. Entries of a directory or checkpoint may not be links.
enum class Links { followed, refused };

/// Calls openat, and retries if a signal interrupts it. On failure the result is not valid, and
/// errno is set.
Fd open_at(const Directory& directory, const std::string& name, int flags, unsigned mode = 0);

/// Opens the directory `name` in `parent`. On failure the result is not valid, and errno is set.
Directory enter(const Directory& parent, const std::string& name, Links links);
/// Does the same, but fails with ZERO_ERR_CKPT_IO.
Result<Directory> open_directory(const Directory& parent, const std::string& name, Links links);

/// Calls mkdirat. Returns 0, or -1 and sets errno.
int make_directory(const Directory& parent, const std::string& name);

/// Returns the entries of a directory, without "." and "..", sorted.
Result<std::vector<std::string>> list_directory(const Directory& directory);

/// Opens a directory. Makes it and its parents on stable storage if they are missing.
Result<Directory> make_directories(const std::string& path);

/// Calls fstatat for an entry, without following links. Returns 0, or -1 and sets errno.
int stat_entry(const Directory& directory, const std::string& name, struct stat& info);

/// Returns whether `name` in `parent` still refers to the directory that was opened under that
/// name. Returns nullopt and sets errno if that is unknown.
std::optional<bool> is_same_directory(const Directory& parent, const std::string& name,
                                      const Directory& directory, Links links);

Status sync(const OpenFile& file);

/// Closes a file and checks the result, because some file systems report a failed write only here.
Status close_checked(OpenFile file);

/// A file that is open for reading, and its size. open_input() fails with ZERO_ERR_CKPT_INVALID if
/// the file is missing or is not a regular file.
struct InputFile : OpenFile {
  uint64_t bytes = 0;
};
Result<InputFile> open_input(const Directory& directory, const std::string& name, Links links);

/// Fills `data` from `offset` on. Fails with ZERO_ERR_CKPT_INVALID if the file ends before that.
Status read_fully(const OpenFile& file, std::span<std::byte> data, uint64_t offset);
Status write_fully(const OpenFile& file, std::span<const std::byte> data, uint64_t offset);

/// Makes writes bypass the page cache if the file system can. Copying into the cache takes ten
/// times the processor time, which training needs. A write that cannot bypass the cache, such as
/// one of a partial disk sector, goes through it, and so do all later writes.
void write_past_cache(const OpenFile& file);

}  // namespace zero
