// SPDX-License-Identifier: Apache-2.0
#include "kernels/clamp.h"

namespace zero {
namespace {

template <class Real>
void clamp_all(Real* values, size_t count, Real factor, Real limit) {
  for (size_t i = 0; i < count; ++i) {
    const Real scaled = values[i] * factor;
    const Real below = scaled > limit ? limit : scaled;
    values[i] = below < -limit ? -limit : below;
  }
}

template <class Real>
void scale_all(Real* to, const Real* from, size_t count, Real factor) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

}  // namespace

void scale(float* to, const float* from, size_t count, float factor) {
  scale_all(to, from, count, factor);
}

void scale(double* to, const double* from, size_t count, double factor) {
  scale_all(to, from, count, factor);
}

void clamp_scaled(float* values, size_t count, float factor, float limit) {
  clamp_all(values, count, factor, limit);
}

void clamp_scaled(double* values, size_t count, double factor, double limit) {
  clamp_all(values, count, factor, limit);
}

}  // namespace zero
