// SPDX-License-Identifier: Apache-2.0
#include "state/file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/refusals.h"

namespace zero {
namespace {

/// Opens the directory `name` in `parent`, and makes it if it is missing.
Result<Directory> enter_or_make(const Directory& parent, const std::string& name) {
  Directory entered = enter(parent, name, Links::followed);
  if (entered.fd.valid()) return entered;
  if (errno != ENOENT) return io_error(entered.path, "open", errno);
  if (make_directory(parent, name) != 0 && errno != EEXIST)
    return io_error(entered.path, "mkdir", errno);
  ZERO_TRY(sync(parent));  // the name is an entry of it
  return open_directory(parent, name, Links::followed);
}

/// Makes writes go through the page cache. Returns false if they already do, or if that fails.
bool write_through_cache(const OpenFile& file) {
  const int flags = os().fcntl(file.fd.get(), F_GETFL, 0);
  return flags != -1 && (flags & O_DIRECT) != 0 &&
         os().fcntl(file.fd.get(), F_SETFL, flags & ~O_DIRECT) == 0;
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

std::string joined(std::string_view directory, std::string_view name) {
  if (directory == ".") return std::string(name);
  return text(directory, directory == "/" ? "" : "/", name);
}

Directory start_of_paths() { return {{".", Fd(AT_FDCWD)}}; }

Fd open_at(const Directory& directory, const std::string& name, int flags, unsigned mode) {
  return Fd::open([&] {
    return uninterrupted(
        [&] { return os().openat(directory.fd.get(), name.c_str(), flags, mode); });
  });
}

Directory enter(const Directory& parent, const std::string& name, Links links) {
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (links == Links::refused ? O_NOFOLLOW : 0);
  return {{parent.path_of(name), open_at(parent, name, flags)}};
}

Result<Directory> open_directory(const Directory& parent, const std::string& name, Links links) {
  Directory entered = enter(parent, name, links);
  if (!entered.fd.valid()) return io_error(entered.path, "open", errno);
  return entered;
}

int make_directory(const Directory& parent, const std::string& name) {
  constexpr unsigned kMode = 0777;  // the umask applies, as in mkdir -p
  return uninterrupted([&] { return os().mkdirat(parent.fd.get(), name.c_str(), kMode); });
}

Result<std::vector<std::string>> list_directory(const Directory& directory) {
  // Reading moves the descriptor's position, so this opens another descriptor.
  Directory own = enter(directory, ".", Links::followed);
  if (!own.fd.valid()) return io_error(directory.path, "open", errno);
  const auto close = [&](DIR* open) { own.fd.close([&](int) { return os().closedir(open); }); };
  const std::unique_ptr<DIR, decltype(close)> stream(
      uninterrupted([&] { return os().fdopendir(own.fd.get()); }), close);
  if (!stream) return io_error(directory.path, "opendir", errno);
  std::vector<std::string> names;
  for (;;) {
    const dirent* const entry = uninterrupted([&] {
      errno = 0;
      return os().readdir(stream.get());
    });
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return io_error(directory.path, "readdir", errno);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Directory> make_directories(const std::string& path) {
  const Directory start = start_of_paths();
  Directory at = enter(start, path, Links::followed);
  if (at.fd.valid()) return at;
  if (errno != ENOENT) return io_error(path, "open", errno);
  at = ZERO_TRY(open_directory(start, path[0] == '/' ? "/" : ".", Links::followed));
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) at = ZERO_TRY(enter_or_make(at, path.substr(begin, end - begin)));
    begin = end + 1;
  }
  return at;
}

int stat_entry(const Directory& directory, const std::string& name, struct stat& info) {
  return uninterrupted(
      [&] { return os().fstatat(directory.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW); });
}

std::optional<bool> is_same_directory(const Directory& parent, const std::string& name,
                                      const Directory& directory, Links links) {
  const int flags = links == Links::followed ? 0 : AT_SYMLINK_NOFOLLOW;
  struct stat named, held;
  if (uninterrupted([&] { return os().fstatat(parent.fd.get(), name.c_str(), &named, flags); }) !=
          0 ||
      uninterrupted([&] { return os().fstat(directory.fd.get(), &held); }) != 0)
    return std::nullopt;
  return named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

Status sync(const OpenFile& file) {
  // Only EINTR is retried, because it means that nothing was synced. After any other failure the
  // kernel may have dropped the pages, and a second fsync would wrongly succeed.
  if (uninterrupted([&] { return os().fsync(file.fd.get()); }) == 0) return {};
  return io_error(file.path, "fsync", errno);
}

Status close_checked(OpenFile file) {
  // Linux releases the descriptor whatever close returns, so EINTR is not a failure and is not
  // retried.
  if (file.fd.close(os().close) == 0 || errno == EINTR) return {};
  return io_error(file.path, "close", errno);
}

Result<InputFile> open_input(const Directory& directory, const std::string& name, Links links) {
  // Without O_NONBLOCK, opening a pipe that somebody put there would wait for its writer.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int no_link = links == Links::refused ? O_NOFOLLOW : 0;
  InputFile file{{directory.path_of(name), open_at(directory, name, kFlags | no_link)}};
  const auto bad = [&](const char* what) { return invalid("'", file.path, "': is ", what); };
  if (!file.fd.valid()) {
    if (errno == ENOENT) return bad("missing");
    if (errno == ELOOP && no_link != 0) return bad("a symbolic link, but must be a file");
    if (errno == ENXIO) return bad("not a regular file");
    return io_error(file.path, "open", errno);
  }
  struct stat info;
  if (uninterrupted([&] { return os().fstat(file.fd.get(), &info); }) != 0)
    return io_error(file.path, "fstat", errno);
  if (!S_ISREG(info.st_mode)) return bad("not a regular file");
  file.bytes = static_cast<uint64_t>(info.st_size);
  return file;
}

Status read_fully(const OpenFile& file, std::span<std::byte> data, uint64_t offset) {
  const uint64_t end = offset + data.size();
  while (offset < end) {
    const ssize_t got = uninterrupted([&] {
      return os().pread(file.fd.get(), data.data(), data.size(), static_cast<int64_t>(offset));
    });
    if (got < 0) return io_error(file.path, "pread", errno);
    if (got == 0) return invalid("'", file.path, "': ends at byte ", offset, ", before byte ", end);
    offset += static_cast<size_t>(got);
    data = data.subspan(static_cast<size_t>(got));
  }
  return {};
}

Status write_fully(const OpenFile& file, std::span<const std::byte> data, uint64_t offset) {
  bool may_go_through_cache = true;
  while (!data.empty()) {
    const ssize_t put = uninterrupted([&] {
      return os().pwrite(file.fd.get(), data.data(), data.size(), static_cast<int64_t>(offset));
    });
    if (put > 0) {
      offset += static_cast<size_t>(put);
      data = data.subspan(static_cast<size_t>(put));
      continue;
    }
    const int error = put < 0 ? errno : EIO;
    const bool again = std::exchange(may_go_through_cache, false) &&
                       (error == EINVAL || error == EOPNOTSUPP) && write_through_cache(file);
    if (!again) return io_error(file.path, "pwrite", error);
  }
  return {};
}

void write_past_cache(const OpenFile& file) {
  (void)os().fcntl(file.fd.get(), F_SETFL, O_DIRECT);  // best effort
}

}  // namespace zero
