// SPDX-License-Identifier: Apache-2.0
// Updates with every instruction set, in fp32 and in fp64, bitwise equal to the scalar table, which
// rule_test compares with the published formulas. All NaNs count as equal.
#include "kernels/kernels.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/float_environment.h"
#include "base/text.h"
#include "random_elements.h"
#include "rules/list.h"
#include "support/float_control.h"
#include "whole_step.h"
#include "zero.h"

namespace zero {
namespace {

using test::Elements;
using test::Kind;
using test::Random;

/// Calls body(number) with a double or a float.
template <class Body>
void in_type(DType type, const Body& body) {
  type == DType::f64 ? body(double{}) : body(float{});
}

/// Calls check(number, kind, count) with all kinds and counts.
template <class Check>
void check_all(DType type, const Check& check) {
  for (const Kind kind : test::kKinds) {
    for (const size_t count : test::telling_counts()) {
      SCOPED_TRACE(text("count ", count, ", kind ", static_cast<int>(kind)));
      in_type(type, [&](auto number) { check(number, kind, count); });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// The elements that a rule updates, with the gradients of some ranks.
struct Updated {
  Elements param;
  std::vector<Elements> grads, slots;

  Updated(Random& random, const Rule& rule, DType type, size_t count, Kind kind, size_t ranks)
      : param(random, type, count, random() % 16, kind) {
    for (size_t rank = 0; rank < ranks; ++rank)
      grads.emplace_back(random, type, count, random() % 16, kind);
    for (const std::string_view slot : rule.slots) {
      const bool positive = slot.find("sq") != slot.npos;
      slots.emplace_back(random, type, count, random() % 16, kind, positive);
    }
  }

  /// Uses only the gradients of rank 0.
  template <class Real>
  UpdateRunOf<Real> run(uint32_t slots_used) {
    UpdateRunOf<Real> run{param.as<Real>(), grads[0].as<Real>(), {}, param.count()};
    for (size_t s = 0; s < slots.size(); ++s) {
      if (slots_used >> s & 1) run.slots[s] = slots[s].as<Real>();
    }
    return run;
  }
};

void expect_same(const Updated& a, const Updated& b) {
  ASSERT_TRUE(a.param.equals(b.param));
  for (size_t s = 0; s < a.slots.size(); ++s)
    ASSERT_TRUE(a.slots[s].equals(b.slots[s])) << "slot " << s;
}

/// Adds all into the first, one after the other. Returns how many sums are not finite.
template <class Real>
uint64_t sum_up(std::vector<Elements>& grads) {
  uint64_t nonfinite = 0;
  for (size_t i = 0; i < grads[0].count(); ++i) {
    volatile Real sum = grads[0].as<Real>()[i];
    for (size_t rank = 1; rank < grads.size(); ++rank) sum = sum + grads[rank].as<Real>()[i];
    grads[0].as<Real>()[i] = sum;
    nonfinite += !std::isfinite(sum);
  }
  return nonfinite;
}

TEST(Isa, names_and_tables_belong_together_and_the_best_is_the_last) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::scalar);
  EXPECT_EQ(isas.back(), best_isa());
  constexpr const char* kNames[] = {"scalar", "neon", "avx2", "avx512"};
  for (const Isa isa : isas) EXPECT_STREQ(kernel_table(isa).name, kNames[static_cast<int>(isa)]);
}

/// isa, type of the arithmetic, rule
class EveryUpdate : public ::testing::TestWithParam<std::tuple<Isa, DType, int>> {
 protected:
  const Isa isa_ = std::get<0>(GetParam());
  const DType type_ = std::get<1>(GetParam());
  const int32_t optimizer_ = std::get<2>(GetParam());
  const Rule& rule_ = *find_rule(optimizer_);
  Random random_{11};
};

std::string name_of_update(const ::testing::TestParamInfo<std::tuple<Isa, DType, int>>& made) {
  const auto [isa, type, optimizer] = made.param;
  return text(kernel_table(isa).name, '_', dtype_name(type), '_',
              find_rule(int32_t{optimizer})->name);
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryUpdate,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Values(DType::f32, DType::f64),
                                            ::testing::Range(0, kRuleCount)),
                         name_of_update);

TEST_P(EveryUpdate, sums_the_ranks_and_has_the_bits_of_the_scalar_one_on_the_sum) {
  const FloatEnvironment environment;
  const auto check = [&](auto number, Kind kind, size_t count) {
    using Real = decltype(number);
    const std::vector<double> settings = test::random_settings(random_, rule_);
    const uint32_t used = rule_.slots_used(settings), live = static_cast<uint32_t>(random_());
    const Scalars scalars =
        rule_.prepare({settings.data(), 1 + int64_t(random_() % 50), live, 1.0 / 3, 0.5});
    const size_t ranks = random_() % 2 == 0 ? 1 : 2 + random_() % 8;
    Updated actual(random_, rule_, type_, count, kind, ranks);
    Updated expected = actual;
    const uint64_t nonfinite = sum_up<Real>(expected.grads);
    test::update_kernel<Real>(Isa::scalar, optimizer_)(expected.run<Real>(used), scalars);
    std::vector<const Real*> in;
    for (Elements& grad : actual.grads) in.push_back(grad.as<Real>());
    // A slot at rest (momentum switched off) may be passed, and must keep its values.
    UpdateRunOf<Real> run = actual.run<Real>(random_() % 2 == 0 ? used : ~0u);
    run.others = in.data() + 1;
    run.other_count = static_cast<int>(ranks) - 1;
    const std::vector<Elements> grads = actual.grads;
    ASSERT_EQ(test::update_kernel<Real>(isa_, optimizer_)(run, scalars), nonfinite);
    expect_same(actual, expected);
    for (size_t rank = 0; rank < ranks; ++rank)
      ASSERT_TRUE(actual.grads[rank].equals(grads[rank])) << "rank " << rank;
  };
  for (int turn = 0; turn < 4 && !HasFailure(); ++turn) check_all(type_, check);
}

TEST_P(EveryUpdate, every_element_gets_the_same_update_wherever_it_lies) {
  const auto check = [&](auto number) {
    using Real = decltype(number);
    const auto update = test::update_kernel<Real>(isa_, optimizer_);
    const std::vector<double> settings = test::random_settings(random_, rule_);
    const uint32_t used = rule_.slots_used(settings);
    const Scalars scalars = rule_.prepare({settings.data(), 3, ~0u, 0.5});
    Updated whole(random_, rule_, type_, 100, Kind::any_exponent, 1);
    Updated pieces = whole;
    const UpdateRunOf<Real> run = pieces.run<Real>(used);
    for (size_t i = 0; i < run.count; ++i) {
      UpdateRunOf<Real> one{run.param + i, run.grad + i, {}, 1};
      for (int s = 0; s < kMaxSlots; ++s) one.slots[s] = run.slots[s] ? run.slots[s] + i : nullptr;
      update(one, scalars);
    }
    update(whole.run<Real>(used), scalars);
    expect_same(pieces, whole);
  };
  for (int turn = 0; turn < 200 && !HasFailure(); ++turn) in_type(type_, check);
}

/// isa, type of the arithmetic
class EveryTable : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  const Isa isa_ = std::get<0>(GetParam());
  const DType type_ = std::get<1>(GetParam());
  const KernelTable& table_ = kernel_table(isa_);
  Random random_{7};
};

std::string name_of_table(const ::testing::TestParamInfo<std::tuple<Isa, DType>>& made) {
  const auto [isa, type] = made.param;
  return text(kernel_table(isa).name, '_', dtype_name(type));
}

INSTANTIATE_TEST_SUITE_P(Isa, EveryTable,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Values(DType::f32, DType::f64)),
                         name_of_table);

