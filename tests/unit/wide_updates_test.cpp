// SPDX-License-Identifier: Apache-2.0
// Updates of fp64 parameters: every instruction set against the scalar table bit for bit, which
// rule_test holds against the published formulas.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/float_environment.h"
#include "kernels/kernels.h"
#include "rules/list.h"
#include "whole_step.h"
#include "zero.h"

namespace zero {
namespace {

constexpr size_t kMargin = 16;

uint64_t bits(double value) { return std::isnan(value) ? ~0ull : std::bit_cast<uint64_t>(value); }

enum class Kind { ordinary, any_exponent, denormal, special };

double random_double(std::mt19937_64& random, Kind kind) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), 5e-324, 1.7e308};
  const uint64_t word = random(), exponent = random();
  const uint64_t rest = word & 0x800FFFFFFFFFFFFF;
  if (kind == Kind::special && exponent % 4 == 0) return specials[word % std::size(specials)];
  if (kind == Kind::any_exponent) return std::bit_cast<double>(rest | exponent % 2047 << 52);
  if (kind == Kind::denormal) return std::bit_cast<double>(rest | exponent % 2 << 52);
  return std::bit_cast<double>(rest | (1016 + exponent % 12) << 52);
}

std::vector<double> random_array(std::mt19937_64& random, size_t count, Kind kind, bool positive) {
  std::vector<double> values(count + 2 * kMargin);
  for (double& value : values) {
    value = random_double(random, kind);
    if (positive) value = std::fabs(value);
  }
  return values;
}

/// Arrays of a run, which begin at different places behind kMargin and end before another.
struct WideRun {
  size_t count;
  std::vector<double> param, slots[kMaxSlots];
  std::vector<std::vector<double>> grads;  // of all ranks

  WideRun(std::mt19937_64& random, const Rule& rule, size_t elements, Kind kind, size_t ranks)
      : count(elements), param(random_array(random, elements, kind, false)) {
    for (size_t s = 0; s < kMaxSlots; ++s) {
      const std::string_view name = s < rule.slots.size() ? rule.slots[s] : "";
      slots[s] = random_array(random, elements, kind, name.find("sq") != name.npos);
    }
    for (size_t r = 0; r < ranks; ++r) {
      grads.push_back(random_array(random, elements, kind, false));
    }
  }

  uint64_t update(UpdateKernelOf<double> kernel, const Scalars& scalars, uint32_t used) {
    std::vector<const double*> in;
    for (size_t r = 0; r < grads.size(); ++r) in.push_back(grads[r].data() + r % kMargin);
    UpdateRunOf<double> run{param.data() + kMargin, in[0], {}, count};
    for (size_t s = 0; s < kMaxSlots; ++s) {
      if (used >> s & 1) run.slots[s] = slots[s].data() + kMargin - 1 - s;
    }
    run.others = in.data() + 1;
    run.other_count = static_cast<int>(in.size()) - 1;
    return kernel(run, scalars);
  }

  /// Both kernels, with directions over the gradients of the only rank.
  uint64_t run_lamb(const LambOf<double>& lamb, const Scalars& scalars, Squares* pieces) {
    UpdateRunOf<double> run{param.data() + kMargin, grads[0].data(), {}, count};
    for (size_t s : {0, 1}) run.slots[s] = slots[s].data() + kMargin - 1 - s;
    const uint64_t found = lamb.measure(run, grads[0].data(), scalars, 8, 24, pieces);
    lamb.step(run.param, grads[0].data(), count, scalars);
    return found;
  }

  /// Gradients become their sum.
  uint64_t sum() {
    uint64_t nonfinite = 0;
    for (size_t i = 0; i < count; ++i) {
      volatile double total = grads[0][i];
      for (size_t r = 1; r < grads.size(); ++r) total = total + grads[r][i + r % kMargin];
      grads[0][i] = total;
      nonfinite += !std::isfinite(grads[0][i]);
    }
    grads.resize(1);
    return nonfinite;
  }
};

void expect_same(const std::vector<double>& a, const std::vector<double>& b, const char* what) {
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(bits(a[i]), bits(b[i]))
        << what << " " << i << std::hexfloat << " " << a[i] << " " << b[i];
  }
}

/// Each setting that changes the path through a kernel, on or off, as the bits of `choice` say.
std::vector<double> choose(const Rule& rule, uint64_t choice) {
  std::vector<double> settings;
  for (const Setting& setting : rule.settings) {
    const std::string_view name = setting.name;
    double value = setting.initial;
    if (setting.range == Setting::flag || name == "weight_decay" || name == "momentum" ||
        name == "dampening" || name == "initial_accumulator_value") {
      value = (choice & 1) == 0 ? 0 : setting.range == Setting::flag ? 1 : 0.1;
      choice >>= 1;
    }
    settings.push_back(value);
  }
  return settings;
}

class EveryWideUpdate : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

