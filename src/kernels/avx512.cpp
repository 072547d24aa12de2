// SPDX-License-Identifier: Apache-2.0
// Compiles the loops for AVX-512, at its full width.
#include "kernels/tables.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

namespace zero::avx512 {
inline constexpr size_t kVectorBytes = 64;
#include "kernels/loops.h"
}  // namespace zero::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace zero {
constinit const KernelTable kAvx512Kernels = avx512::table("avx512");
}  // namespace zero

#endif
