// SPDX-License-Identifier: Apache-2.0
// The rules against the published formulas, evaluated in fp64 from the settings themselves.
#include "kernels/rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/rules.h"
#include "zero.h"

namespace zero {
namespace {

const Rule& rule_of(int32_t optimizer) { return *find_rule(optimizer); }

std::vector<double> defaults(const Rule& rule) {
  std::vector<double> settings;
  for (const Setting& setting : rule.settings) settings.push_back(setting.initial);
  return settings;
}

struct Change {
  const char* name;
  double value;
};

std::vector<double> with(const Rule& rule, const std::vector<Change>& changes) {
  std::vector<double> settings = defaults(rule);
  for (const Change& change : changes)
    settings.at(size_t(find_setting(rule, change.name))) = change.value;
  return settings;
}

// ---- The table

TEST(Rule, names_settings_and_defaults_are_those_of_the_header) {
  const struct {
    int32_t optimizer;
    const char* name;
    std::vector<Change> settings;
  } expected[] = {{ZERO_OPTIMIZER_ADAMW,
                   "adamw",
                   {{"lr", 1e-3},
                    {"beta1", 0.9},
                    {"beta2", 0.999},
                    {"eps", 1e-8},
                    {"weight_decay", 0.01},
                    {"amsgrad", 0},
                    {"maximize", 0}}},
                  {ZERO_OPTIMIZER_ADAM,
                   "adam",
                   {{"lr", 1e-3},
                    {"beta1", 0.9},
                    {"beta2", 0.999},
                    {"eps", 1e-8},
                    {"weight_decay", 0},
                    {"amsgrad", 0},
                    {"maximize", 0}}},
                  {ZERO_OPTIMIZER_SGD,
                   "sgd",
                   {{"lr", 1e-3},
                    {"momentum", 0},
                    {"dampening", 0},
                    {"weight_decay", 0},
                    {"nesterov", 0},
                    {"maximize", 0}}}};
  for (const auto& row : expected) {
    const Rule* rule = find_rule(row.optimizer);
    ASSERT_NE(rule, nullptr);
    EXPECT_STREQ(rule->name, row.name);
    EXPECT_EQ(find_rule(std::string_view(row.name)), rule);
    ASSERT_EQ(rule->settings.size(), row.settings.size());
    EXPECT_LE(rule->settings.size(), size_t{kMaxSettings});
    EXPECT_LE(rule->slots.size(), size_t{kMaxSlots});
    for (size_t i = 0; i < row.settings.size(); ++i) {
      EXPECT_STREQ(rule->settings[i].name, row.settings[i].name);
      EXPECT_EQ(rule->settings[i].initial, row.settings[i].value);
      EXPECT_TRUE(setting_allows(rule->settings[i], rule->settings[i].initial));
      EXPECT_EQ(rule->settings[i].fixed, std::string_view(row.settings[i].name) == "amsgrad");
      EXPECT_EQ(find_setting(*rule, row.settings[i].name), static_cast<int>(i));
    }
  }
  EXPECT_EQ(find_rule(-1), nullptr);
  EXPECT_EQ(find_rule(kRuleCount), nullptr);
  EXPECT_EQ(find_rule(std::string_view("lion")), nullptr);
  EXPECT_EQ(find_setting(rule_of(ZERO_OPTIMIZER_SGD), "beta1"), -1);
}

TEST(Rule, settings_refuse_what_their_range_excludes) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Rule& adamw = rule_of(ZERO_OPTIMIZER_ADAMW);
  const Rule& sgd = rule_of(ZERO_OPTIMIZER_SGD);
  const struct {
    const Rule& rule;
    const char* name;
    std::vector<double> allowed, refused;
    const char* range;
  } rows[] = {{adamw, "lr", {0, 1e-30, 5}, {-1e-9, infinity, nan}, "finite and at least 0"},
              {adamw, "eps", {0, 1}, {-1e-8, nan}, "finite and at least 0"},
              {adamw, "beta1", {0, 0.5, std::nextafter(1.0, 0)}, {1, -0.1, 2, nan}, "in [0, 1)"},
              {adamw, "beta2", {0, 0.999}, {1, nan, infinity}, "in [0, 1)"},
              {adamw, "weight_decay", {0, 10}, {-0.01}, "finite and at least 0"},
              {adamw, "amsgrad", {0, 1}, {0.5, 2, -1, nan}, "0 or 1"},
              {sgd, "momentum", {0, 0.9, 1}, {-0.9, infinity}, "finite and at least 0"},
              {sgd, "dampening", {0, -3, 1e9}, {nan, infinity, -infinity}, "finite"},
              {sgd, "nesterov", {0, 1}, {3}, "0 or 1"}};
  for (const auto& row : rows) {
    const Setting& setting = row.rule.settings[size_t(find_setting(row.rule, row.name))];
    for (const double value : row.allowed)
      EXPECT_TRUE(setting_allows(setting, value)) << row.name << value;
    for (const double value : row.refused)
      EXPECT_FALSE(setting_allows(setting, value)) << row.name << value;
    EXPECT_STREQ(setting_range_text(setting), row.range) << row.name;
  }
}

TEST(Rule, slots_are_torchs_and_used_only_where_settings_ask) {
  for (const int32_t optimizer : {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_ADAM}) {
    const Rule& rule = rule_of(optimizer);
    ASSERT_EQ(rule.slots.size(), 3u);
    EXPECT_STREQ(rule.slots[0], "exp_avg");
    EXPECT_STREQ(rule.slots[1], "exp_avg_sq");
    EXPECT_STREQ(rule.slots[2], "max_exp_avg_sq");
    EXPECT_EQ(rule.slots_used(defaults(rule)), 0b011u);
    EXPECT_EQ(rule.slots_used(with(rule, {{"amsgrad", 1}})), 0b111u);
  }
  const Rule& sgd = rule_of(ZERO_OPTIMIZER_SGD);
  ASSERT_EQ(sgd.slots.size(), 1u);
  EXPECT_STREQ(sgd.slots[0], "momentum_buffer");
  EXPECT_EQ(sgd.slots_used(defaults(sgd)), 0u);
  EXPECT_EQ(sgd.slots_used(with(sgd, {{"momentum", 1e-300}})), 1u);
}

// ---- The formulas

struct Element {
  double param, grad, slots[kMaxSlots];
};

/// The published formulas, with `size` of each result: the sum of its terms' absolute values, which
/// bounds what fp32 can lose to cancellation.
struct Expected {
  double param, slots[kMaxSlots];
  double param_size, slot_size[kMaxSlots];
};

struct Values {  // settings by name
  const Rule& rule;
  const std::vector<double>& settings;
  double operator[](const char* name) const {
    return settings.at(size_t(find_setting(rule, name)));
  }
};

Expected adam_in_double(const Element& e, const Values& s, int64_t step, bool decoupled) {
  double theta = e.param;
  double g = s["maximize"] != 0 ? -e.grad : e.grad;
  double g_size = std::fabs(g);
  if (decoupled) {
    theta -= s["lr"] * s["weight_decay"] * theta;
  } else {
    g_size += std::fabs(s["weight_decay"] * theta);
    g += s["weight_decay"] * theta;
  }
  const double m = s["beta1"] * e.slots[0] + (1 - s["beta1"]) * g;
  const double v = s["beta2"] * e.slots[1] + (1 - s["beta2"]) * g * g;
  const double largest = std::max(e.slots[2], v);
  const double m_hat = m / (1 - std::pow(s["beta1"], double(step)));
  const double v_hat = (s["amsgrad"] != 0 ? largest : v) / (1 - std::pow(s["beta2"], double(step)));
  const double m_size = s["beta1"] * std::fabs(e.slots[0]) + (1 - s["beta1"]) * g_size;
  const double v_size = s["beta2"] * e.slots[1] + (1 - s["beta2"]) * g_size * g_size;
  const double rate = s["lr"] / (std::sqrt(v_hat) + s["eps"]);
  Expected result{};
  result.param = theta - rate * m_hat;
  // A cancelled gradient makes v uncertain by v_size / v, and the step by half of that.
  const double doubt = v_size / (s["amsgrad"] != 0 ? largest : v);
  result.param_size = std::fabs(theta) + rate * std::fabs(m_hat / m) * m_size * (1 + doubt);
  const double slots[] = {m, v, s["amsgrad"] != 0 ? largest : e.slots[2]};
  const double slot_size[] = {m_size, v_size, std::max(e.slots[2], v_size)};
  std::copy_n(slots, kMaxSlots, result.slots);
  std::copy_n(slot_size, kMaxSlots, result.slot_size);
  return result;
}

Expected sgd_in_double(const Element& e, const Values& s, bool first) {
  double g = s["maximize"] != 0 ? -e.grad : e.grad;
  g += s["weight_decay"] * e.param;
  double g_size = std::fabs(e.grad) + std::fabs(s["weight_decay"] * e.param);
  Expected result{};
  std::copy_n(e.slots, kMaxSlots, result.slots);
  std::fill_n(result.slot_size, kMaxSlots, 1.0);
  if (s["momentum"] != 0) {
    const double buffer = first ? g : s["momentum"] * e.slots[0] + (1 - s["dampening"]) * g;
    const double size =
        first ? g_size
              : s["momentum"] * std::fabs(e.slots[0]) + std::fabs(1 - s["dampening"]) * g_size;
    result.slots[0] = buffer;
    result.slot_size[0] = size;
    g = s["nesterov"] != 0 ? g + s["momentum"] * buffer : buffer;
    g_size = s["nesterov"] != 0 ? g_size + s["momentum"] * size : size;
  }
  result.param = e.param - s["lr"] * g;
  result.param_size = std::fabs(e.param) + s["lr"] * g_size;
  return result;
}

constexpr double kTolerance = 1e-6;
constexpr size_t kElements = 257;

void check_rule(int32_t optimizer, const std::vector<double>& settings, int64_t step, bool first,
                std::mt19937_64& random) {
  const Rule& rule = rule_of(optimizer);
  std::normal_distribution<float> normal;
  std::vector<float> param(kElements), grad(kElements), slots[kMaxSlots];
  for (auto& slot : slots) slot.resize(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    param[i] = normal(random);
    grad[i] = normal(random) * std::pow(10.0f, float(random() % 7) - 4);
    slots[0][i] = normal(random);
    slots[1][i] = std::pow(normal(random), 2.0f) + 1e-6f;
    slots[2][i] = std::pow(normal(random), 2.0f) + 1e-6f;
  }
  const auto old_param = param;
  const std::vector<float> old_slots[] = {slots[0], slots[1], slots[2]};
  const double factor = 1.0 / 3;
  const Scalars scalars = rule.prepare({settings, step, first ? 0u : ~0u, factor});
  const UpdateRun run{
      param.data(), grad.data(), {slots[0].data(), slots[1].data(), slots[2].data()}, kElements};
  kernel_table(Isa::scalar).update[optimizer](run, scalars);

  const Values values{rule, settings};
  for (size_t i = 0; i < kElements; ++i) {
    const Element e{
        old_param[i], grad[i] * factor, {old_slots[0][i], old_slots[1][i], old_slots[2][i]}};
    const Expected expected =
        optimizer == ZERO_OPTIMIZER_SGD
            ? sgd_in_double(e, values, first)
            : adam_in_double(e, values, step, optimizer == ZERO_OPTIMIZER_ADAMW);
    ASSERT_NEAR(param[i], expected.param, kTolerance * expected.param_size) << "param " << i;
    for (int s = 0; s < kMaxSlots; ++s) {
      ASSERT_NEAR(slots[s][i], expected.slots[s], kTolerance * expected.slot_size[s])
          << "slot " << s << " element " << i;
    }
  }
}

TEST(Rule, adam_and_adamw_follow_the_published_formula) {
  std::mt19937_64 random(3);
  for (const int32_t optimizer : {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_ADAM}) {
    for (const double weight_decay : {0.0, 0.1}) {
      for (const double amsgrad : {0, 1}) {
        for (const double maximize : {0, 1}) {
          for (const double beta1 : {0.9, 0.0, 0.3}) {
            for (const int64_t step : {1, 2, 7, 1000, 1'000'000}) {
              SCOPED_TRACE(std::string(rule_of(optimizer).name) + " step " + std::to_string(step) +
                           " decay " + std::to_string(weight_decay) + " amsgrad " +
                           std::to_string(amsgrad) + " beta1 " + std::to_string(beta1));
              check_rule(optimizer,
                         with(rule_of(optimizer), {{"lr", 0.02},
                                                   {"beta1", beta1},
                                                   {"eps", 1e-6},
                                                   {"weight_decay", weight_decay},
                                                   {"amsgrad", amsgrad},
                                                   {"maximize", maximize}}),
                         step, false, random);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Rule, sgd_follows_the_published_formula) {
  std::mt19937_64 random(5);
  for (int combination = 0; combination < 64; ++combination) {
    const auto bit = [&](int place) -> double { return combination >> place & 1; };
    SCOPED_TRACE("combination " + std::to_string(combination));
    check_rule(ZERO_OPTIMIZER_SGD,
               with(rule_of(ZERO_OPTIMIZER_SGD), {{"lr", 0.05},
                                                  {"momentum", bit(0) * 0.9},
                                                  {"dampening", bit(1) * 0.4},
                                                  {"weight_decay", bit(2) * 0.1},
                                                  {"nesterov", bit(3)},
                                                  {"maximize", bit(4)}}),
               bit(5) == 0 ? 1 : 2, bit(5) == 0, random);
    if (HasFatalFailure()) return;
  }
}

// ---- What the formulas imply, bit for bit

struct Trained {
  std::vector<float> param, slots[kMaxSlots];
  bool operator==(const Trained& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
        return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
      });
    };
    return same(param, other.param) && same(slots[0], other.slots[0]) &&
           same(slots[1], other.slots[1]) && same(slots[2], other.slots[2]);
  }
};

Trained train(int32_t optimizer, const std::vector<double>& settings, float scale, double factor,
              float first_param = 0.5f) {
  const Rule& rule = rule_of(optimizer);
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal;
  Trained state;
  std::vector<float> grad(100);
  for (auto* values : {&state.param, &state.slots[0], &state.slots[1], &state.slots[2]})
    values->resize(100);
  for (float& value : state.param) value = normal(random);
  state.param[0] = first_param;
  for (int64_t step = 1; step <= 5; ++step) {
    for (float& value : grad) value = normal(random) * scale;
    const Scalars scalars = rule.prepare({settings, step, step > 1 ? ~0u : 0u, factor});
    kernel_table(Isa::scalar)
        .update[optimizer]({state.param.data(),
                            grad.data(),
                            {state.slots[0].data(), state.slots[1].data(), state.slots[2].data()},
                            grad.size()},
                           scalars);
  }
  return state;
}

TEST(Rule, maximizing_is_minimizing_the_negated_gradient) {
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    std::vector<Change> changes = {{"weight_decay", 0.1}};
    if (optimizer == ZERO_OPTIMIZER_SGD) changes.push_back({"momentum", 0.9});
    const std::vector<double> minimize = with(rule_of(optimizer), changes);
    changes.push_back({"maximize", 1});
    EXPECT_TRUE(train(optimizer, with(rule_of(optimizer), changes), 1, 1) ==
                train(optimizer, minimize, -1, 1));
  }
}

TEST(Rule, the_factor_multiplies_the_sum_before_anything_else) {
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    const std::vector<double> settings = with(rule_of(optimizer), {{"weight_decay", 0.1}});
    EXPECT_TRUE(train(optimizer, settings, 1, 0.125) == train(optimizer, settings, 0.125f, 1));
  }
}

TEST(Rule, without_decay_a_parameter_never_reaches_its_state) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Trained adam =
      train(ZERO_OPTIMIZER_ADAM, defaults(rule_of(ZERO_OPTIMIZER_ADAM)), 1, 1, infinity);
  EXPECT_TRUE(std::isfinite(adam.slots[0][0]) && std::isfinite(adam.slots[1][0]));
  const Trained sgd = train(ZERO_OPTIMIZER_SGD,
                            with(rule_of(ZERO_OPTIMIZER_SGD), {{"momentum", 0.9}}), 1, 1, infinity);
  EXPECT_TRUE(std::isfinite(sgd.slots[0][0]));
}

TEST(Rule, a_momentum_buffer_that_holds_nothing_becomes_the_gradient) {
  const Rule& sgd = rule_of(ZERO_OPTIMIZER_SGD);
  const std::vector<double> settings =
      with(sgd, {{"lr", 1}, {"momentum", 0.5}, {"dampening", 0.5}});
  float param = 0, buffer = std::numeric_limits<float>::quiet_NaN();
  const float grad = 4;
  const UpdateRun run{&param, &grad, {&buffer}, 1};
  kernel_table(best_isa()).update[ZERO_OPTIMIZER_SGD](run, sgd.prepare({settings, 17, 0, 1}));
  EXPECT_EQ(buffer, 4);
  EXPECT_EQ(param, -4);
  kernel_table(best_isa()).update[ZERO_OPTIMIZER_SGD](run, sgd.prepare({settings, 1, 1, 1}));
  EXPECT_EQ(buffer, 0.5f * 4 + 0.5f * 4);
  EXPECT_EQ(param, -8);
}

TEST(Rule, amsgrad_keeps_a_nan_that_reached_it) {
  const Rule& adam = rule_of(ZERO_OPTIMIZER_ADAM);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float old_maximum : {1.0f, nan}) {
    float param = 0, exp_avg = 0, exp_avg_sq = std::isnan(old_maximum) ? 1 : nan,
          maximum = old_maximum;
    const float grad = 1;
    kernel_table(best_isa())
        .update[ZERO_OPTIMIZER_ADAM]({&param, &grad, {&exp_avg, &exp_avg_sq, &maximum}, 1},
                                     adam.prepare({with(adam, {{"amsgrad", 1}}), 2, ~0u, 1}));
    EXPECT_TRUE(std::isnan(maximum));
  }
}

TEST(Rule, bias_corrections_hold_from_the_first_step_to_the_billionth) {
  const Rule& adam = rule_of(ZERO_OPTIMIZER_ADAM);
  for (const int64_t step : {1, 2, 3, 10, 999, 123'457, 1'000'000'000}) {
    const Scalars scalars = adam.prepare({defaults(adam), step, ~0u, 1});
    const long double power1 = std::pow(0.9L, static_cast<long double>(step));
    const long double power2 = std::pow(0.999L, static_cast<long double>(step));
    EXPECT_FLOAT_EQ(scalars.value[rules::Adam::step_size], float(1e-3L / (1 - power1))) << step;
    EXPECT_FLOAT_EQ(scalars.value[rules::Adam::root_scale], float(1 / std::sqrt(1 - power2)))
        << step;
  }
}

}  // namespace
}  // namespace zero
