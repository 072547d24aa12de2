// SPDX-License-Identifier: Apache-2.0
// Directories and files for checkpoints, on os(): interrupted calls are repeated, links inside a
// checkpoint are not followed, and every failure names the file, the operation and the system's
// reason.
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

/// Called now and then during long work, which ends where this fails.
using Progress = std::function<Status()>;
/// That of work that nothing ends.
inline Status unhindered() { return {}; }

/// Returns ZERO_ERR_CKPT_IO: "'run/zero.json': fsync: Input/output error (EIO)".
Status io_error(std::string_view path, std::string_view operation, int error);

/// True for a name that can be an entry of a checkpoint: no path, not hidden. The name may come
/// from any file.
bool is_file_name(std::string_view name);

/// A path split at its last name: "a/b/c/" is {"a/b", "c"}, "c" is {".", "c"}.
struct SplitPath {
  std::string parent;
  std::string name;
};
/// Fails with ZERO_ERR_ARGUMENT if the path has no last name that could be a checkpoint's.
Result<SplitPath> split_path(std::string_view path);

/// Returns the path to which `name` leads from `directory`.
std::string joined(std::string_view directory, std::string_view name);

/// A file or directory that is open, and its path, for texts.
struct OpenFile {
  std::string path;
  Fd fd;
};

struct Directory : OpenFile {
  std::string path_of(std::string_view name) const { return joined(path, name); }
};

/// Returns the start of relative paths: the working directory, whichever that is.
Directory start_of_paths();

/// A path that the caller names may be a link. An entry of a folder or of a checkpoint may not.
enum class Links { followed, refused };

/// Calls openat, again if a signal interrupts it. On failure the result is not valid, and errno
/// says why.
Fd open_at(const Directory& directory, const std::string& name, int flags, unsigned mode = 0);

/// Opens the directory `name` in `parent`. On failure the result is not valid, and errno says why.
Directory enter(const Directory& parent, const std::string& name, Links links);
/// Does the same, but fails with ZERO_ERR_CKPT_IO.
Result<Directory> open_directory(const Directory& parent, const std::string& name, Links links);

/// Calls mkdirat. Returns 0, or -1 and errno.
int make_directory(const Directory& parent, const std::string& name);

/// Returns the entries of a directory, without "." and "..", sorted.
Result<std::vector<std::string>> list_directory(const Directory& directory);

/// Opens a directory. If it or parents of it are missing, makes them, on stable storage.
Result<Directory> make_directories(const std::string& path);

/// Finds out what stands under a name, and follows no link. Returns 0, or -1 and errno.
int stat_entry(const Directory& directory, const std::string& name, struct stat& info);

/// Returns whether `name` in `parent` still means the directory that was opened by it, or nullopt
/// and errno if that cannot be told.
std::optional<bool> is_same_directory(const Directory& parent, const std::string& name,
                                      const Directory& directory, Links links);

Status sync(const OpenFile& file);

/// Closes a file and returns the answer, because some file systems report a failed write only here.
Status close_checked(OpenFile file);

/// A file for reading, with its size. open_input() fails with ZERO_ERR_CKPT_INVALID if it is
/// missing or not a regular file.
struct InputFile : OpenFile {
  uint64_t bytes = 0;
};
Result<InputFile> open_input(const Directory& directory, const std::string& name, Links links);

/// Fills `data` from `offset` on. Fails with ZERO_ERR_CKPT_INVALID if the file ends first.
Status read_fully(const OpenFile& file, std::span<std::byte> data, uint64_t offset);
Status write_fully(const OpenFile& file, std::span<const std::byte> data, uint64_t offset);

/// Has a file written past the page cache, where its file system can: copies into it take ten times
/// the processor's time, which training needs. What cannot be written so, as bytes that are no
/// whole sectors of the disk, goes through the cache, and all behind it.
void write_past_cache(const OpenFile& file);

}  // namespace zero
