// SPDX-License-Identifier: Apache-2.0
// A library with the name of the CUDA driver. It reports all memory in `fake_gpu_memory` as GPU
// memory.
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT char fake_gpu_memory[65536];
// Aligned to the largest page, so that a test can forbid host access to it.
alignas(65536) char fake_gpu_memory[65536];
EXPORT int fake_is_managed;
int fake_is_managed = 0;

EXPORT int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  const auto begin = reinterpret_cast<uint64_t>(&fake_gpu_memory);
  if (pointer < begin || pointer >= begin + sizeof fake_gpu_memory) return 1;
  const unsigned told = attribute == 2 ? 2u : attribute == 8 ? unsigned(fake_is_managed) : 0;
  *static_cast<unsigned*>(value) = told;
  return 0;
}
