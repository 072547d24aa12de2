// SPDX-License-Identifier: Apache-2.0
// Sums that become gradients: scaled, clipped by value.
#pragma once

#include <cstddef>

namespace zero {

/// to[i] = from[i] * factor
void scale(float* to, const float* from, size_t count, float factor);
void scale(double* to, const double* from, size_t count, double factor);

/// values[i] = values[i] * factor, but not above `limit` nor below its negative; NaN stays NaN.
void clamp_scaled(float* values, size_t count, float factor, float limit);
void clamp_scaled(double* values, size_t count, double factor, double limit);

}  // namespace zero
