// SPDX-License-Identifier: Apache-2.0
// Turns sums into gradients: scales them and clips them by value.
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/host_device.h"

namespace zero {

/// Sets to[i] = from[i] * factor.
template <class Real>
void scale(Real* to, const Real* from, size_t count, std::type_identity_t<Real> factor) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

/// Returns value * factor, limited to [-limit, limit]; NaN stays NaN.
template <class Real>
ZERO_ELEMENT Real clamped(Real value, Real factor, Real limit) {
  const Real scaled = value * factor;
  const Real below = scaled > limit ? limit : scaled;
  return below < -limit ? -limit : below;
}

template <class Real>
void clamp_scaled(Real* values, size_t count, std::type_identity_t<Real> factor,
                  std::type_identity_t<Real> limit) {
  for (size_t i = 0; i < count; ++i) values[i] = clamped(values[i], factor, limit);
}

}  // namespace zero
