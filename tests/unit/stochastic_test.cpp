// SPDX-License-Identifier: Apache-2.0
// Rounding to bf16 at random, which state in bf16 uses.
#include "kernels/stochastic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace zero {
namespace {

float value(uint16_t bits) { return Bf16{bits}.value(); }

/// Returns the mean of a number that is rounded at many positions.
double mean_of(float number, int64_t step, int slot) {
  constexpr uint32_t kCount = 1 << 20;
  double sum = 0;
  for (uint32_t i = 0; i < kCount; i++)
    sum += static_cast<double>(
        value(rounded_at_random(number, key_of_slot(rounding_key(step), slot), i)));
  return sum / kCount;
}

TEST(Stochastic, the_mean_is_the_number) {
  // Between 1 and 1 + 2^-7, 4 standard deviations of the mean are below 2^-7 * 2^-9.
  for (const float number : {1.0009765625f, 1.00390625f, -1.0068359375f, 1.0000152587890625f}) {
    for (const int64_t step : {int64_t{1}, int64_t{1000}, int64_t{1} << 40})
      EXPECT_NEAR(mean_of(number, step, 1), static_cast<double>(number), 0x1p-16) << number;
  }
}

TEST(Stochastic, a_number_becomes_one_of_its_neighbours) {
  for (uint32_t i = 0; i < 1000; i++) {
    const float number = std::ldexp(1.0f + static_cast<float>(i) * 0x1p-20f, int(i) % 200 - 100);
    const uint32_t below = word_of(number) >> 16;
    const uint32_t rounded = rounded_at_random(number, key_of_slot(rounding_key(7), 0), i);
    EXPECT_TRUE(rounded == below || rounded == below + 1) << number;
    EXPECT_EQ(rounded_at_random(-number, key_of_slot(rounding_key(7), 0), i), (rounded | 0x8000));
  }
}

TEST(Stochastic, numbers_of_bf16_infinities_and_nans_stay) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const float number = value(static_cast<uint16_t>(bits));
    const uint16_t rounded = rounded_at_random(number, key_of_slot(rounding_key(3), 2), bits * 77);
    EXPECT_EQ(rounded, std::isnan(number) ? 0x7FC0 : bits);
  }
}

TEST(Stochastic, finite_numbers_stay_finite) {
  for (uint32_t i = 0; i < 1000; i++) {
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(rounded_at_random(largest, key_of_slot(rounding_key(1), 0), i), 0x7F7F);
    EXPECT_EQ(rounded_at_random(-largest, key_of_slot(rounding_key(1), 0), i), 0xFF7F);
  }
}

/// Returns the correlation of the directions in which a number is rounded at positions [0, count)
/// by two keys, of which the second is used `distance` positions further.
double correlation(uint32_t a, uint32_t b, uint32_t distance) {
  constexpr uint32_t kCount = 1 << 16;
  const float middle = 1.00390625f;
  double sum = 0;
  for (uint32_t i = 0; i < kCount; i++) {
    const bool up = value(rounded_at_random(middle, a, i)) > 1;
    const bool also = value(rounded_at_random(middle, b, i + distance)) > 1;
    sum += up == also ? 1 : -1;
  }
  return sum / kCount;
}

TEST(Stochastic, neighbours_steps_and_slots_are_independent) {
  const uint32_t key = key_of_slot(rounding_key(5), 0);
  for (const uint32_t distance : {1, 2, 16, 1024}) {
    EXPECT_NEAR(correlation(key, key, distance), 0, 0.02) << distance;
  }
  for (const int64_t step : {6, 7, 1005}) {
    EXPECT_NEAR(correlation(key, key_of_slot(rounding_key(step), 0), 0), 0, 0.02) << step;
  }
  for (const int slot : {1, 2, 7}) {
    EXPECT_NEAR(correlation(key, key_of_slot(rounding_key(5), slot), 0), 0, 0.02) << slot;
  }
}

TEST(Stochastic, every_instruction_set_gives_the_same_bits) {
  std::vector<float> from;
  for (uint32_t i = 0; i < 3000; i++)
    from.push_back(real_of<float>(i * 0x9E3779B9u));  // any bits, also of NaNs
  for (const uint32_t first : {0u, 5u, 0xFFFFFF00u}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{31}, size_t{33}, from.size()}) {
      for (const Isa isa : available_isas()) {
        std::vector<uint16_t> to(from.size(), 0xABCD);
        kernel_table(isa).round_at_random(to.data(), from.data(), count,
                                          key_of_slot(rounding_key(9), 1), first);
        for (size_t i = 0; i < from.size(); i++) {
          const auto at = first + static_cast<uint32_t>(i);
          const uint16_t expected =
              i < count ? rounded_at_random(from[i], key_of_slot(rounding_key(9), 1), at)
                        : uint16_t{0xABCD};
          ASSERT_EQ(to[i], expected) << i << " of " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zero
