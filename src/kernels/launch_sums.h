// SPDX-License-Identifier: Apache-2.0
// Sums gradients over ranks in one thread of a launch.
#pragma once

#include "kernels/groups.h"
#include "kernels/launches.h"

namespace zero::launch {

/// The number of sources from which a thread loads a group before it waits for any of them. More
/// would not fit into its registers, of which fp64 takes twice as many.
template <class Real>
inline constexpr uint32_t kTogether = sizeof(Real) == sizeof(float) ? 4 : 2;

/// How a launch turns sources into sums.
template <uint32_t together>
struct Summing {
  DType from;
  DType rounded;  // none: sources are not rounded
  float divisor, inverse;
  uint32_t width;
  const std::byte* const* sources;   // of the current run or segment
  const std::byte* first[together];  // copies of the first ones; null if there are fewer
};

template <uint32_t together>
ZERO_ELEMENT void find_sources(const std::byte* (&found)[together], const Summing<together>& how,
                               uint32_t at) {
  for (uint32_t i = 0; i < together; i++)
    found[i] = at + i < how.width ? how.sources[at + i] : nullptr;
}

template <uint32_t together>
ZERO_ELEMENT Summing<together> summing(const Format& format, uint32_t width,
                                       const std::byte* const* sources, uint32_t pointers) {
  Summing<together> how = {.from = format.grad,
                           .rounded = format.rounded,
                           .divisor = format.divisor,
                           .inverse = 1 / format.divisor,
                           .width = width,
                           .sources = sources + static_cast<size_t>(pointers) * width,
                           .first = {}};
  find_sources(how.first, how, 0);
  return how;
}

/// Only sums of fp32 are rounded and divided.
template <class Real>
inline constexpr bool kRounds = sizeof(Real) == sizeof(float);

template <class Real, uint32_t together>
ZERO_ELEMENT Real rounded_source(Real value, const Summing<together>& how) {
  if (!kRounds<Real> || how.rounded == DType::none) return value;
  return rounded(static_cast<float>(how.divisor != 1 ? value * how.inverse : value), how.rounded);
}

/// Undoes the division that preceded rounding.
template <class Real, uint32_t together>
ZERO_ELEMENT Real whole_source(Real value, const Summing<together>& how) {
  return kRounds<Real> && how.divisor != 1 ? value * how.divisor : value;
}

template <class Real, uint32_t together>
ZERO_ELEMENT void load_sources(Bits (&bits)[together], const std::byte* const (&from)[together],
                               const Summing<together>& how, const Group& group) {
  with_word_of(how.from, [&](auto word) {
    for (uint32_t i = 0; i < together; i++) {
      bits[i] = {};
      if (from[i] != nullptr) load_group<Real, decltype(word), Use::soon>(bits[i], from[i], group);
    }
  });
}

/// Moves source `number` to the first place, because a thread cannot index registers with a
/// variable.
template <class Real, uint32_t together>
ZERO_ELEMENT void turn_to_source(Bits (&bits)[together], const Summing<together>& how,
                                 uint32_t number, const Group& group) {
  if (number % together != 0) {
    for (uint32_t i = 1; i < together; i++) bits[i - 1] = bits[i];
    return;
  }
  const std::byte* from[together];
  find_sources(from, how, number);
  load_sources<Real>(bits, from, how, group);
}

/// Sums a group over its sources, in their order. `bits` has the first sources. If `adds`, they are
/// added to the values in `sum`.
template <class Real, uint32_t together>
ZERO_ELEMENT void sum_group(Real* sum, Bits (&bits)[together], const Summing<together>& how,
                            const Group& group, bool adds = false) {
  constexpr int n = kGroup<Real>;
  for (uint32_t i = 0; i < how.width; i++) {
    if (i != 0) turn_to_source<Real>(bits, how, i, group);
    Real values[n];
    read_group(values, bits[0], how.from, group);
    for (int j = 0; j < n; j++) {
      const Real next = rounded_source(values[j], how);
      sum[j] = i == 0 && !adds ? next : sum[j] + (adds ? whole_source(next, how) : next);
    }
  }
  if (adds) return;
  for (int j = 0; j < n; j++) sum[j] = whole_source(sum[j], how);
}

}  // namespace zero::launch
