// SPDX-License-Identifier: Apache-2.0
// Compiles the loops for NEON, which every ARM64 machine has.
#include "kernels/tables.h"

#if defined(__aarch64__)

namespace zero {
namespace neon {
inline constexpr size_t kVectorBytes = 16;
#include "kernels/loops.h"
}  // namespace neon

constinit const KernelTable kNeonKernels = neon::table("neon");

}  // namespace zero

#endif
