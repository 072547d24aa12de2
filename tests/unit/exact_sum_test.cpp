// SPDX-License-Identifier: Apache-2.0
// ExactSum against a model with numbers of single bits, which never rounds. A result is right if
// the exact sum lies between the midpoints to its neighbours, or on a midpoint and the result is
// even.
#include "kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace zero {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();

/// A binary number, whose bit i has the value 2^(i - 1074).
class Bits {
 public:
  void add(double value) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
    for (int place = exponent - 53 + 1074; mantissa != 0; ++place, mantissa >>= 1) {
      if (mantissa & 1) set_with_carry(static_cast<size_t>(place));
    }
  }
  void set_with_carry(size_t place) {
    for (; bits_[place]; ++place) bits_[place] = false;
    bits_[place] = true;
  }
  Bits doubled() const {
    Bits twice;
    twice.bits_ = bits_ << 1;
    return twice;
  }
  /// Returns -1, 0 or 1 if this is less than, equal to or greater than `other`.
  int compare(const Bits& other) const {
    for (size_t i = bits_.size(); i-- > 0;) {
      if (bits_[i] != other.bits_[i]) return bits_[i] ? 1 : -1;
    }
    return 0;
  }

 private:
  std::bitset<2200> bits_;
};

constexpr size_t kTwoTo1024 = 1024 + 1074;

bool is_nearest(const Bits& sum, double rounded) {
  const Bits twice = sum.doubled();
  const bool even = rounded == kInfinity || (std::bit_cast<uint64_t>(rounded) & 1) == 0;
  Bits above;  // twice the midpoint to the next double
  if (rounded != kInfinity) {
    above.add(rounded);
    const double next = std::nextafter(rounded, kInfinity);
    next == kInfinity ? above.set_with_carry(kTwoTo1024) : above.add(next);
    const int order = twice.compare(above);
    if (order > 0 || (order == 0 && !even)) return false;
  }
  if (rounded == 0) return true;
  Bits below;
  rounded == kInfinity ? below.set_with_carry(kTwoTo1024) : below.add(rounded);
  below.add(std::nextafter(rounded, 0));
  const int order = twice.compare(below);
  return order > 0 || (order == 0 && even);
}

double exact_sum(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

void expect_nearest(const std::vector<double>& values) {
  Bits model;
  for (const double value : values) model.add(value);
  const double sum = exact_sum(values);
  EXPECT_TRUE(is_nearest(model, sum))
      << "of " << values.size() << " values from " << values[0] << ": " << std::hexfloat << sum;
}

/// Returns positive doubles whose exponent field is uniform in [low, high].
std::vector<double> random_values(std::mt19937_64& random, size_t count, uint64_t low,
                                  uint64_t high) {
  std::vector<double> values(count);
  for (double& value : values) {
    const uint64_t exponent = low + random() % (high - low + 1);
    // Few set bits make ties likely, and many make carries long.
    const uint64_t kind = random() % 3;
    uint64_t mantissa = random();
    if (kind == 0) mantissa = uint64_t{1} << (random() % 52);
    if (kind == 1) mantissa = ~(uint64_t{1} << (random() % 52));
    value = std::bit_cast<double>(exponent << 52 | (mantissa & ((uint64_t{1} << 52) - 1)));
  }
  return values;
}

TEST(ExactSum, is_the_nearest_double_to_the_exact_sum) {
  std::mt19937_64 random(1);
  const struct {
    uint64_t low, high;
  } ranges[] = {{0, 0},       {0, 1},       {0, 60},      {0, 2046},
                {1000, 1060}, {1023, 1023}, {2040, 2046}, {2046, 2046}};
  for (const auto& range : ranges) {
    for (int round = 0; round < 60; ++round) {
      expect_nearest(random_values(random, 1 + random() % 20, range.low, range.high));
    }
    expect_nearest(random_values(random, 3000, range.low, range.high));
  }
}

TEST(ExactSum, two_values_sum_as_ieee_addition_does) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t low = random() % 2040;
    const std::vector<double> pair =
        random_values(random, 2, low, std::min<uint64_t>(low + 60, 2046));
    EXPECT_EQ(exact_sum(pair), pair[0] + pair[1]) << std::hexfloat << pair[0] << " " << pair[1];
  }
}

