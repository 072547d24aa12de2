// SPDX-License-Identifier: Apache-2.0
#include "device/host_pointers.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

#include "base/os.h"

namespace zero {
namespace {

// Of the driver's interface, which stands in every build: with and without CUDA.
using GetAttribute = int (*)(void* value, int attribute, uint64_t pointer);
constexpr int kMemoryType = 2, kIsManaged = 8;
constexpr unsigned kOfDevice = 2;

constexpr int64_t kLookMs = 20;  // a look takes longer than the question

/// nullptr while no driver is loaded. It is never loaded from here.
GetAttribute loaded_driver() {
  static std::atomic<GetAttribute> found{nullptr};
  static std::atomic<int64_t> looked_ms{INT64_MIN / 2};
  if (const GetAttribute known = found.load()) return known;
  const int64_t now = now_ms();
  if (now - looked_ms.load() < kLookMs) return nullptr;
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
  // An error says that the driver does not know it, as of memory of malloc.
  if (ask(&type, kMemoryType, pointer) != 0 || type != kOfDevice) return false;
  return ask(&managed, kIsManaged, pointer) != 0 || managed == 0;
}

}  // namespace zero