// ---- LAMB's two kernels

Scalars random_lamb(Random& random) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  const std::vector<double> settings = test::random_settings(random, lamb);
  return lamb.prepare({settings.data(), 1 + int64_t(random() % 50), ~0u, 0.25});
}

/// Directions may be stored over the gradients.
TEST_P(EveryTable, lamb_measures_in_pieces_as_reductions_do_and_writes_no_parameter) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  const FloatEnvironment environment;
  const auto check = [&](auto number, Kind kind, size_t count) {
    using Real = decltype(number);
    const Scalars scalars = random_lamb(random_);
    Updated run(random_, lamb, type_, count, kind, 1);
    const Updated before = run;
    Updated turned = run;
    test::update_kernel<Real>(Isa::scalar, ZERO_OPTIMIZER_LAMB)(turned.run<Real>(0b11), scalars);
    const size_t block = 16 * (1 + random_() % 8), head = 16 * (1 + random_() % (block / 16));
    std::vector<Squares> pieces((count + block - 1) / block + 1);
    const uint64_t found = table_.in<Real>().lamb.measure(
        run.run<Real>(0b11), run.grads[0].as<Real>(), scalars, head, block, pieces.data());
    EXPECT_TRUE(run.param.equals(before.param));
    for (size_t s : {0, 1}) EXPECT_TRUE(run.slots[s].equals(turned.slots[s]));
    Elements directions = before.grads[0];
    std::copy_n(turned.param.as<Real>(), count, directions.as<Real>());
    ASSERT_TRUE(run.grads[0].equals(directions));

    std::vector<Real> room(count);
    const auto reduced = [&](Norm norm, Real* from, size_t elements) {
      const void* const in = from;
      return kernel_table(Isa::scalar).reduction(type_, type_, norm)(room.data(), &in, 1, elements);
    };
    const auto expect_squares = [&](double actual, Real* from, size_t elements) {
      const double expected = reduced(Norm::squares, from, elements).norm;
      ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)));
    };
    size_t piece = 0;
    for (size_t begin = 0, end = head; begin < count; begin = end, end += block, ++piece) {
      end = std::min(end, count);
      expect_squares(pieces[piece].param, run.param.as<Real>() + begin, end - begin);
      expect_squares(pieces[piece].direction, run.grads[0].as<Real>() + begin, end - begin);
    }
    Elements given = before.grads[0];
    EXPECT_EQ(found, reduced(Norm::none, given.as<Real>(), count).nonfinite);
  };
  check_all(type_, check);
}

