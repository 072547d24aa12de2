// SPDX-License-Identifier: Apache-2.0
// Numbers that cost as much as real ones: never zero, never denormal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bench {

/// Fills with numbers whose magnitude is uniform between scale / 2 and scale, with either sign.
inline void random_fill(float* data, size_t count, float scale, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du;
  for (size_t i = 0; i < count; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint32_t bits = 0x3F000000u | static_cast<uint32_t>(state >> 32 & 0x807FFFFFu);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    data[i] = value * scale;
  }
}

}  // namespace bench
