// SPDX-License-Identifier: Apache-2.0
#include "comm/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/checked.h"
#include "base/file_size_signal.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A memfd has the same inode number in every process and through every descriptor.
using Key = std::tuple<dev_t, ino_t, Access>;
using Registry = std::map<Key, std::weak_ptr<Mapping>>;

std::mutex registry_mutex;
Registry* registry = nullptr;  // never freed

Status no_memory(size_t bytes, int error) {
  return Status(ZERO_ERR_MEMORY,
                text("no memory for ", bytes, " bytes shared by ranks: ", errno_text(error),
                     error == EFBIG ? ": the file size limit (ulimit -f) also applies to it" : ""));
}

/// Reserves an address range of `bytes` that starts at a huge page, with an inaccessible mapping.
std::byte* reserve_aligned(size_t bytes) {
  const auto padded = checked_add(bytes, kHugePage);
  if (!padded) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const range =
      os().mmap(nullptr, *padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(range);
  const uintptr_t aligned = round_up<uintptr_t>(start, kHugePage);
  const uintptr_t end =
      round_up<uintptr_t>(aligned + bytes, static_cast<uintptr_t>(os().getpagesize()));
  if (aligned != start) os().munmap(range, aligned - start);
  if (end != start + *padded) os().munmap(reinterpret_cast<void*>(end), start + *padded - end);
  return reinterpret_cast<std::byte*>(aligned);
}

Result<std::byte*> map_new(int fd, size_t bytes, Access access) {
  const int protection = access == Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  std::byte* place = nullptr;
  if (bytes >= kHugePage) {
    place = reserve_aligned(bytes);
    if (place == nullptr) return no_memory(bytes, errno);
  }
  void* const mapped =
      os().mmap(place, bytes, protection, MAP_SHARED | (place ? MAP_FIXED : 0), fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    if (place) os().munmap(place, bytes);
    return no_memory(bytes, error);
  }
  if (bytes >= kHugePage) os().madvise(mapped, bytes, MADV_HUGEPAGE);  // only a hint
  if (access != Access::shown && os().madvise(mapped, bytes, MADV_DONTFORK) != 0) {
    const int error = errno;
    os().munmap(mapped, bytes);
    return Status(ZERO_ERR_SYSTEM,
                  text("hiding shared memory from child processes: ", errno_text(error)));
  }
  return static_cast<std::byte*>(mapped);
}

/// Converts populated memory to huge pages, even where shmem_enabled is "never", as by default. A
/// step streams 10 % faster from them. Kernels before 6.1 reject the call, which is harmless.
void collapse(std::byte* data, size_t first, size_t end) {
  constexpr int kMadvCollapse = 25;
  first = round_up(first, kHugePage);
  end = end / kHugePage * kHugePage;
  if (first < end) os().madvise(data + first, end - first, kMadvCollapse);
}

}  // namespace

Mapping::~Mapping() {
  {
    const std::lock_guard lock(registry_mutex);
    if (registry)
      std::erase_if(*registry, [](const auto& entry) { return entry.second.expired(); });
  }
  if (data_ != nullptr) os().munmap(data_, bytes_);
}

Result<Fd> create_segment(const char* name, size_t bytes) {
  Fd fd = Fd::open([&] { return os().memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!fd.valid())
    return Status(ZERO_ERR_SYSTEM,
                  text("creating shared memory '", name, "': ", errno_text(errno)));
  if (bytes > static_cast<size_t>(INT64_MAX)) return no_memory(bytes, ENOMEM);
  const FileSizeSignal held;
  if (os().ftruncate(fd.get(), static_cast<int64_t>(bytes)) != 0) return no_memory(bytes, errno);
  if (os().fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0)
    return Status(ZERO_ERR_SYSTEM, text("sealing shared memory '", name, "': ", errno_text(errno)));
  return fd;
}

Status check_segment(int fd, size_t bytes) {
  struct stat info;
  if (os().fstat(fd, &info) != 0)
    return Status(ZERO_ERR_COMM, text("inspecting a received descriptor: ", errno_text(errno)));
  const int seals = os().fcntl(fd, F_GET_SEALS, 0);
  if (seals < 0) return Status(ZERO_ERR_COMM, "a received descriptor is not shared memory");
  if ((seals & kSizeSeals) != kSizeSeals)
    return Status(ZERO_ERR_COMM, "received shared memory can still shrink or grow");
  if (static_cast<uint64_t>(info.st_size) != bytes)
    return Status(ZERO_ERR_COMM,
                  text("received shared memory has ", info.st_size, " bytes instead of ", bytes));
  return {};
}

Result<std::shared_ptr<Mapping>> map_segment(int fd, size_t bytes, Access access) {
  struct stat info;
  if (os().fstat(fd, &info) != 0)
    return Status(ZERO_ERR_SYSTEM, text("inspecting shared memory: ", errno_text(errno)));
  if (static_cast<uint64_t>(info.st_size) != bytes)
    return Status(ZERO_ERR_INTERNAL,
                  text("shared memory has ", info.st_size, " bytes, not ", bytes));
  // Allocated before the lock, which its destructor takes, and before anything is mapped.
  auto mapping = std::make_shared<Mapping>();
  const std::lock_guard lock(registry_mutex);
  if (registry == nullptr) registry = new Registry;
  std::weak_ptr<Mapping>& place = (*registry)[Key(info.st_dev, info.st_ino, access)];
  if (std::shared_ptr<Mapping> standing = place.lock()) return standing;
  mapping->hold(ZERO_TRY(map_new(fd, bytes, access)), bytes);
  place = mapping;
  return mapping;
}

Status reserve(int fd, const Mapping& mapping, size_t offset, size_t bytes) {
  const size_t page = static_cast<size_t>(os().getpagesize());
  const size_t first = offset / page * page;
  const size_t end = std::min(round_up(offset + bytes, page), round_up(mapping.bytes(), page));
  if (first >= end) return {};
  if (os().madvise(mapping.data() + first, end - first, MADV_POPULATE_WRITE) == 0) {
    collapse(mapping.data(), first, end);
    return {};
  }
  if (const int error = errno; error != EINVAL)
    return no_memory(bytes, error == EFAULT ? ENOMEM : error);
  const size_t last = std::min(end, mapping.bytes());  // the segment may not end at a page boundary
  const int allocated = uninterrupted([&] {            // for Linux before 5.14
    return os().fallocate(fd, 0, static_cast<int64_t>(first), static_cast<int64_t>(last - first));
  });
  return allocated == 0 ? Status() : no_memory(bytes, errno);
}

size_t mapped_segments() {
  const std::lock_guard lock(registry_mutex);
  if (registry == nullptr) return 0;
  return static_cast<size_t>(
      std::count_if(registry->begin(), registry->end(),
                    [](const auto& entry) { return !entry.second.expired(); }));
}

}  // namespace zero::local
