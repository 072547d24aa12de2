// SPDX-License-Identifier: Apache-2.0
// What each instruction set's file gives to the dispatcher.
#pragma once

#include "kernels/kernels.h"

namespace zero {

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

namespace powers {

/// KernelTable::sum_powers and sum_powers_wide of every table: libm's pow is the same function on
/// each level.
double sum_powers(const float* data, size_t count, double p);
double sum_powers(const double* data, size_t count, double p);

}  // namespace powers
}  // namespace zero
