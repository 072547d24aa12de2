// SPDX-License-Identifier: Apache-2.0
// Converts one 16-bit number to fp32 and back in integer arithmetic, because hardware conversions
// flush denormals or are missing.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "kernels/bits.h"

namespace zero {

inline constexpr int32_t kMagnitude = 0x7FFFFFFF;
inline constexpr int32_t kInfinityBits = 0x7F800000;
inline constexpr int32_t kQuietNan = 0x7FC00000;

// These are signed, because vectors compare signed words with fewer instructions.
ZERO_ELEMENT int32_t bits_of(float value) { return static_cast<int32_t>(word_of(value)); }
ZERO_ELEMENT float float_of(int32_t bits) { return real_of<float>(static_cast<uint32_t>(bits)); }

struct Bf16 {
  uint16_t bits;

  // Every NaN becomes the same NaN, because instruction sets produce different ones.
  ZERO_ELEMENT static Bf16 of(float from) {
    const int32_t bits = bits_of(from);
    const uint32_t word = static_cast<uint32_t>(bits);
    const uint32_t rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16;
    const bool is_nan = (bits & kMagnitude) > kInfinityBits;
    return {static_cast<uint16_t>(is_nan ? kQuietNan >> 16 : rounded)};
  }
  ZERO_ELEMENT float value() const {
    return float_of(static_cast<int32_t>(static_cast<uint32_t>(bits) << 16));
  }
};

struct F16 {
  uint16_t bits;

  // Adding 0.5, whose last place is 2^-24, rounds to denormals of fp16. Values up to half of the
  // smallest denormal become zero, so fp32 denormals need not reach the addition.
  ZERO_ELEMENT static F16 of(float from) {
    const int32_t bits = bits_of(from);
    const int32_t magnitude = bits & kMagnitude;
    const int32_t moved = ((magnitude + 0x0FFF + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
    const int32_t normal = moved < 0x7C00 ? moved : 0x7C00;
    const float reached = float_of(magnitude > (102 << 23) ? magnitude : 0);
    const int32_t denormal = bits_of(reached + 0.5f) - bits_of(0.5f);
    const int32_t number = (magnitude < (113 << 23) ? denormal : normal) | (bits >> 16 & 0x8000);
    return {static_cast<uint16_t>(magnitude > kInfinityBits ? 0x7E00 : number)};
  }
  // The exponents of fp16 are 112 below those of fp32. A denormal counts units of 2^-24, which are
  // normal numbers in fp32.
  ZERO_ELEMENT float value() const {
    const int32_t magnitude = bits & 0x7FFF;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const int32_t moved = (magnitude << 13) + (112 << 23);
    const int32_t normal = moved + (magnitude >= 0x7C00 ? 112 << 23 : 0);
    const int32_t denormal = bits_of(static_cast<float>(magnitude) * 0x1p-24f);
    const int32_t number = magnitude < 0x0400 ? denormal : normal;
    return float_of(static_cast<int32_t>(static_cast<uint32_t>(number) | sign));
  }
};

// Split and join a bf16 parameter and the 16 bits that its fp32 master weight has beyond it. The
// parameter is the master weight rounded half away from zero, so it is one above its upper half
// exactly if the lower half, as a signed number, is negative. Ties to even would lose this
// property.

ZERO_ELEMENT float joined(uint16_t param, uint16_t remainder) {
  const uint32_t upper = uint32_t{param} << 16;
  return float_of(static_cast<int32_t>(upper + static_cast<uint32_t>(int16_t(remainder))));
}

// A NaN is replaced first, because rounding it up could make it a number.
ZERO_ELEMENT void split(uint16_t& param, uint16_t& remainder, float master) {
  const int32_t any = bits_of(master);
  const int32_t bits = (any & kMagnitude) > kInfinityBits ? kQuietNan : any;
  param = static_cast<uint16_t>((static_cast<uint32_t>(bits) + 0x8000) >> 16);
  remainder = static_cast<uint16_t>(bits);
}

}  // namespace zero
