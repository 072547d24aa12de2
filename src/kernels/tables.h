// SPDX-License-Identifier: Apache-2.0
// Declares the tables that the files of the instruction sets define, and includes the headers that
// their loops need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/bits.h"
#include "kernels/kernels.h"
#include "kernels/narrow_element.h"
#include "kernels/stochastic.h"
#include "rules/list.h"

namespace zero {

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
#endif

/// Arithmetic::sum_powers of every table. All share it, because libm's pow is the same function.
template <class Real>
double sum_powers(const Real* data, size_t count, double p);

}  // namespace zero
