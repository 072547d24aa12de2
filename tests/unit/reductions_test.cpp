// SPDX-License-Identifier: Apache-2.0
// Sums over ranks from every floating type to both types of sums, against plain loops.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/float_environment.h"
#include "kernels/kernels.h"
#include "support/halves.h"

namespace zero {
namespace {

constexpr Norm kNorms[] = {Norm::none, Norm::abs, Norm::squares, Norm::largest};
constexpr size_t kMargin = 16;  // elements on either side of an array

uint64_t bits(double value) { return std::isnan(value) ? ~0ull : std::bit_cast<uint64_t>(value); }
uint32_t bits(float value) {
  return std::isnan(value) ? 0x7FC00000 : std::bit_cast<uint32_t>(value);
}

/// Elements of a type, with their values; begins `offset` elements behind a 64-byte boundary.
struct Input {
  std::vector<unsigned char> bytes;
  unsigned char* first;
  std::vector<double> values;
};

enum class Kind { ordinary, any, special };

Input random_input(std::mt19937_64& random, DType type, Kind kind, size_t count, size_t offset) {
  static const test::HalfFormat bf16 = test::bf16_format(), f16 = test::f16_format();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t size = size_of(type);
  Input input;
  input.bytes.resize((count + offset) * size + 64);
  const auto address = reinterpret_cast<uintptr_t>(input.bytes.data());
  input.first = input.bytes.data() + (64 - address % 64) % 64 + offset * size;
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < count; ++i) {
    unsigned char* const place = input.first + i * size;
    double value = normal(random);
    if (kind == Kind::special && random() % 16 == 0) {
      const double large = type == DType::f64 ? 1.7e308 : 3.4e38;
      const double specials[] = {kInfinity, -kInfinity, std::nan(""), -0.0, 0.0, large, -large};
      value = specials[random() % std::size(specials)];
    } else if (kind == Kind::any) {
      value = std::ldexp(value, static_cast<int>(random() % 280) - 150);
    }
    if (type == DType::f64) {
      std::memcpy(place, &value, size);
    } else if (type == DType::f32) {
      const auto narrow = static_cast<float>(value);
      std::memcpy(place, &narrow, size);
      value = narrow;
    } else {  // any bits but those of a NaN or infinity, unless these are asked for
      const test::HalfFormat& format = type == DType::bf16 ? bf16 : f16;
      auto half = static_cast<uint16_t>(random());
      if (kind == Kind::ordinary && type == DType::bf16) half = (half & 0x8FFF) | 0x3000;
      if (kind != Kind::special && (half & 0x7FFF) >= format.infinity()) half &= 0xBFFF;
      std::memcpy(place, &half, size);
      value = format.value(half);
    }
    input.values.push_back(value);
  }
  return input;
}

template <class Real>
struct Expected {
  std::vector<Real> sums;
  uint64_t nonfinite = 0;
  double norms[kNormCount] = {};
};

template <class Real>
Expected<Real> expect(const std::vector<Input>& in, size_t count) {
  Expected<Real> made;
  double abs[8] = {}, squares[8] = {}, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    volatile Real sum = static_cast<Real>(in[0].values[i]);
    for (size_t r = 1; r < in.size(); ++r) sum = sum + static_cast<Real>(in[r].values[i]);
    const double wide = sum;
    made.sums.push_back(static_cast<Real>(wide));
    made.nonfinite += !std::isfinite(wide);
    abs[i % 8] += std::fabs(wide);
    volatile double square = wide * wide;
    squares[i % 8] += square;
    if (!(std::fabs(wide) <= largest) && !std::isnan(largest)) largest = std::fabs(wide);
  }
  const auto all = [](const double* lane) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  };
  made.norms[static_cast<int>(Norm::abs)] = all(abs);
  made.norms[static_cast<int>(Norm::squares)] = all(squares);
  made.norms[static_cast<int>(Norm::largest)] = largest;
  return made;
}

