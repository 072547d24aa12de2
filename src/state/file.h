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

/// Called now and then while much is being done.
using Progress = std::function<void()>;

/// ZERO_ERR_CKPT_IO: "'run/zero.json': fsync: Input/output error (EIO)".
Status io_error(std::string_view path, std::string_view operation, int error);

/// True for a name that can be an entry of a checkpoint, whatever file it comes from: no path, not
/// hidden.
bool is_file_name(std::string_view name);

/// A path split at its last name: "a/b/c/" is {"a/b", "c"}, "c" is {".", "c"}.
struct SplitPath {
  std::string parent;
  std::string name;
};
/// ZERO_ERR_ARGUMENT if the path has no last name that could be a checkpoint's.
Result<SplitPath> split_path(std::string_view path);

/// The path of what `name` leads to from `directory`.
std::string joined(std::string_view directory, std::string_view name);

/// A file or directory that is open, and its path, for texts.
struct OpenFile {
  std::string path;
  Fd fd;
};

struct Directory : OpenFile {
  std::string path_of(std::string_view name) const { return joined(path, name); }
};

/// Where relative paths begin: the working directory, whichever that is.
Directory start_of_paths();

/// What the caller names may be a link, an entry of a folder or a checkpoint may not.
enum class Links { followed, refused };

/// openat, repeated where it is interrupted: not valid, and errno, if it failed.
Fd open_at(const Directory& directory, const std::string& name, int flags, unsigned mode = 0);

/// The directory `name` in `parent`: not valid, and errno, if it cannot be opened.
Directory enter(const Directory& parent, const std::string& name, Links links);
/// The same, or ZERO_ERR_CKPT_IO.
Result<Directory> open_directory(const Directory& parent, const std::string& name, Links links);

/// mkdirat: 0, or -1 and errno.
int make_directory(const Directory& parent, const std::string& name);

/// The entries of a directory, without "." and "..", sorted.
Result<std::vector<std::string>> list_directory(const Directory& directory);

/// Open (making it and what is above it where missing) a directory; what was made is on stable
/// storage.
Result<Directory> make_directories(const std::string& path);

/// What stands under a name, links not followed: 0, or -1 and errno.
int stat_entry(const Directory& directory, const std::string& name, struct stat& info);

/// Whether `name` in `parent` still means the directory that was opened by it; nullopt and errno
/// where that cannot be told.
std::optional<bool> is_same_directory(const Directory& parent, const std::string& name,
                                      const Directory& directory, Links links);

Status sync(const OpenFile& file);

/// Close, with its answer: some file systems report a failed write only here.
Status close_checked(OpenFile file);

/// A file for reading, its size known. ZERO_ERR_CKPT_INVALID if it is missing or not a regular
/// file.
struct InputFile : OpenFile {
  uint64_t bytes = 0;
};
Result<InputFile> open_input(const Directory& directory, const std::string& name);

/// Fill `data` from `offset` on. ZERO_ERR_CKPT_INVALID if the file ends first.
Status read_fully(const OpenFile& file, std::span<std::byte> data, uint64_t offset);
Status write_fully(const OpenFile& file, std::span<const std::byte> data, uint64_t offset);

/// Holds SIGXFSZ back on this thread, and takes back what was raised: a write past the file size
/// limit (ulimit -f) is an error here, not the signal that ends a program.
class FileSizeSignal {
 public:
  FileSizeSignal();
  ~FileSizeSignal();
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  bool held_ = false;  // by us, not by the caller before
};

}  // namespace zero
