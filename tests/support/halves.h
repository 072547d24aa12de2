// SPDX-License-Identifier: Apache-2.0
// Reference arithmetic of bf16 and fp16, from the definition of their fields, without bit tricks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace zero::test {

/// One of the two 16-bit formats.
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
  /// Returns the midpoint of a nonnegative number and the next one. In place of infinity, it uses
  /// the value that would follow.
  double middle(uint32_t bits) const {
    const bool last = bits + 1 == infinity();
    return (value(bits) + (last ? std::ldexp(1.0, 2 - least()) : value(bits + 1))) / 2;
  }

  enum class Ties { to_even, away };
  /// Returns the bits of the nearest number. All NaNs have the same bits.
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
  /// Returns the exponent of the smallest normal number.
  int least() const { return 2 - (1 << (exponent_bits_ - 1)); }

  const int exponent_bits_, mantissa_bits_;
};

inline constexpr HalfFormat kBf16(8, 7), kF16(5, 10);

}  // namespace zero::test