/// isa, type of the sums, type of the inputs
class EveryReduction : public ::testing::TestWithParam<std::tuple<Isa, DType, DType>> {
 protected:
  template <class Real>
  void check(const std::vector<Input>& in, size_t count, size_t offset) {
    const auto [isa, sum, from] = GetParam();
    const Expected<Real> expected = expect<Real>(in, count);
    std::vector<const void*> pointers;
    for (const Input& input : in) pointers.push_back(input.first);
    for (const Norm norm : kNorms) {
      std::vector<Real> out(count + 2 * kMargin, Real{77});
      Real* const first = out.data() + kMargin + offset;
      const Reduction made = kernel_table(isa).reduction(sum, from, norm)(
          first, pointers.data(), static_cast<int>(in.size()), count);
      ASSERT_EQ(made.nonfinite, expected.nonfinite);
      ASSERT_EQ(bits(made.norm), bits(expected.norms[static_cast<int>(norm)]))
          << static_cast<int>(norm) << ": " << made.norm;
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(bits(first[i]), bits(expected.sums[i])) << i;
      for (size_t i = 0; i < out.size(); ++i) {
        const bool inside = &out[i] >= first && &out[i] < first + count;
        if (!inside) {
          ASSERT_EQ(out[i], Real{77});
        }
      }
    }
  }
  std::mt19937_64 random_{31};
};

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

INSTANTIATE_TEST_SUITE_P(Types, EveryReduction,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Values(DType::f32, DType::f64),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& made) {
                           return std::string(isa_name(std::get<0>(made.param))) + "_" +
                                  dtype_name(std::get<1>(made.param)) + "_from_" +
                                  dtype_name(std::get<2>(made.param));
                         });

TEST_P(EveryReduction, sums_counts_and_norms_have_the_bits_of_plain_loops) {
  const auto [isa, sum, from] = GetParam();
  const FloatEnvironment environment;
  for (const Kind kind : {Kind::ordinary, Kind::any, Kind::special}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const size_t count : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65, 127, 1000, 1025}) {
        const size_t offset = random_() % 8;
        std::vector<Input> in;
        for (int r = 0; r < ranks; ++r) {
          in.push_back(random_input(random_, from, kind, count, random_() % 16));
        }
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", ranks " +
                     std::to_string(ranks) + ", count " + std::to_string(count));
        sum == DType::f64 ? check<double>(in, count, offset) : check<float>(in, count, offset);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryReduction, sums_of_the_inputs_own_type_may_replace_any_of_them) {
  const auto [isa, sum, from] = GetParam();
  if (sum != from) return;
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t place = 0; place < ranks; ++place) {
      for (const size_t count : {1, 33, 1025}) {
        std::vector<Input> in;
        std::vector<const void*> pointers;
        for (size_t r = 0; r < ranks; ++r) {
          in.push_back(random_input(random_, from, Kind::ordinary, count, r));
          pointers.push_back(in.back().first);
        }
        std::vector<unsigned char> expected(count * size_of(sum));
        const ReduceKernel reduce = kernel_table(isa).reduction(sum, from, Norm::squares);
        reduce(expected.data(), pointers.data(), static_cast<int>(ranks), count);
        reduce(in[place].first, pointers.data(), static_cast<int>(ranks), count);
        ASSERT_EQ(std::memcmp(in[place].first, expected.data(), expected.size()), 0)
            << place << " of " << ranks;
      }
    }
  }
}

TEST(Reductions, powers_of_doubles_are_summed_in_eight_lanes) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const size_t count : {0, 1, 7, 8, 9, 1000}) {
    std::vector<double> data(count);
    for (double& value : data) value = normal(random);
    double lane[8] = {};
    for (size_t i = 0; i < count; ++i) lane[i % 8] += std::pow(std::fabs(data[i]), 2.5);
    const double expected =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    for (const Isa isa : available_isas()) {
      EXPECT_EQ(kernel_table(isa).sum_powers_wide(data.data(), count, 2.5), expected);
    }
  }
}

}  // namespace
}  // namespace zero
