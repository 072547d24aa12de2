// SPDX-License-Identifier: Apache-2.0
// Compiles the loops for the machine of the library as a whole: the reference for all others.
#include <cmath>

#if defined(__aarch64__) && !defined(__clang__)
// Otherwise gcc would compile this as it compiles neon.cpp, and tests would compare it with itself.
// The pragma must precede the functions of elements, which become part of the loops. (The versions
// of clang have no common name for this, so with clang both tables use NEON.)
#pragma GCC target("+nosimd")
#endif

#include "kernels/tables.h"

namespace zero {
namespace scalar {
inline constexpr size_t kVectorBytes = 16;
#include "kernels/loops.h"
}  // namespace scalar

constinit const KernelTable kScalarKernels = scalar::table("scalar");

template <class Real>
double sum_powers(const Real* data, size_t count, double p) {
  scalar::Lanes norm;
  for (size_t i = 0; i < count; ++i) {
    const size_t lane = i % norm.kLanes;
    norm.lanes[lane / norm.kLanesInOne][lane % norm.kLanesInOne] +=
        std::pow(std::fabs(static_cast<double>(data[i])), p);
  }
  return norm.value();
}

template double sum_powers(const float* data, size_t count, double p);
template double sum_powers(const double* data, size_t count, double p);

}  // namespace zero