TEST_P(EveryTable, the_step_of_lamb_goes_along_its_direction_and_writes_the_parameter_alone) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  const FloatEnvironment environment;
  const auto check = [&](auto number, Kind kind, size_t count) {
    using Real = decltype(number);
    Scalars scalars = random_lamb(random_);
    scalars.value[lamb.trust->scalar] = 0.37;
    Updated run(random_, lamb, type_, count, kind, 1);
    Updated expected = run;
    table_.in<Real>().lamb.step(run.param.as<Real>(), run.grads[0].as<Real>(), count, scalars);
    for (size_t i = 0; i < count; ++i) {
      const volatile Real length = expected.grads[0].as<Real>()[i] * static_cast<Real>(0.37);
      expected.param.as<Real>()[i] -= length;
    }
    expect_same(run, expected);
    EXPECT_TRUE(run.grads[0].equals(expected.grads[0]));
  };
  check_all(type_, check);
}

// A fused multiply-add would give another result: 1 - x * x is 0 only if x * x was rounded.
TEST_P(EveryTable, products_are_rounded_before_they_are_added) {
  in_type(type_, [&](auto number) {
    using Real = decltype(number);
    const int half = (std::numeric_limits<Real>::digits + 1) / 2;
    const Real x = 1 + std::ldexp(Real{1}, -half);
    // x * x, rounded
    std::vector<Real> param(64, 1 + std::ldexp(Real{1}, 1 - half)), grad(64, x);
    Scalars scalars;
    scalars.value[rules::Sgd::lr] = x;
    table_.in<Real>().update[ZERO_OPTIMIZER_SGD]({param.data(), grad.data(), {}, 64}, scalars);
    EXPECT_EQ(param, std::vector<Real>(64));
  });
}

// As a float, 0.1 would be 0.100000001490116...
TEST_P(EveryTable, scalars_are_rounded_to_the_type_of_the_arithmetic_alone) {
  const Rule& sgd = *find_rule(int32_t{ZERO_OPTIMIZER_SGD});
  std::vector<double> settings(sgd.settings.size());
  settings[static_cast<size_t>(find_setting(sgd, "lr"))] = 0.1;
  const Scalars scalars = sgd.prepare({settings.data(), 1, 0, 0.7});
  in_type(type_, [&](auto number) {
    using Real = decltype(number);
    Real param = 0;
    const Real grad = static_cast<Real>(0.3);
    table_.in<Real>().update[ZERO_OPTIMIZER_SGD]({&param, &grad, {}, 1}, scalars);
    EXPECT_EQ(param, -(grad * static_cast<Real>(0.7) * static_cast<Real>(0.1)));
  });
}

TEST(FloatEnvironment, is_standard_inside_and_the_callers_again_outside) {
  constexpr uint64_t kCallers = test::kOddControl | (test::kWhatHappened & 1);
  const uint64_t before = test::float_control();
  test::set_float_control(kCallers);
  {
    const FloatEnvironment environment;
    EXPECT_EQ(test::float_control(), test::kStandardControl);
    volatile float denormal = 1e-40f;
    EXPECT_EQ(denormal * 0.5f * 2.0f, denormal);
    volatile double zero = 0;
    volatile double nan = zero / zero;
    static_cast<void>(nan);
  }
  const uint64_t after = test::float_control();
  test::set_float_control(before);
  EXPECT_EQ(after, kCallers);  // sticky flags included
}

}  // namespace
}  // namespace zero
