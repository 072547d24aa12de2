// SPDX-License-Identifier: Apache-2.0
#include "support/failing_mallocs.h"

#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace zero::test {
namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
};
Range library;
std::atomic<int64_t> calls{0};
std::atomic<int64_t> fails_at{0};
std::atomic<Fails> failing{Fails::never};

int find_library(dl_phdr_info* info, size_t, void*) {
  if (std::strstr(info->dlpi_name, "libzero.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    library.begin = info->dlpi_addr + part.p_vaddr;
    library.end = library.begin + part.p_memsz;
  }
  return 1;
}

bool refuses(const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (failing.load(std::memory_order_relaxed) == Fails::never || at < library.begin ||
      at >= library.end)
    return false;
  const int64_t number = ++calls;
  const bool refused =
      failing == Fails::once ? number == fails_at : number >= fails_at && fails_at > 0;
  if (refused) errno = ENOMEM;
  return refused;
}

}  // namespace

void fail_malloc(int64_t at, Fails fails) {
  if (library.begin == 0) dl_iterate_phdr(find_library, nullptr);
  calls = 0;
  fails_at = at;
  failing = fails;
}

int64_t mend_mallocs() {
  failing = Fails::never;
  return calls;
}

}  // namespace zero::test

// The functions of glibc, under the names that it provides for such programs.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  if (zero::test::refuses(__builtin_return_address(0))) return nullptr;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  if (zero::test::refuses(__builtin_return_address(0))) return nullptr;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  if (zero::test::refuses(__builtin_return_address(0))) return nullptr;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  if (zero::test::refuses(__builtin_return_address(0))) return nullptr;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (zero::test::refuses(__builtin_return_address(0))) return ENOMEM;
  void* const memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
}
