// SPDX-License-Identifier: Apache-2.0
// Sums over ranks from every floating type to both types of sums, on every instruction set,
// compared with plain loops. All NaNs count as equal.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/float_environment.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include "random_elements.h"

namespace zero {
namespace {

using test::Elements;
using test::Kind;
using test::Random;

constexpr Norm kNorms[] = {Norm::none, Norm::abs, Norm::squares, Norm::largest};

uint64_t bits(double value) { return std::isnan(value) ? ~0ull : std::bit_cast<uint64_t>(value); }

/// Adds terms in fp64, in eight lanes.
struct Lanes {
  double lane[8] = {};
  void add(size_t i, double term) { lane[i % 8] += term; }
  double all() const {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
};

struct Expected {
  uint64_t nonfinite = 0;
  double norms[kNormCount] = {};
};

/// Writes the sums to `out`.
template <class Real>
Expected expect(const std::vector<Elements>& in, Elements& out) {
  Expected made;
  Lanes abs, squares;
  double largest = 0;
  for (size_t i = 0; i < out.count(); ++i) {
    volatile Real sum = static_cast<Real>(in[0].value(i));
    for (size_t r = 1; r < in.size(); ++r) sum = sum + static_cast<Real>(in[r].value(i));
    const double wide = sum;
    out.as<Real>()[i] = sum;
    made.nonfinite += !std::isfinite(wide);
    abs.add(i, std::fabs(wide));
    volatile double square = wide * wide;
    squares.add(i, square);
    if (!(std::fabs(wide) <= largest) && !std::isnan(largest)) largest = std::fabs(wide);
  }
  made.norms[static_cast<int>(Norm::abs)] = abs.all();
  made.norms[static_cast<int>(Norm::squares)] = squares.all();
  made.norms[static_cast<int>(Norm::largest)] = largest;
  return made;
}

/// isa, type of the sums, type of the inputs
class EveryReduction : public ::testing::TestWithParam<std::tuple<Isa, DType, DType>> {
 protected:
  std::vector<Elements> random_inputs(size_t ranks, size_t count, Kind kind) {
    std::vector<Elements> in;
    for (size_t r = 0; r < ranks; ++r) in.emplace_back(random_, from_, count, random_() % 16, kind);
    return in;
  }
  Reduction reduce(Norm norm, const std::vector<Elements>& in, Elements& out) const {
    std::vector<const void*> pointers;
    for (const Elements& one : in) pointers.push_back(one.data());
    return table_.reduction(sum_, from_, norm)(out.data(), pointers.data(),
                                               static_cast<int>(in.size()), out.count());
  }
  const KernelTable& table_ = kernel_table(std::get<0>(GetParam()));
  const DType sum_ = std::get<1>(GetParam()), from_ = std::get<2>(GetParam());
  Random random_{31};
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<Isa, DType, DType>>& made) {
  const auto [isa, sum, from] = made.param;
  return text(kernel_table(isa).name, '_', dtype_name(sum), "_from_", dtype_name(from));
}

INSTANTIATE_TEST_SUITE_P(Types, EveryReduction,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Values(DType::f32, DType::f64),
                                            ::testing::ValuesIn(test::kFloats)),
                         name_of);

TEST_P(EveryReduction, sums_counts_and_norms_have_the_bits_of_plain_loops) {
  const FloatEnvironment environment;
  const auto check = [&](Kind kind, size_t ranks, size_t count) {
    const std::vector<Elements> in = random_inputs(ranks, count, kind);
    const Elements before(random_, sum_, count, random_() % 16, kind);
    Elements sums = before;
    const Expected expected =
        sum_ == DType::f64 ? expect<double>(in, sums) : expect<float>(in, sums);
    for (const Norm norm : kNorms) {
      Elements out = before;
      const Reduction made = reduce(norm, in, out);
      ASSERT_EQ(made.nonfinite, expected.nonfinite);
      ASSERT_EQ(bits(made.norm), bits(expected.norms[static_cast<int>(norm)]))
          << static_cast<int>(norm) << ": " << made.norm;
      ASSERT_TRUE(out.equals(sums));
    }
  };
  for (const Kind kind : test::kKinds) {
    for (const size_t count : test::telling_counts()) {
      const size_t ranks = 1 + random_() % 9;
      SCOPED_TRACE(text("kind ", static_cast<int>(kind), ", ranks ", ranks, ", count ", count));
      check(kind, 1, count);
      check(kind, ranks, count);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryReduction, sums_of_the_inputs_own_type_may_replace_any_of_them) {
  if (sum_ != from_) return;
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t place = 0; place < ranks; ++place) {
      for (const size_t count : {1, 33, 1025, 2100}) {
        std::vector<Elements> in = random_inputs(ranks, count, Kind::any_exponent);
        Elements expected = in[place];
        reduce(Norm::none, in, expected);
        reduce(Norm::squares, in, in[place]);
        ASSERT_TRUE(in[place].equals(expected)) << place << " of " << ranks;
      }
    }
  }
}

TEST(Reductions, powers_are_summed_in_eight_lanes) {
  Random random(3);
  for (const Kind kind : test::kKinds) {
    for (const size_t count : test::telling_counts()) {
      Elements single(random, DType::f32, count, random() % 16, kind);
      Elements wide(random, DType::f64, count, random() % 16, kind);
      Lanes of_single, of_wide;
      for (size_t i = 0; i < count; ++i) {
        of_single.add(i, std::pow(std::fabs(single.value(i)), 3.5));
        of_wide.add(i, std::pow(std::fabs(wide.value(i)), 2.5));
      }
      for (const Isa isa : available_isas()) {
        const KernelTable& table = kernel_table(isa);
        EXPECT_EQ(bits(table.singles.sum_powers(single.as<float>(), count, 3.5)),
                  bits(of_single.all()));
        EXPECT_EQ(bits(table.doubles.sum_powers(wide.as<double>(), count, 2.5)),
                  bits(of_wide.all()));
      }
    }
  }
}

}  // namespace
}  // namespace zero
