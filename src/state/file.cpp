// SPDX-License-Identifier: Apache-2.0
#include "state/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/refusals.h"

namespace zero {
namespace {

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/// The directory `name` in `parent`, made if it is missing.
Result<Fd> enter_or_make(int parent, const std::string& name, std::string_view path) {
  Fd fd = open_at(parent, name, kOpenDirectory);
  if (fd.valid()) return fd;
  if (errno != ENOENT) return io_error(path, "open", errno);
  if (uninterrupted([&] { return os().mkdirat(parent, name.c_str(), kDirectoryMode); }) != 0 &&
      errno != EEXIST) {
    return io_error(path, "mkdir", errno);
  }
  // Its name is an entry of the parent, so it is the parent that has to be synced.
  Fd above = ZERO_TRY(open_directory(parent, ".", path, true));
  ZERO_TRY(sync(above, path));
  return open_directory(parent, name, path, true);
}

sigset_t only_file_size() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

Status io_error(std::string_view path, std::string_view operation, int error) {
  return {ZERO_ERR_CKPT_IO, text("'", path, "': ", operation, ": ", errno_text(error))};
}

bool is_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name[0] == '.' || !is_utf8(name)) return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

Result<SplitPath> split_path(std::string_view path) {
  const auto bad = [whole = path](const char* why) {
    return bad_argument("the checkpoint directory '", whole, "' ", why);
  };
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return bad("has no name");
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  if (name == "." || name == "..") return bad("ends with '.' or '..': give it a name");
  if (slash == path.npos) return SplitPath{".", std::string(name)};
  return SplitPath{slash == 0 ? "/" : std::string(path.substr(0, slash)), std::string(name)};
}

Fd open_at(int directory, const std::string& name, int flags, unsigned mode) {
  return Fd(uninterrupted([&] { return os().openat(directory, name.c_str(), flags, mode); }));
}

Result<Fd> open_directory(int directory, const std::string& name, std::string_view path,
                          bool follow_link) {
  const int flags = kOpenDirectory | (follow_link ? 0 : O_NOFOLLOW);
  Fd fd = open_at(directory, name, flags);
  if (!fd.valid()) return io_error(path, "open", errno);
  return fd;
}

Result<std::vector<std::string>> list_directory(const Fd& directory, std::string_view path) {
  // A descriptor of its own: reading moves a position that others would share.
  Fd fd = ZERO_TRY(open_directory(directory.get(), ".", path, true));
  const auto close = [](DIR* open) { os().closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> stream(
      uninterrupted([&] { return os().fdopendir(fd.get()); }), close);
  if (!stream) return io_error(path, "opendir", errno);
  fd.release();
  std::vector<std::string> names;
  int error = 0;
  for (;;) {
    const dirent* const entry = uninterrupted([&] {
      errno = 0;
      return os().readdir(stream.get());
    });
    if (!entry) {
      error = errno;
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (error != 0) return io_error(path, "readdir", error);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Fd> make_directories(const std::string& path) {
  Fd fd = open_at(AT_FDCWD, path, kOpenDirectory);
  if (fd.valid()) return fd;
  if (errno != ENOENT) return io_error(path, "open", errno);
  Fd at = ZERO_TRY(open_directory(AT_FDCWD, path[0] == '/' ? "/" : ".", path, true));
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin)
      at = ZERO_TRY(enter_or_make(at.get(), path.substr(begin, end - begin), path.substr(0, end)));
    begin = end + 1;
  }
  return at;
}

int stat_entry(const Fd& directory, const std::string& name, struct stat& info) {
  return uninterrupted(
      [&] { return os().fstatat(directory.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW); });
}

std::optional<bool> is_same_directory(int parent, const std::string& name, const Fd& directory,
                                      bool follow_link) {
  const int flags = follow_link ? 0 : AT_SYMLINK_NOFOLLOW;
  struct stat named, held;
  if (uninterrupted([&] { return os().fstatat(parent, name.c_str(), &named, flags); }) != 0 ||
      uninterrupted([&] { return os().fstat(directory.get(), &held); }) != 0)
    return std::nullopt;
  return named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

Status sync(const Fd& file, std::string_view path) {
  // EINTR alone is repeated: it says that nothing was synced. After any other failure the kernel
  // may have dropped the pages, and a second fsync would lie.
  if (uninterrupted([&] { return os().fsync(file.get()); }) == 0) return {};
  return io_error(path, "fsync", errno);
}

Status close_checked(Fd file, std::string_view path) {
  // Linux gives the descriptor up whatever close answers, so EINTR is not repeated and not a
  // failure.
  if (os().close(file.release()) == 0 || errno == EINTR) return {};
  return io_error(path, "close", errno);
}

Result<InputFile> open_input(const Fd& directory, const std::string& name, std::string_view path) {
  // O_NONBLOCK: opening a pipe that somebody put there must not wait for its writer.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  InputFile file;
  file.fd = open_at(directory.get(), name, kFlags);
  if (!file.fd.valid()) {
    if (errno == ENOENT) return invalid("'", path, "': is missing");
    if (errno == ELOOP) return invalid("'", path, "': is a symbolic link, but must be a file");
    if (errno == ENXIO) return invalid("'", path, "': is not a regular file");
    return io_error(path, "open", errno);
  }
  struct stat info;
  if (uninterrupted([&] { return os().fstat(file.fd.get(), &info); }) != 0)
    return io_error(path, "fstat", errno);
  if (!S_ISREG(info.st_mode)) return invalid("'", path, "': is not a regular file");
  file.bytes = static_cast<uint64_t>(info.st_size);
  return file;
}

Status read_fully(const Fd& file, std::string_view path, void* data, size_t bytes,
                  uint64_t offset) {
  auto* to = static_cast<std::byte*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = uninterrupted([&] {
      return os().pread(file.get(), to + done, bytes - done, static_cast<int64_t>(offset + done));
    });
    if (got < 0) return io_error(path, "pread", errno);
    if (got == 0)
      return invalid("'", path, "': ends at byte ", offset + done, ", before byte ",
                     offset + bytes);
    done += static_cast<size_t>(got);
  }
  return {};
}

Status write_fully(const Fd& file, std::string_view path, const void* data, size_t bytes,
                   uint64_t offset) {
  const auto* from = static_cast<const std::byte*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put = uninterrupted([&] {
      return os().pwrite(file.get(), from + done, bytes - done,
                         static_cast<int64_t>(offset + done));
    });
    if (put <= 0) return io_error(path, "pwrite", put < 0 ? errno : EIO);
    done += static_cast<size_t>(put);
  }
  return {};
}

FileSizeSignal::FileSizeSignal() {
  if (is_pending()) return;  // the caller holds it back already, and this one is his
  const sigset_t set = only_file_size();
  sigset_t before;
  held_ = pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && sigismember(&before, SIGXFSZ) == 0;
}

FileSizeSignal::~FileSizeSignal() {
  if (!held_) return;
  const sigset_t set = only_file_size();
  const timespec now{};
  while (is_pending() && sigtimedwait(&set, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace zero
