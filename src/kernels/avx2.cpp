// SPDX-License-Identifier: Apache-2.0
// Compiles the loops for AVX2, but without fma, because contraction would change results.
#include "kernels/tables.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace zero::avx2 {
inline constexpr size_t kVectorBytes = 32;
#include "kernels/loops.h"
}  // namespace zero::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace zero {
constinit const KernelTable kAvx2Kernels = avx2::table("avx2");
}  // namespace zero

#endif
