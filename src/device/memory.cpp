// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "base/container.h"
#include "base/os.h"

namespace zero {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

Status out_of_memory(size_t bytes, std::string_view what) {
  return Status(ZERO_ERR_MEMORY,
                text("no memory for ", bytes, " bytes of ", what, ": ", errno_text(errno)));
}

// Parts of the driver's interface, declared here because builds without CUDA need them.
using GetAttribute = int (*)(void* value, int attribute, uint64_t pointer);
constexpr int kMemoryType = 2, kIsManaged = 8;
constexpr unsigned kOfDevice = 2;

/// Populates zeroed memory. Checks before each part whether the rest is available, because
/// exceeding a container's limit gets processes killed. Other ranks allocate at the same time, so a
/// part is at most 1/64 of what is left.
Status populate(std::byte* data, size_t bytes, std::string_view what) {
  constexpr uint64_t kRanks = 64;
  constexpr uint64_t kLeast = 64 * 1024;  // the largest page size, at which parts are aligned
  for (size_t at = 0; at < bytes;) {
    uint64_t part = bytes - at;
    if (bytes >= kHugePage) {
      const uint64_t left = ZERO_TRY(check_available(part, what));
      part = std::min(part, std::max(left / kRanks / kLeast * kLeast, kLeast));
    }
    if (os().madvise(data + at, part, MADV_POPULATE_WRITE) != 0) {
      if (errno != EINVAL) return out_of_memory(bytes, what);
      std::memset(data + at, 0, part);  // for kernels before 5.14
    }
    at += part;
  }
  return Status();
}

// Minimum time between searches for a driver, because a search costs more than the query.
constexpr int64_t kDriverLookMs = 20;

/// Returns the driver's function, or nullptr while no driver is loaded. Never loads a driver.
GetAttribute loaded_driver() {
  static std::atomic<GetAttribute> found{nullptr};
  static std::atomic<int64_t> looked_ms{INT64_MIN / 2};
  if (const GetAttribute known = found.load()) return known;
  const int64_t now = now_ms();
  if (now - looked_ms.load() < kDriverLookMs) return nullptr;
  looked_ms.store(now);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  found.store(reinterpret_cast<GetAttribute>(dlsym(driver, "cuPointerGetAttribute")));
  return found.load();
}

}  // namespace

bool is_gpu_memory(const void* data) {
  const GetAttribute ask = loaded_driver();
  if (ask == nullptr || data == nullptr) return false;
  const auto pointer = reinterpret_cast<uint64_t>(data);
  unsigned type = 0, managed = 0;
  // An error means that the driver does not know the memory, such as memory of malloc.
  if (ask(&type, kMemoryType, pointer) != 0 || type != kOfDevice) return false;
  return ask(&managed, kIsManaged, pointer) != 0 || managed == 0;
}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

HostMemory::~HostMemory() {
  if (mapping_ != nullptr) os().munmap(mapping_, mapping_bytes_);
}

Result<HostMemory> HostMemory::map(size_t bytes, std::string_view what, Children children) {
  HostMemory memory;
  if (bytes == 0) return memory;
  const bool huge = bytes >= kHugePage;
  const auto padded = checked_add(bytes, huge ? 2 * kHugePage : 0);
  if (!padded) {
    errno = ENOMEM;
    return out_of_memory(bytes, what);
  }
  memory.mapping_bytes_ = *padded;
  void* mapping = os().mmap(nullptr, memory.mapping_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return out_of_memory(bytes, what);
  if (children == Children::do_not)
    os().madvise(mapping, memory.mapping_bytes_, MADV_DONTFORK);  // a failure costs only memory
  memory.mapping_ = static_cast<std::byte*>(mapping);
  const auto start = reinterpret_cast<uintptr_t>(mapping);
  memory.data_ = memory.mapping_ + (huge ? round_up(start, uintptr_t{kHugePage}) - start : 0);
  memory.bytes_ = bytes;
  return memory;
}

Result<HostMemory> HostMemory::allocate(size_t bytes, std::string_view what, Children children) {
  HostMemory memory = ZERO_TRY(map(bytes, what, children));
  if (bytes >= kHugePage)
    os().madvise(memory.data_, bytes, MADV_HUGEPAGE);  // a failure costs only speed
  ZERO_TRY(populate(memory.data_, bytes, what));
  return memory;
}

Result<HostMemory> HostMemory::reserve(size_t bytes, std::string_view what) {
  (void)ZERO_TRY(check_available(bytes, what));
  return map(bytes, what, Children::do_not);
}

}  // namespace zero
