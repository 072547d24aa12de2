// SPDX-License-Identifier: Apache-2.0
// Directories and files for checkpoints, on os(): interrupted calls are repeated, links inside a
// checkpoint are not followed, and every failure names the file, the operation and the system's
// reason.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "base/status.h"

namespace zero {

/// Called now and then while much is being done.
using Progress = std::function<void()>;

inline constexpr unsigned kDirectoryMode = 0777;  // the umask decides, as in mkdir -p

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

/// openat, repeated where it is interrupted: not valid, and errno, if it failed.
Fd open_at(int directory, const std::string& name, int flags, unsigned mode = 0);

/// `path`, for texts, is the whole; `name` is relative to `directory` (or AT_FDCWD).
Result<Fd> open_directory(int directory, const std::string& name, std::string_view path,
                          bool follow_link);

/// The entries of a directory, without "." and "..", sorted.
Result<std::vector<std::string>> list_directory(const Fd& directory, std::string_view path);

/// Open (making it and what is above it where missing) a directory; what was made is on stable
/// storage.
Result<Fd> make_directories(const std::string& path);

/// What stands under a name, links not followed: 0, or -1 and errno.
int stat_entry(const Fd& directory, const std::string& name, struct stat& info);

/// Whether `name` in `parent` (or AT_FDCWD) still means the directory that was opened by it;
/// nullopt and errno where that cannot be told.
std::optional<bool> is_same_directory(int parent, const std::string& name, const Fd& directory,
                                      bool follow_link);

Status sync(const Fd& file, std::string_view path);

/// Close, with its answer: some file systems report a failed write only here.
Status close_checked(Fd file, std::string_view path);

/// A file for reading, its size known. ZERO_ERR_CKPT_INVALID if it is missing or not a regular
/// file.
struct InputFile {
  Fd fd;
  uint64_t bytes = 0;
};
Result<InputFile> open_input(const Fd& directory, const std::string& name, std::string_view path);

/// Fill `data` from `offset` on. ZERO_ERR_CKPT_INVALID if the file ends first.
Status read_fully(const Fd& file, std::string_view path, void* data, size_t bytes, uint64_t offset);
Status write_fully(const Fd& file, std::string_view path, const void* data, size_t bytes,
                   uint64_t offset);

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
