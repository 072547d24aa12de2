// SPDX-License-Identifier: Apache-2.0
// Finds the kernel tables that this machine can run.
#include "kernels/tables.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zero {
namespace {

#if defined(__x86_64__)
/// Returns the extensions of the processor, as bits of leaf 7 of cpuid, or 0 unless the operating
/// system saves all the registers in `states`. (__builtin_cpu_supports denies all extensions where
/// zig links its own runtime.)
unsigned extensions(unsigned states) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  unsigned saved = 0, high = 0;
  __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if ((saved & states) != states) return 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 ? b : 0;
}
#endif

constexpr Isa kCompiled[] = {
    Isa::scalar,
#if defined(__x86_64__)
    Isa::avx2,
    Isa::avx512,
#elif defined(__aarch64__)
    Isa::neon,
#endif
};

/// Returns true if this machine can run `isa`, which is always so if `isa` needs no extension.
bool machine_has(Isa isa) {
#if defined(__x86_64__)
  constexpr unsigned kVectors = 0x06, kWideVectors = 0xe6;  // XMM and YMM; also ZMM and masks
  constexpr unsigned kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  if (isa == Isa::avx2) return (extensions(kVectors) & bit_AVX2) != 0;
  if (isa == Isa::avx512) return (extensions(kWideVectors) & kAvx512) == kAvx512;
#endif
  static_cast<void>(isa);
  return true;
}

}  // namespace

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return kAvx2Kernels;
  if (isa == Isa::avx512) return kAvx512Kernels;
#elif defined(__aarch64__)
  if (isa == Isa::neon) return kNeonKernels;
#endif
  static_cast<void>(isa);
  return kScalarKernels;
}

std::span<const Isa> compiled_isas() { return kCompiled; }

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  std::copy_if(std::begin(kCompiled), std::end(kCompiled), std::back_inserter(isas), machine_has);
  return isas;
}

Isa best_isa() {
  // The result is kept because every tile asks for it, and cpuid exits a virtual machine.
  static const Isa best = *std::find_if(std::rbegin(kCompiled), std::rend(kCompiled), machine_has);
  return best;
}

}  // namespace zero