INSTANTIATE_TEST_SUITE_P(Isa, EveryWideUpdate,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Range(0, kRuleCount)),
                         [](const auto& made) {
                           return std::string(isa_name(std::get<0>(made.param))) + "_" +
                                  find_rule(int32_t{std::get<1>(made.param)})->name;
                         });

TEST_P(EveryWideUpdate, sums_the_ranks_and_has_the_bits_of_the_scalar_one_on_the_sum) {
  const auto [isa, optimizer] = GetParam();
  const Rule& rule = *find_rule(int32_t{optimizer});
  const FloatEnvironment environment;
  std::mt19937_64 random(17);
  for (const Kind kind : {Kind::ordinary, Kind::any_exponent, Kind::denormal, Kind::special}) {
    for (uint64_t choice = 0; choice < 64; ++choice) {
      const std::vector<double> settings = choose(rule, choice);
      const uint32_t used = rule.slots_used(settings);
      const Scalars scalars = rule.prepare(
          {settings.data(), 1 + int64_t(choice % 9), uint32_t(random()), 1.0 / 3, 0.5});
      for (const size_t count : {1, 7, 8, 9, 31, 100}) {
        SCOPED_TRACE("choice " + std::to_string(choice) + ", count " + std::to_string(count));
        WideRun actual(random, rule, count, kind, 1 + random() % 9);
        WideRun expected = actual;
        const uint64_t nonfinite = expected.sum();
        expected.update(test::update_kernel<double>(Isa::scalar, optimizer), scalars, used);
        ASSERT_EQ(actual.update(test::update_kernel<double>(isa, optimizer), scalars, used),
                  nonfinite);
        expect_same(actual.param, expected.param, "param");
        for (size_t s = 0; s < kMaxSlots; ++s) {
          expect_same(actual.slots[s], expected.slots[s], "slot");
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(WideUpdates, lamb_measures_and_steps_with_the_bits_of_the_scalar_one) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  const FloatEnvironment environment;
  std::mt19937_64 random(18);
  for (const Isa isa : available_isas()) {
    for (const Kind kind : {Kind::ordinary, Kind::any_exponent, Kind::denormal, Kind::special}) {
      for (const size_t count : {1, 7, 8, 9, 31, 100}) {
        for (const uint64_t choice : {0, 1}) {
          Scalars scalars = lamb.prepare({choose(lamb, choice).data(), 5, ~0u, 1});
          scalars.value[lamb.trust->scalar] *= 1.0 / 3;
          WideRun actual(random, lamb, count, kind, 1);
          WideRun expected = actual;
          std::vector<Squares> found(5), wanted(5);  // one of 8 elements, four of 24 or less
          const KernelTable& scalar = kernel_table(Isa::scalar);
          EXPECT_EQ(actual.run_lamb(kernel_table(isa).lamb_wide, scalars, found.data()),
                    expected.run_lamb(scalar.lamb_wide, scalars, wanted.data()));
          for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(bits(found[i].param), bits(wanted[i].param));
            EXPECT_EQ(bits(found[i].direction), bits(wanted[i].direction));
          }
          expect_same(actual.param, expected.param, "param");
          expect_same(actual.grads[0], expected.grads[0], "direction");
          for (size_t s : {0, 1}) expect_same(actual.slots[s], expected.slots[s], "slot");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Both results are contracted away by a fused multiply-add: 1 - x * x is 0 only where x * x was
// rounded.
TEST(WideUpdates, products_are_rounded_before_they_are_added) {
  const double x = 1 + std::ldexp(1.0, -27);
  for (const Isa isa : available_isas()) {
    double param[64], grad[64];
    std::fill_n(param, 64, 1 + std::ldexp(1.0, -26));  // x * x rounded to double
    std::fill_n(grad, 64, x);
    Scalars scalars;
    scalars.value[rules::Sgd::lr] = x;
    kernel_table(isa).update_wide[ZERO_OPTIMIZER_SGD]({param, grad, {}, 64}, scalars);
    for (const double value : param) EXPECT_EQ(value, 0);
  }
}

// Where 0.1 would be a float it would be 0.100000001490116...
TEST(WideUpdates, scalars_are_not_rounded_to_fp32) {
  const Rule& sgd = *find_rule(int32_t{ZERO_OPTIMIZER_SGD});
  std::vector<double> settings(sgd.settings.size());
  settings[static_cast<size_t>(find_setting(sgd, "lr"))] = 0.1;
  for (const Isa isa : available_isas()) {
    double param = 0;
    const double grad = 0.3;
    const Scalars scalars = sgd.prepare({settings.data(), 1, 0, 0.7});
    kernel_table(isa).update_wide[ZERO_OPTIMIZER_SGD]({&param, &grad, {}, 1}, scalars);
    EXPECT_EQ(param, -(0.3 * 0.7 * 0.1));
  }
}

}  // namespace
}  // namespace zero
