// SPDX-License-Identifier: Apache-2.0
// What bf16 and fp16 mean, by the definition of their fields: a reference without bit tricks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace zero::test {

/// One of the two formats of 16 bits.
class HalfFormat {
 public:
  constexpr HalfFormat(int exponent_bits, int mantissa_bits)
      : exponent_bits_(exponent_bits), mantissa_bits_(mantissa_bits) {}

  uint32_t infinity() const { return ((1u << exponent_bits_) - 1) << mantissa_bits_; }
  bool is_nan(uint32_t bits) const { return (bits & 0x7FFF) > infinity(); }

  double value(uint32_t bits) const {
    const int exponent = static_cast<int>((bits & 0x7FFF) >> mantissa_bits_);
    const double mantissa = bits & ((1u << mantissa_bits_) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
    if ((bits & 0x7FFF) == infinity()) return sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, least() - mantissa_bits_);
    return sign * std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits_),
                             exponent - 1 + least() - mantissa_bits_);
  }
  /// Between a number that is not negative and the next one, which is no infinity here.
  double middle(uint32_t bits) const {
    const bool last = bits + 1 == infinity();
    return (value(bits) + (last ? std::ldexp(1.0, 2 - least()) : value(bits + 1))) / 2;
  }

  enum class Ties { to_even, away };
  /// The nearest number's bits; one NaN for all.
  uint16_t nearest(double number, Ties ties) const {
    if (std::isnan(number)) return static_cast<uint16_t>(infinity() | 1u << (mantissa_bits_ - 1));
    const uint32_t sign = std::signbit(number) ? 0x8000 : 0;
    if (std::isinf(number)) return static_cast<uint16_t>(sign | infinity());
    const int power = number == 0 ? least() : std::max(std::ilogb(number), least());
    const double units = std::ldexp(std::fabs(number), mantissa_bits_ - power);
    const double whole = ties == Ties::away ? std::round(units) : std::nearbyint(units);
    const uint32_t bits =
        (static_cast<uint32_t>(power - least()) << mantissa_bits_) + static_cast<uint32_t>(whole);
    return static_cast<uint16_t>(sign | std::min(bits, infinity()));
  }

 private:
  /// The exponent of the least number that is normal.
  int least() const { return 2 - (1 << (exponent_bits_ - 1)); }

  const int exponent_bits_, mantissa_bits_;
};

inline constexpr HalfFormat kBf16(8, 7), kF16(5, 10);

}  // namespace zero::test
