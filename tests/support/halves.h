// SPDX-License-Identifier: Apache-2.0
// What bf16 and fp16 mean, by the definition of their fields: a reference without bit tricks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace zero::test {

/// One of the two formats of 16 bits.
class HalfFormat {
 public:
  HalfFormat(int exponent_bits, int mantissa_bits)
      : exponent_bits_(exponent_bits), mantissa_bits_(mantissa_bits) {
    for (uint32_t bits = 0; bits < infinity(); ++bits) magnitudes_.push_back(value(bits));
    magnitudes_.push_back(std::ldexp(1.0, (1 << (exponent_bits - 1))));  // infinity, when rounding
    for (size_t i = 0; i + 1 < magnitudes_.size(); ++i) {
      middles_.push_back((magnitudes_[i] + magnitudes_[i + 1]) / 2);
    }
  }

  uint32_t infinity() const { return ((1u << exponent_bits_) - 1) << mantissa_bits_; }
  bool is_nan(uint32_t bits) const { return (bits & 0x7FFF) > infinity(); }
  const std::vector<double>& middles() const { return middles_; }

  double value(uint32_t bits) const {
    const int exponent = static_cast<int>((bits & 0x7FFF) >> mantissa_bits_);
    const double mantissa = bits & ((1u << mantissa_bits_) - 1);
    const int bias = (1 << (exponent_bits_ - 1)) - 1;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
    if ((bits & 0x7FFF) == infinity()) return sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits_);
    return sign *
           std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits_), exponent - bias - mantissa_bits_);
  }

  enum class Ties { to_even, away };
  /// The nearest number's bits; not for NaN. Quick where the values come in order.
  uint16_t nearest(float number, Ties ties) {
    const double magnitude = std::fabs(static_cast<double>(number));
    const auto above = [&](size_t place) {  // is it above the number at `place`?
      const double middle = middles_[place];
      return magnitude > middle || (magnitude == middle && (ties == Ties::away || place % 2 == 1));
    };
    const bool near =
        (hint_ == 0 || above(hint_ - 1)) && (hint_ + 1 >= middles_.size() || !above(hint_ + 1));
    if (!near) {
      const auto found = std::lower_bound(middles_.begin(), middles_.end(), magnitude);
      hint_ = static_cast<size_t>(found - middles_.begin());
    }
    while (hint_ < middles_.size() && above(hint_)) ++hint_;
    return static_cast<uint16_t>(hint_ | (std::signbit(number) ? 0x8000u : 0u));
  }

 private:
  const int exponent_bits_, mantissa_bits_;
  std::vector<double> magnitudes_;  // of the bits 0, 1, ... up to infinity's
  std::vector<double> middles_;     // between number i and i + 1
  size_t hint_ = 0;
};

inline HalfFormat bf16_format() { return {8, 7}; }
inline HalfFormat f16_format() { return {5, 10}; }

}  // namespace zero::test
