// SPDX-License-Identifier: Apache-2.0
// Converts between numbers and their bits, on hosts and devices.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"

namespace zero {

template <class Real>
using WordOf = std::conditional_t<sizeof(Real) == sizeof(float), uint32_t, uint64_t>;

template <class Real>
ZERO_ELEMENT Real real_of(WordOf<Real> word) {
  Real real;
  __builtin_memcpy(&real, &word, sizeof real);
  return real;
}

template <class Real>
ZERO_ELEMENT WordOf<Real> word_of(Real real) {
  WordOf<Real> word;
  __builtin_memcpy(&word, &real, sizeof word);
  return word;
}

/// All bits except the sign.
template <class Real>
inline constexpr WordOf<Real> kMagnitudeWord = static_cast<WordOf<Real>>(~WordOf<Real>{0} >> 1);
template <class Real>
inline constexpr WordOf<Real> kInfinityWord = sizeof(Real) == sizeof(float)
                                                  ? WordOf<Real>{0x7F800000}
                                                  : static_cast<WordOf<Real>>(0x7FF0000000000000);

template <class Real>
ZERO_ELEMENT WordOf<Real> magnitude_word(Real value) {
  return word_of(value) & kMagnitudeWord<Real>;
}

template <class Real>
ZERO_ELEMENT bool is_nonfinite(Real value) {
  return (word_of(value) & kInfinityWord<Real>) == kInfinityWord<Real>;
}

/// Returns the number of bits of a word without its leading zeros.
ZERO_ELEMENT unsigned width_of(uint64_t word) {
#ifdef __CUDA_ARCH__
  return 64 - static_cast<unsigned>(__clzll(static_cast<long long>(word)));
#else
  return static_cast<unsigned>(std::bit_width(word));
#endif
}

}  // namespace zero
