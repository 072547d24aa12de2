// SPDX-License-Identifier: Apache-2.0
#include "stored.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "zero.h"

namespace zero::test {
namespace {

/// An IEEE format of 16 bits: digits of the significand, with the leading one, and exponents of the
/// smallest and the largest power of two among its normal numbers.
struct Format {
  int digits, least, most;
};

Format format_of(int32_t dtype) {
  if (dtype == ZERO_BFLOAT16) return {8, -126, 127};
  if (dtype == ZERO_FLOAT16) return {11, -14, 15};
  std::abort();
}

double nearest(double value, bool ties_away) {
  return ties_away ? std::round(value) : std::nearbyint(value);
}

/// The bits of a number that the format has.
uint16_t bits_of(const Format& format, double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int fraction_bits = format.digits - 1;
  const auto special = static_cast<uint16_t>((format.most - format.least + 2) << fraction_bits);
  if (std::isnan(value)) return static_cast<uint16_t>(special | 1u << (fraction_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | special);
  int exponent = 0;
  const double magnitude = std::fabs(value);
  std::frexp(magnitude, &exponent);
  exponent -= 1;  // magnitude = 1.xxx * 2^exponent
  if (magnitude == 0 || exponent < format.least) {
    const double units = std::ldexp(magnitude, fraction_bits - format.least);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(units));
  }
  const double units = std::ldexp(magnitude, fraction_bits - exponent);
  const int biased = exponent - format.least + 1;
  const auto fraction = static_cast<unsigned>(units) - (1u << fraction_bits);
  return static_cast<uint16_t>(sign | static_cast<unsigned>(biased) << fraction_bits | fraction);
}

double value_of(const Format& format, uint16_t bits) {
  const int fraction_bits = format.digits - 1;
  const int biased = (bits & 0x7FFF) >> fraction_bits;
  const double fraction = bits & ((1 << fraction_bits) - 1);
  double magnitude = 0;
  if (biased == format.most - format.least + 2) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (biased == 0) {
    magnitude = std::ldexp(fraction, format.least - fraction_bits);
  } else {
    magnitude =
        std::ldexp(fraction + (1 << fraction_bits), biased - 1 + format.least - fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Stored>
void append(std::vector<std::byte>& out, Stored value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

}  // namespace

size_t element_bytes(int32_t dtype) {
  return dtype == ZERO_FLOAT64 ? 8 : dtype == ZERO_FLOAT32 ? 4 : 2;
}

double rounded(int32_t dtype, double value, bool ties_away) {
  if (dtype == ZERO_FLOAT64 || !std::isfinite(value)) return value;
  if (dtype == ZERO_FLOAT32) return static_cast<float>(value);
  const Format format = format_of(dtype);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - 1, format.least) - (format.digits - 1);
  const double result = std::ldexp(nearest(std::ldexp(value, -unit), ties_away), unit);
  return std::fabs(result) < std::ldexp(1, format.most + 1)
             ? result
             : std::copysign(std::numeric_limits<double>::infinity(), value);
}

std::vector<std::byte> encode(int32_t dtype, const std::vector<double>& values) {
  std::vector<std::byte> out;
  out.reserve(values.size() * element_bytes(dtype));
  for (const double value : values) {
    if (dtype == ZERO_FLOAT64) {
      append(out, value);
    } else if (dtype == ZERO_FLOAT32) {
      append(out, static_cast<float>(value));
    } else {
      append(out, bits_of(format_of(dtype), rounded(dtype, value)));
    }
  }
  return out;
}

std::vector<double> decode(int32_t dtype, const std::byte* stored, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; i++) {
    const std::byte* const at = stored + i * element_bytes(dtype);
    if (dtype == ZERO_FLOAT64) {
      std::memcpy(&out[i], at, sizeof(double));
    } else if (dtype == ZERO_FLOAT32) {
      float value;
      std::memcpy(&value, at, sizeof value);
      out[i] = value;
    } else {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      out[i] = value_of(format_of(dtype), bits);
    }
  }
  return out;
}

void unify_nans(int32_t dtype, std::vector<std::byte>& stored) {
  const size_t size = element_bytes(dtype);
  const std::vector<std::byte> nan = encode(dtype, {std::numeric_limits<double>::quiet_NaN()});
  const std::vector<double> values = decode(dtype, stored.data(), stored.size() / size);
  for (size_t i = 0; i < values.size(); i++)
    if (std::isnan(values[i]))
      std::copy(nan.begin(), nan.end(), stored.begin() + static_cast<ptrdiff_t>(i * size));
}

}  // namespace zero::test
