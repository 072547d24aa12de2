// SPDX-License-Identifier: Apache-2.0
// Rounds fp32 to bf16 at random: up with a probability of the distance to the number below, so that
// the expected value is the fp32 value. Rounded to nearest, an average that changes by less than
// half of the last place would never change. The random numbers depend only on the step, the slot
// and the position of the element, so that every distribution over ranks rounds alike.
#pragma once

#include <cstdint>

#include "kernels/narrow_element.h"

namespace zero {

/// Returns the key of the random bits of slot 0 in one step. The step is mixed by the finalizer of
/// splitmix64 (Steele, Lea and Flood, 2014).
ZERO_ELEMENT uint32_t rounding_key(int64_t step) {
  uint64_t mixed = static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
  return static_cast<uint32_t>(mixed >> 32);
}
/// Returns the key of another slot in the same step.
ZERO_ELEMENT uint32_t key_of_slot(uint32_t key, int slot) {
  return key + static_cast<uint32_t>(slot) * 0x9E3779B9;
}

/// Returns 16 random bits, by the 32-bit finalizer of MurmurHash3 (Appleby), whose last shift
/// changes only the lower half. Elements whose positions differ by 2^32 get the same bits.
ZERO_ELEMENT uint32_t rounding_bits(uint32_t key, uint32_t position) {
  uint32_t mixed = position ^ key;
  mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B;
  mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35;
  return mixed >> 16;
}

/// Rounds one number. Numbers of bf16 stay as they are, and finite numbers stay finite.
ZERO_ELEMENT uint16_t rounded_at_random(float from, uint32_t key, uint32_t position) {
  const uint32_t bits = word_of(from);
  const uint32_t magnitude = bits & kMagnitude;
  const uint32_t raised = magnitude + rounding_bits(key, position);
  const uint32_t finite = raised < kInfinityBits ? raised : magnitude;
  const uint32_t number = magnitude > kInfinityBits ? kQuietNan : finite | (bits ^ magnitude);
  return static_cast<uint16_t>(number >> 16);
}

}  // namespace zero
