// SPDX-License-Identifier: Apache-2.0
// The loops for the machine that the whole library is compiled for: the reference of all others.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/narrow_element.h"
#include "kernels/tables.h"
#include "rules/list.h"

namespace zero {
namespace scalar {
inline constexpr size_t kVectorBytes = 16;
#include "kernels/loops.h"
#include "kernels/narrow_types.h"
#include "kernels/reductions.h"
#include "kernels/updates.h"
}  // namespace scalar

constinit const KernelTable kScalarKernels = scalar::table("scalar");

namespace {

template <class Real>
double powers_in_lanes(const Real* data, size_t count, double p) {
  scalar::Lanes norm;
  for (size_t i = 0; i < count; ++i) {
    const size_t lane = i % norm.kLanes;
    norm.lanes[lane / norm.kLanesInOne][lane % norm.kLanesInOne] +=
        std::pow(std::fabs(static_cast<double>(data[i])), p);
  }
  return norm.value();
}

}  // namespace

double powers::sum_powers(const float* data, size_t count, double p) {
  return powers_in_lanes(data, count, p);
}
double powers::sum_powers(const double* data, size_t count, double p) {
  return powers_in_lanes(data, count, p);
}

}  // namespace zero