TEST(ExactSum, neither_order_nor_grouping_matters) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> values = random_values(random, 500, 900, 1200);
    const double expected = exact_sum(values);
    std::shuffle(values.begin(), values.end(), random);
    std::vector<ExactSum> ranks(1 + random() % 9);
    for (const double value : values) ranks[random() % ranks.size()].add(value);
    ExactSum total;
    for (const ExactSum& rank : ranks) {
      ExactSum received;
      std::memcpy(static_cast<void*>(&received), &rank, sizeof received);
      total.add(received);
    }
    EXPECT_EQ(total.value(), expected);
  }
}

TEST(ExactSum, ties_go_to_even_unless_anything_lies_below) {
  const double ulp = std::ldexp(1.0, -52);
  EXPECT_EQ(exact_sum({1, ulp / 2}), 1);
  EXPECT_EQ(exact_sum({1 + ulp, ulp / 2}), 1 + 2 * ulp);
  EXPECT_EQ(exact_sum({1, ulp / 2, kSmallest}), 1 + ulp);
  EXPECT_EQ(exact_sum({1, ulp / 4, ulp / 4}), 1);
  EXPECT_EQ(exact_sum({1, ulp / 4, ulp / 4, ulp / 4}), 1 + ulp);
  EXPECT_EQ(exact_sum({2 - ulp, ulp / 2}), 2);  // rounding carries into the exponent
}

TEST(ExactSum, small_values_are_not_lost_beside_large_ones) {
  ExactSum sum;
  sum.add(1e300);
  for (int i = 0; i < 1 << 20; ++i) sum.add(kSmallest);
  sum.add(1e300);
  EXPECT_EQ(sum.value(), 2e300);
  EXPECT_EQ(exact_sum(std::vector<double>(1 << 20, kSmallest)), std::ldexp(kSmallest, 20));
}

TEST(ExactSum, overflow_is_infinity_from_the_midpoint_on) {
  const double half_ulp = std::ldexp(1.0, 970);
  EXPECT_EQ(exact_sum({kLargest, half_ulp / 2}), kLargest);
  EXPECT_EQ(exact_sum({kLargest, std::nextafter(half_ulp, 0)}), kLargest);
  EXPECT_EQ(exact_sum({kLargest, half_ulp}), kInfinity);
  EXPECT_EQ(exact_sum(std::vector<double>(100'000, kLargest)), kInfinity);
}

TEST(ExactSum, a_sum_doubles_with_itself_up_to_overflow) {
  ExactSum sum;
  sum.add(1.5);
  for (int power = 1; power <= 1023; ++power) {
    sum.add(ExactSum(sum));
    EXPECT_EQ(sum.value(), std::ldexp(1.5, power));
  }
  for (int i = 0; i < 20; ++i) sum.add(ExactSum(sum));
  EXPECT_EQ(sum.value(), kInfinity);
}

TEST(ExactSum, infinity_and_nan_survive_and_nan_wins) {
  ExactSum infinite;
  infinite.add(1);
  infinite.add(kInfinity);
  infinite.add(2);
  EXPECT_EQ(infinite.value(), kInfinity);
  ExactSum total;
  total.add(3);
  total.add(infinite);
  EXPECT_EQ(total.value(), kInfinity);
  ExactSum nan;
  nan.add(std::numeric_limits<double>::quiet_NaN());
  total.add(nan);
  total.add(kInfinity);
  EXPECT_TRUE(std::isnan(total.value()));
}

TEST(ExactSum, of_nothing_or_zeros_is_positive_zero) {
  EXPECT_EQ(std::bit_cast<uint64_t>(exact_sum({})), 0u);
  EXPECT_EQ(std::bit_cast<uint64_t>(exact_sum({0.0, -0.0})), 0u);
}

}  // namespace
}  // namespace zero
