// SPDX-License-Identifier: Apache-2.0
// What one thread of a launch does to sum gradients over ranks.
#pragma once

#include "kernels/groups.h"
#include "kernels/launches.h"

namespace zero::launch {

/// How the sources of a launch become sums.
struct Summing {
  DType from;
  DType rounded;  // none: they are not
  float divisor, inverse;
  uint32_t width;
  const std::byte* const* sources;  // of the run or segment at hand
};

ZERO_ELEMENT Summing summing(const Format& format, uint32_t width, const std::byte* const* sources,
                             uint32_t pointers) {
  return {format.grad,        format.rounded, format.divisor,
          1 / format.divisor, width,          sources + static_cast<size_t>(pointers) * width};
}

/// Only sums of fp32 are rounded and divided.
template <class Real>
ZERO_ELEMENT Real rounded_source(Real value, const Summing& how) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    if (how.rounded == DType::none) return value;
    return rounded(how.divisor != 1 ? value * how.inverse : value, how.rounded);
  } else {
    return value;
  }
}

/// What was divided to be rounded, as it was before.
template <class Real>
ZERO_ELEMENT Real whole_source(Real value, const Summing& how) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    return how.divisor != 1 ? value * how.divisor : value;
  } else {
    return value;
  }
}

template <class Real>
ZERO_ELEMENT void load_source(Bits& bits, const Summing& how, uint32_t number, const Group& group) {
  const std::byte* const source = how.sources[number];
  bits = {};
  if (source != nullptr) load_group<Real, Use::soon>(bits, source, how.from, group);
}

/// The sums of a group, in the order of sources, the first of which is `bits`. `adds`: behind what
/// stands in `sum`.
template <class Real>
ZERO_ELEMENT void sum_group(Real* sum, const Bits& bits, const Summing& how, const Group& group,
                            bool adds = false) {
  constexpr int n = kGroup<Real>;
  Real values[n];
  read_group(values, bits, how.from);
  for (int j = 0; j < n; j++) {
    const Real first = rounded_source(values[j], how);
    sum[j] = adds ? sum[j] + whole_source(first, how) : first;
  }
  for (uint32_t i = 1; i < how.width; i++) {
    Bits more;
    load_source<Real>(more, how, i, group);
    read_group(values, more, how.from);
    for (int j = 0; j < n; j++) {
      const Real next = rounded_source(values[j], how);
      sum[j] = sum[j] + (adds ? whole_source(next, how) : next);
    }
  }
  if (adds) return;
  for (int j = 0; j < n; j++) sum[j] = whole_source(sum[j], how);
}

template <class Real>
inline constexpr WordOf<Real> kInfinityWord = sizeof(Real) == sizeof(float)
                                                  ? WordOf<Real>{0x7F800000}
                                                  : static_cast<WordOf<Real>>(0x7FF0000000000000);

template <class Real>
ZERO_ELEMENT WordOf<Real> magnitude_word(Real value) {
  return word_of(value) & ~(WordOf<Real>{1} << (8 * sizeof(Real) - 1));
}

template <class Real>
ZERO_ELEMENT bool is_nonfinite(Real value) {
  return magnitude_word(value) >= kInfinityWord<Real>;
}

}  // namespace zero::launch
