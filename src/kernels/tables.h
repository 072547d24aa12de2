// SPDX-License-Identifier: Apache-2.0
// The tables that the instruction sets' files give to the dispatcher, and the headers that their
// loops need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/bits.h"
#include "kernels/kernels.h"
#include "kernels/narrow_element.h"
#include "rules/list.h"

namespace zero {

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
#endif

/// Arithmetic::sum_powers of every table: libm's pow is the same function on each level.
template <class Real>
double sum_powers(const Real* data, size_t count, double p);

}  // namespace zero
