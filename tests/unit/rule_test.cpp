// SPDX-License-Identifier: Apache-2.0
// The rules against the published formulas, evaluated in fp64 from the settings themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "rules/list.h"
#include "whole_step.h"
#include "zero.h"

namespace zero {
namespace {

using test::whole_step;

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

/// The defaults but for `changes`.
std::vector<double> with(const Rule& rule, const std::vector<Change>& changes) {
  std::vector<double> settings = defaults(rule);
  for (const Change& change : changes)
    settings.at(size_t(find_setting(rule, change.name))) = change.value;
  return settings;
}

/// Those of `changes` that the rule knows.
std::vector<Change> known(const Rule& rule, std::vector<Change> changes) {
  std::erase_if(changes, [&](const Change& c) { return find_setting(rule, c.name) < 0; });
  return changes;
}

// ---- The table

/// "name=default ..." and the slots, in order.
std::string in_words(std::span<const Setting> settings) {
  std::ostringstream words;
  for (const Setting& one : settings)
    words << (words.tellp() > 0 ? " " : "") << one.name << '=' << one.initial;
  return words.str();
}

std::string in_words(std::span<const char* const> names) {
  std::string words;
  for (const char* const name : names) words += (words.empty() ? "" : " ") + std::string(name);
  return words;
}

TEST(Rule, names_settings_defaults_and_slots_are_those_of_the_header_and_of_torch) {
  const struct {
    int32_t optimizer;
    const char *name, *settings, *slots;
  } expected[] = {
      {ZERO_OPTIMIZER_ADAMW, "adamw",
       "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.01 amsgrad=0 maximize=0",
       "exp_avg exp_avg_sq max_exp_avg_sq"},
      {ZERO_OPTIMIZER_ADAM, "adam",
       "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 amsgrad=0 maximize=0",
       "exp_avg exp_avg_sq max_exp_avg_sq"},
      {ZERO_OPTIMIZER_SGD, "sgd",
       "lr=0.001 momentum=0 dampening=0 weight_decay=0 nesterov=0 maximize=0", "momentum_buffer"},
      {ZERO_OPTIMIZER_RMSPROP, "rmsprop",
       "lr=0.01 alpha=0.99 eps=1e-08 weight_decay=0 momentum=0 centered=0 maximize=0",
       "square_avg momentum_buffer grad_avg"},
      {ZERO_OPTIMIZER_ADAGRAD, "adagrad",
       "lr=0.01 lr_decay=0 weight_decay=0 initial_accumulator_value=0 eps=1e-10 maximize=0", "sum"},
      {ZERO_OPTIMIZER_LION, "lion", "lr=0.0001 beta1=0.9 beta2=0.99 weight_decay=0 maximize=0",
       "exp_avg"},
      {ZERO_OPTIMIZER_ADAMAX, "adamax",
       "lr=0.002 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 maximize=0", "exp_avg exp_inf"},
      {ZERO_OPTIMIZER_ADADELTA, "adadelta", "lr=1 rho=0.9 eps=1e-06 weight_decay=0 maximize=0",
       "square_avg acc_delta"},
      {ZERO_OPTIMIZER_RADAM, "radam",
       "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 decoupled_weight_decay=0 "
       "maximize=0",
       "exp_avg exp_avg_sq"},
      {ZERO_OPTIMIZER_NADAM, "nadam",
       "lr=0.002 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 momentum_decay=0.004 "
       "decoupled_weight_decay=0 maximize=0",
       "exp_avg exp_avg_sq"},
      {ZERO_OPTIMIZER_RPROP, "rprop",
       "lr=0.01 eta_minus=0.5 eta_plus=1.2 step_size_min=1e-06 step_size_max=50 maximize=0",
       "prev step_size"},
      {ZERO_OPTIMIZER_LAMB, "lamb",
       "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-06 weight_decay=0.01 always_adapt=0 maximize=0",
       "exp_avg exp_avg_sq"},
      {ZERO_OPTIMIZER_LARS, "lars",
       "lr=1 momentum=0 weight_decay=0 nesterov=0 trust_coefficient=0.001 eps=1e-08 always_adapt=0 "
       "maximize=0",
       "momentum_buffer"},
      {ZERO_OPTIMIZER_ADAN, "adan",
       "lr=0.001 beta1=0.98 beta2=0.92 beta3=0.99 eps=1e-08 weight_decay=0 maximize=0",
       "exp_avg exp_avg_diff exp_avg_sq prev_grad"},
      {ZERO_OPTIMIZER_ADEMAMIX, "ademamix",
       "lr=0.001 beta1=0.9 beta2=0.999 beta3=0.9999 alpha=5 alpha_warmup=0 beta3_warmup=0 "
       "eps=1e-08 weight_decay=0 maximize=0",
       "exp_avg exp_avg_sq exp_avg_slow"},
  };
  ASSERT_EQ(std::size(expected), size_t{kRuleCount});
  for (const auto& row : expected) {
    const Rule* rule = find_rule(row.optimizer);
    ASSERT_NE(rule, nullptr);
    EXPECT_STREQ(rule->name, row.name);
    EXPECT_EQ(find_rule(std::string_view(row.name)), rule);
    EXPECT_EQ(in_words(rule->settings), row.settings);
    EXPECT_EQ(in_words(rule->slots), row.slots);
    EXPECT_LE(rule->settings.size(), size_t{kMaxSettings});
    EXPECT_LE(rule->slots.size(), size_t{kMaxSlots});
    for (size_t i = 0; i < rule->settings.size(); ++i) {
      const Setting& setting = rule->settings[i];
      EXPECT_TRUE(setting_allows(setting, setting.initial));
      const std::string_view name = setting.name;
      EXPECT_EQ(setting.fixed, name == "amsgrad" || name == "centered");
      EXPECT_EQ(find_setting(*rule, setting.name), static_cast<int>(i));
    }
  }
  EXPECT_EQ(find_rule(-1), nullptr);
  EXPECT_EQ(find_rule(kRuleCount), nullptr);
  EXPECT_EQ(find_rule(std::string_view("muon")), nullptr);
  EXPECT_EQ(find_setting(rule_of(ZERO_OPTIMIZER_SGD), "beta1"), -1);
}

TEST(Rule, settings_refuse_what_their_range_excludes) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Rule& adamw = rule_of(ZERO_OPTIMIZER_ADAMW);
  const Rule& sgd = rule_of(ZERO_OPTIMIZER_SGD);
  const Rule& adadelta = rule_of(ZERO_OPTIMIZER_ADADELTA);
  const Rule& rprop = rule_of(ZERO_OPTIMIZER_RPROP);
  const Rule& lars = rule_of(ZERO_OPTIMIZER_LARS);
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
              {sgd, "nesterov", {0, 1}, {3}, "0 or 1"},
              {adadelta, "rho", {0, 0.9, 1}, {-0.1, 1.01, nan}, "in [0, 1]"},
              {lars, "trust_coefficient", {0, 1e-3, 2}, {-1, nan}, "finite and at least 0"},
              {lars, "always_adapt", {0, 1}, {2, nan}, "0 or 1"},
              {rprop, "eta_minus", {1e-9, 0.5}, {0, 1, -1, nan}, "in (0, 1)"},
              {rprop, "eta_plus", {1.01, 30}, {1, 0, infinity, nan}, "finite and above 1"}};
  for (const auto& row : rows) {
    const Setting& setting = row.rule.settings[size_t(find_setting(row.rule, row.name))];
    for (const double value : row.allowed)
      EXPECT_TRUE(setting_allows(setting, value)) << row.name << value;
    for (const double value : row.refused)
      EXPECT_FALSE(setting_allows(setting, value)) << row.name << value;
    EXPECT_STREQ(setting_range_text(setting), row.range) << row.name;
  }
}

TEST(Rule, slots_are_used_only_where_settings_ask) {
  const struct {
    int32_t optimizer;
    std::vector<Change> changes;
    uint32_t used;
  } rows[] = {{ZERO_OPTIMIZER_ADAMW, {}, 0b011},
              {ZERO_OPTIMIZER_ADAMW, {{"amsgrad", 1}}, 0b111},
              {ZERO_OPTIMIZER_ADAM, {}, 0b011},
              {ZERO_OPTIMIZER_ADAM, {{"amsgrad", 1}}, 0b111},
              {ZERO_OPTIMIZER_SGD, {}, 0},
              {ZERO_OPTIMIZER_SGD, {{"momentum", 1e-300}}, 1},
              {ZERO_OPTIMIZER_LARS, {}, 0},
              {ZERO_OPTIMIZER_LARS, {{"momentum", 1e-300}}, 1},
              {ZERO_OPTIMIZER_RMSPROP, {}, 0b001},
              {ZERO_OPTIMIZER_RMSPROP, {{"momentum", 0.1}}, 0b011},
              {ZERO_OPTIMIZER_RMSPROP, {{"centered", 1}}, 0b101}};
  std::set<int32_t> told;
  for (const auto& row : rows) {
    const Rule& rule = rule_of(row.optimizer);
    EXPECT_EQ(rule.slots_used(with(rule, row.changes)), row.used) << rule.name;
    told.insert(row.optimizer);
  }
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    const Rule& rule = rule_of(optimizer);
    if (told.contains(optimizer)) continue;
    EXPECT_EQ(rule.slots_used(defaults(rule)), (1u << rule.slots.size()) - 1) << rule.name;
  }
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
  std::copy(std::begin(slots), std::end(slots), result.slots);
  std::copy(std::begin(slot_size), std::end(slot_size), result.slot_size);
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

/// A number and what fp32 may have lost of it so far, in roundings of 2^-24 to first order.
struct Fuzzy {
  double value;
  double error = 0;
};

/// A constant, rounded once.
Fuzzy c(double value) { return {value, std::fabs(value)}; }
Fuzzy operator+(Fuzzy a, Fuzzy b) {
  const double value = a.value + b.value;
  return {value, a.error + b.error + std::fabs(value)};
}
Fuzzy operator-(Fuzzy a, Fuzzy b) { return a + Fuzzy{-b.value, b.error}; }
Fuzzy operator*(Fuzzy a, Fuzzy b) {
  const double value = a.value * b.value;
  return {value, a.error * std::fabs(b.value) + b.error * std::fabs(a.value) + std::fabs(value)};
}
Fuzzy operator/(Fuzzy a, Fuzzy b) {
  const double value = a.value / b.value;
  return {value, (a.error + b.error * std::fabs(value)) / std::fabs(b.value) + std::fabs(value)};
}
Fuzzy root(Fuzzy a) {
  const double value = std::sqrt(a.value);
  return {value, value == 0 ? 0 : a.error / (2 * value) + value};
}
Fuzzy larger(Fuzzy a, Fuzzy b) { return {std::max(a.value, b.value), std::max(a.error, b.error)}; }
double sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

/// What a rule makes of one element, in the words of its paper.
struct Model {
  const Element& e;
  const Values& s;
  const int64_t step;
  const bool first;
  Fuzzy theta{e.param};
  Fuzzy slots[kMaxSlots] = {{e.slots[0]}, {e.slots[1]}, {e.slots[2]}, {e.slots[3]}};

  bool is(const char* name) const { return find_setting(s.rule, name) >= 0 && s[name] != 0; }
  double corrected(const char* beta) const { return 1 - std::pow(s[beta], double(step)); }
  static void mix(Fuzzy& average, double rate, Fuzzy with) {
    average = c(rate) * average + c(1 - rate) * with;
  }
  /// The gradient, with weight decay unless that is decoupled, which shrinks theta.
  Fuzzy gradient() {
    Fuzzy g{is("maximize") ? -e.grad : e.grad, 2 * std::fabs(e.grad)};
    if (!is("weight_decay")) return g;
    if (!is("decoupled_weight_decay")) return g + c(s["weight_decay"]) * theta;
    theta = c(1 - s["lr"] * s["weight_decay"]) * theta;
    return g;
  }

  void rmsprop() {
    const Fuzzy g = gradient();
    mix(slots[0], s["alpha"], g * g);
    Fuzzy variance = slots[0];
    if (is("centered")) {
      mix(slots[2], s["alpha"], g);
      variance = slots[0] - slots[2] * slots[2];
    }
    Fuzzy step_taken = g / (root(variance) + c(s["eps"]));
    if (is("momentum")) step_taken = slots[1] = c(s["momentum"]) * slots[1] + step_taken;
    theta = theta - c(s["lr"]) * step_taken;
  }
  void adagrad() {
    const Fuzzy g = gradient();
    slots[0] = (first ? c(s["initial_accumulator_value"]) : slots[0]) + g * g;
    const double rate = s["lr"] / (1 + double(step - 1) * s["lr_decay"]);
    theta = theta - c(rate) * g / (root(slots[0]) + c(s["eps"]));
  }
  void lion() {
    const double g = is("maximize") ? -e.grad : e.grad;
    const double direction = sign(s["beta1"] * e.slots[0] + (1 - s["beta1"]) * g);
    theta = c(1 - s["lr"] * s["weight_decay"]) * theta - c(s["lr"] * direction);
    mix(slots[0], s["beta2"], {g, 2 * std::fabs(g)});
  }
  void adamax() {
    const Fuzzy g = gradient();
    mix(slots[0], s["beta1"], g);
    const Fuzzy size{std::fabs(g.value), g.error};
    slots[1] = larger(c(s["beta2"]) * slots[1], size + c(s["eps"]));
    theta = theta - c(s["lr"] / corrected("beta1")) * slots[0] / slots[1];
  }
  void adadelta() {
    const Fuzzy g = gradient();
    mix(slots[0], s["rho"], g * g);
    const Fuzzy delta = root(slots[1] + c(s["eps"])) / root(slots[0] + c(s["eps"])) * g;
    mix(slots[1], s["rho"], delta * delta);
    theta = theta - c(s["lr"]) * delta;
  }
  void moments(Fuzzy g) {
    mix(slots[0], s["beta1"], g);
    mix(slots[1], s["beta2"], g * g);
  }
  void radam() {
    moments(gradient());
    const Fuzzy m_hat = slots[0] / c(corrected("beta1"));
    const double t = double(step), end = 2 / (1 - s["beta2"]) - 1;
    const double rho = end - 2 * t * std::pow(s["beta2"], t) / corrected("beta2");
    if (rho > 5) {
      const double r = std::sqrt((rho - 4) * (rho - 2) * end / ((end - 4) * (end - 2) * rho));
      const Fuzzy l = c(std::sqrt(corrected("beta2"))) / (root(slots[1]) + c(s["eps"]));
      theta = theta - c(s["lr"]) * c(r) * m_hat * l;
    } else {
      theta = theta - c(s["lr"]) * m_hat;
    }
  }
  double mu(int64_t t) const {
    return s["beta1"] * (1 - 0.5 * std::pow(0.96, double(t) * s["momentum_decay"]));
  }
  void nadam() {
    const Fuzzy g = gradient();
    moments(g);
    double product = 1;
    for (int64_t t = 1; t <= step; ++t) product *= mu(t);
    const Fuzzy m_hat = c(mu(step + 1) / (1 - product * mu(step + 1))) * slots[0] +
                        c((1 - mu(step)) / (1 - product)) * g;
    const Fuzzy v_hat = slots[1] / c(corrected("beta2"));
    theta = theta - c(s["lr"]) * m_hat / (root(v_hat) + c(s["eps"]));
  }
  void rprop() {
    double g = is("maximize") ? -e.grad : e.grad;
    const double agreement = first ? 0 : sign(g * e.slots[0]);
    const double eta = agreement > 0 ? s["eta_plus"] : agreement < 0 ? s["eta_minus"] : 1;
    const Fuzzy wanted = c(eta) * (first ? c(s["lr"]) : slots[1]);
    const double clamped = std::clamp(wanted.value, s["step_size_min"], s["step_size_max"]);
    slots[1] = {clamped, std::max(wanted.error, clamped)};
    if (agreement < 0) g = 0;
    theta = theta - Fuzzy{sign(g)} * slots[1];
    slots[0] = {g, 2 * std::fabs(g)};
  }
  /// In the paper betas are what is new of an average.
  void adan() {
    const Fuzzy g{is("maximize") ? -e.grad : e.grad, 2 * std::fabs(e.grad)};
    const double beta2 = 1 - s["beta2"];
    const Fuzzy diff = first ? Fuzzy{0} : g - slots[3];
    const Fuzzy ahead = g + c(1 - beta2) * diff;
    mix(slots[0], s["beta1"], g);
    mix(slots[1], s["beta2"], diff);
    mix(slots[2], s["beta3"], ahead * ahead);
    slots[3] = g;
    const Fuzzy m_hat = slots[0] / c(corrected("beta1")), v_hat = slots[1] / c(corrected("beta2"));
    const Fuzzy eta = c(s["lr"]) / (root(slots[2] / c(corrected("beta3"))) + c(s["eps"]));
    theta = (theta - eta * (m_hat + c(1 - beta2) * v_hat)) / c(1 + s["lr"] * s["weight_decay"]);
  }
  /// Its slow average as in the paper's appendix, where logarithms are of f: 0.5 = beta^(t + 1).
  void ademamix() {
    const Fuzzy g{is("maximize") ? -e.grad : e.grad, 2 * std::fabs(e.grad)};
    moments(g);
    const double t = double(step);
    const auto part = [&](const char* steps) { return t < s[steps] ? t / s[steps] : 1; };
    const auto half_life = [](double beta) { return std::log(0.5) / std::log(beta) - 1; };
    double beta3 = s["beta3"];
    if (const double u = part("beta3_warmup"); u < 1) {
      const double life = (1 - u) * half_life(s["beta1"]) + u * half_life(beta3);
      beta3 = std::min(beta3, std::pow(0.5, 1 / (life + 1)));
    }
    mix(slots[2], beta3, g);
    const Fuzzy m_hat = slots[0] / c(corrected("beta1")), v_hat = slots[1] / c(corrected("beta2"));
    const Fuzzy mixed = m_hat + c(s["alpha"] * part("alpha_warmup")) * slots[2];
    theta = c(1 - s["lr"] * s["weight_decay"]) * theta -
            c(s["lr"]) * (mixed / (root(v_hat) + c(s["eps"])));
  }

  /// In the terms of kTolerance, at twice what one rounding may lose.
  Expected expected() const {
    constexpr double kScale = 0x1p-23 / kTolerance;
    Expected made{};
    made.param = theta.value;
    made.param_size = theta.error * kScale;
    for (int i = 0; i < kMaxSlots; ++i) {
      made.slots[i] = slots[i].value;
      made.slot_size[i] = slots[i].error * kScale;
    }
    return made;
  }
};

Expected expect(int32_t optimizer, const Element& e, const Values& values, int64_t step,
                bool first) {
  if (optimizer == ZERO_OPTIMIZER_SGD) return sgd_in_double(e, values, first);
  if (optimizer <= ZERO_OPTIMIZER_ADAM) {
    return adam_in_double(e, values, step, optimizer == ZERO_OPTIMIZER_ADAMW);
  }
  static const std::map<int32_t, void (Model::*)()> kModels = {
      {ZERO_OPTIMIZER_RMSPROP, &Model::rmsprop},   {ZERO_OPTIMIZER_ADAGRAD, &Model::adagrad},
      {ZERO_OPTIMIZER_LION, &Model::lion},         {ZERO_OPTIMIZER_ADAMAX, &Model::adamax},
      {ZERO_OPTIMIZER_ADADELTA, &Model::adadelta}, {ZERO_OPTIMIZER_RADAM, &Model::radam},
      {ZERO_OPTIMIZER_NADAM, &Model::nadam},       {ZERO_OPTIMIZER_RPROP, &Model::rprop},
      {ZERO_OPTIMIZER_ADAN, &Model::adan},         {ZERO_OPTIMIZER_ADEMAMIX, &Model::ademamix}};
  Model model{e, values, step, first};
  (model.*kModels.at(optimizer))();
  return model.expected();
}

/// Rule::next_product of all steps before this one.
double product_before(const Rule& rule, const std::vector<double>& settings, int64_t step) {
  double product = 1;
  if (rule.next_product == nullptr) return product;
  for (int64_t t = 1; t < step; ++t)
    product = rule.next_product({settings.data(), t, ~0u, 1, product});
  return product;
}

/// Values that a slot of that name can have.
template <class Real>
Real random_state(std::string_view slot, Real square_avg, std::mt19937_64& random) {
  std::normal_distribution<Real> normal;
  const Real value = normal(random);
  if (slot == "grad_avg") return std::tanh(value) * Real(0.7) * std::sqrt(square_avg);
  const bool any_sign = slot == "exp_avg" || slot == "exp_avg_diff" || slot == "prev_grad" ||
                        slot == "exp_avg_slow" || slot == "momentum_buffer" || slot == "prev";
  return any_sign ? value : value * value + Real(1e-6);
}

/// How much more than fp32's the error of a type may be. An fp64 one is that of the scalars too:
/// 1 - beta^step cancels, which one rounding to fp32 hides.
template <class Real>
constexpr double kShare = 1;
template <>
constexpr double kShare<double> = 1e-4;

template <class Real>
void check_rule_in(int32_t optimizer, const std::vector<double>& settings, int64_t step, bool first,
                   std::mt19937_64& random) {
  const Rule& rule = rule_of(optimizer);
  std::normal_distribution<Real> normal;
  std::vector<Real> param(kElements), grad(kElements), slots[kMaxSlots];
  for (auto& slot : slots) slot.resize(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    param[i] = normal(random);
    grad[i] = normal(random) * std::pow(Real(10), Real(random() % 7) - 4);
    for (size_t s = 0; s < rule.slots.size(); ++s) {
      slots[s][i] = random_state(rule.slots[s], slots[0][i], random);
    }
  }
  const auto old_param = param;
  std::vector<Real> old_slots[kMaxSlots];
  std::copy(std::begin(slots), std::end(slots), old_slots);
  const double factor = 1.0 / 3;
  const Scalars scalars = rule.prepare(
      {settings.data(), step, first ? 0u : ~0u, factor, product_before(rule, settings, step)});
  UpdateRunOf<Real> run{param.data(), grad.data(), {}, kElements};
  for (int s = 0; s < kMaxSlots; ++s) run.slots[s] = slots[s].data();
  test::update_kernel<Real>(Isa::scalar, optimizer)(run, scalars);

  constexpr double tolerance = kTolerance * kShare<Real>;
  const Values values{rule, settings};
  for (size_t i = 0; i < kElements; ++i) {
    Element e{old_param[i], grad[i] * factor, {}};
    for (int slot = 0; slot < kMaxSlots; ++slot) e.slots[slot] = old_slots[slot][i];
    const Expected expected = expect(optimizer, e, values, step, first);
    ASSERT_NEAR(param[i], expected.param, tolerance * expected.param_size) << "param " << i;
    for (int s = 0; s < kMaxSlots; ++s) {
      ASSERT_NEAR(slots[s][i], expected.slots[s], tolerance * expected.slot_size[s])
          << "slot " << s << " element " << i;
    }
  }
}

/// In fp32 and in fp64.
void check_rule(int32_t optimizer, const std::vector<double>& settings, int64_t step, bool first,
                std::mt19937_64& random) {
  check_rule_in<float>(optimizer, settings, step, first, random);
  if (::testing::Test::HasFatalFailure()) return;
  SCOPED_TRACE("in fp64");
  check_rule_in<double>(optimizer, settings, step, first, random);
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

TEST(Rule, all_others_follow_their_published_formulas) {
  std::mt19937_64 random(6);
  for (int32_t optimizer = ZERO_OPTIMIZER_RMSPROP; optimizer < kRuleCount; ++optimizer) {
    if (rule_of(optimizer).trust != nullptr) continue;  // see below
    const Rule& rule = rule_of(optimizer);
    for (int combination = 0; combination < 64; ++combination) {
      const auto bit = [&](int place) -> double { return combination >> place & 1; };
      for (const int64_t step : {1, 2, 5, 6, 7, 1000}) {
        SCOPED_TRACE(std::string(rule.name) + " combination " + std::to_string(combination) +
                     " step " + std::to_string(step));
        const std::vector<Change> changes = {{"lr", 0.02},
                                             {"eps", bit(5) != 0 ? 1e-6 : 1e-3},
                                             {"weight_decay", bit(0) * 0.1},
                                             {"maximize", bit(1)},
                                             {"momentum", bit(2) * 0.9},
                                             {"decoupled_weight_decay", bit(2)},
                                             {"centered", bit(3)},
                                             {"lr_decay", bit(3) * 0.1},
                                             {"momentum_decay", bit(3) * 0.3},
                                             {"initial_accumulator_value", bit(2) * 0.5},
                                             {"beta1", bit(4) != 0 ? 0.3 : 0.9},
                                             {"beta2", bit(4) != 0 ? 0.8 : 0.999},
                                             {"alpha", bit(4) != 0 ? 0.8 : 0.99},
                                             {"beta3", bit(4) != 0 ? 0.7 : 0.9999},
                                             {"alpha_warmup", bit(2) * 6},
                                             {"beta3_warmup", bit(3) * 700},
                                             {"rho", bit(4) != 0 ? 0.5 : 0.9},
                                             {"step_size_min", bit(3) * 0.1}};
        check_rule(optimizer, with(rule, known(rule, changes)), step, bit(5) != 0, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// The norm of what fp32 made, in first order.
Fuzzy norm_of(const std::vector<Fuzzy>& values) {
  double squares = 0, error = 0;
  for (const Fuzzy& one : values) {
    squares += one.value * one.value;
    error += std::fabs(one.value) * one.error;
  }
  const double norm = std::sqrt(squares);
  return {norm, norm == 0 ? 0 : error / norm};
}

/// A whole tensor's step by the papers of LAMB and LARS. `first`: the slots hold nothing.
struct TensorModel {
  const Values& s;
  std::vector<Fuzzy> theta, g, slots[2];

  Fuzzy ratio(Fuzzy size, Fuzzy by) const {
    const bool adapts = s["weight_decay"] != 0 || s["always_adapt"] != 0;
    return adapts && size.value > 0 && by.value > 0 ? size / by : Fuzzy{1};
  }
  void lamb(int64_t step) {
    const Fuzzy norm = norm_of(theta);
    std::vector<Fuzzy> u;
    for (size_t i = 0; i < theta.size(); ++i) {
      Model::mix(slots[0][i], s["beta1"], g[i]);
      Model::mix(slots[1][i], s["beta2"], g[i] * g[i]);
      const Fuzzy m_hat = slots[0][i] / c(1 - std::pow(s["beta1"], double(step)));
      const Fuzzy v_hat = slots[1][i] / c(1 - std::pow(s["beta2"], double(step)));
      u.push_back(m_hat / (root(v_hat) + c(s["eps"])) + c(s["weight_decay"]) * theta[i]);
    }
    const Fuzzy scale = c(s["lr"]) * ratio(norm, norm_of(u));
    for (size_t i = 0; i < theta.size(); ++i) theta[i] = theta[i] - scale * u[i];
  }
  void lars(bool first) {
    const Fuzzy norm = norm_of(theta), of_grad = norm_of(g);
    Fuzzy local = ratio(c(s["trust_coefficient"]) * norm,
                        of_grad + c(s["weight_decay"]) * norm + c(s["eps"]));
    if (of_grad.value == 0) local = {1};
    for (size_t i = 0; i < theta.size(); ++i) {
      Fuzzy step = local * (g[i] + c(s["weight_decay"]) * theta[i]);
      if (s["momentum"] != 0) {
        slots[0][i] = first ? step : c(s["momentum"]) * slots[0][i] + step;
        step = s["nesterov"] != 0 ? step + c(s["momentum"]) * slots[0][i] : slots[0][i];
      }
      theta[i] = theta[i] - c(s["lr"]) * step;
    }
  }
};

/// `zeros`: 1: the parameter is all zeros, 2: the gradient is, and with it all state.
template <class Real>
void check_tensor(int32_t optimizer, const std::vector<double>& settings, int64_t step, int zeros,
                  std::mt19937_64& random) {
  const Rule& rule = rule_of(optimizer);
  std::normal_distribution<Real> normal;
  const Values values{rule, settings};
  TensorModel model{values, {}, {}, {}};
  const double factor = 1.0 / 3;
  std::vector<Real> param(kElements), grad(kElements), slots[2];
  for (auto& slot : slots) slot.resize(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    param[i] = zeros == 1 ? 0 : normal(random);
    grad[i] = zeros == 2 ? 0 : normal(random) * std::pow(Real(10), Real(random() % 7) - 4);
    for (size_t s = 0; s < rule.slots.size() && zeros != 2; ++s)
      slots[s][i] = random_state(rule.slots[s], slots[0][i], random);
    const double g = grad[i] * factor;
    model.theta.push_back({param[i]});
    model.g.push_back({values["maximize"] != 0 ? -g : g, 2 * std::fabs(g)});
    for (size_t s = 0; s < 2; ++s) model.slots[s].push_back({slots[s][i]});
  }
  const UpdateRunOf<Real> run{
      param.data(), grad.data(), {slots[0].data(), slots[1].data()}, kElements};
  const StepContext context{settings.data(), step, step == 1 ? 0u : ~0u, factor};
  whole_step(kernel_table(Isa::scalar), optimizer, run, context);
  optimizer == ZERO_OPTIMIZER_LAMB ? model.lamb(step) : model.lars(step == 1);
  constexpr double kOne = 0x1p-23 * kShare<Real>;
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(param[i], model.theta[i].value, kOne * model.theta[i].error) << "param " << i;
    for (size_t s = 0; s < 2; ++s)
      ASSERT_NEAR(slots[s][i], model.slots[s][i].value, kOne * model.slots[s][i].error)
          << "slot " << s << " element " << i;
  }
}

TEST(Rule, lamb_and_lars_follow_their_published_formulas) {
  std::mt19937_64 random(8);
  for (const int32_t optimizer : {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS}) {
    const Rule& rule = rule_of(optimizer);
    for (int combination = 0; combination < 64; ++combination) {
      const auto bit = [&](int place) -> double { return combination >> place & 1; };
      for (const int64_t step : {1, 2, 1000}) {
        SCOPED_TRACE(std::string(rule.name) + " combination " + std::to_string(combination) +
                     " step " + std::to_string(step));
        const std::vector<Change> changes = {{"lr", 0.02},
                                             {"eps", bit(5) != 0 ? 1e-6 : 1e-2},
                                             {"weight_decay", bit(0) * 0.1},
                                             {"always_adapt", bit(1)},
                                             {"maximize", bit(2)},
                                             {"momentum", bit(3) * 0.9},
                                             {"nesterov", bit(4)},
                                             {"trust_coefficient", bit(5) != 0 ? 0.7 : 0.01},
                                             {"beta1", bit(3) != 0 ? 0.3 : 0.9},
                                             {"beta2", bit(3) != 0 ? 0.8 : 0.999}};
        for (const int zeros : {0, 1, 2}) {
          check_tensor<float>(optimizer, with(rule, known(rule, changes)), step, zeros, random);
          check_tensor<double>(optimizer, with(rule, known(rule, changes)), step, zeros, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Rule, trust_ratios_are_1_where_a_norm_is_0_or_nothing_decays_and_keep_a_nan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int32_t optimizer : {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS}) {
    const Rule& rule = rule_of(optimizer);
    const auto ratio = [&](double decay, double always, double param, double direction) {
      return rule.trust->ratio(with(rule, {{"weight_decay", decay}, {"always_adapt", always}}),
                               param, direction);
    };
    EXPECT_EQ(ratio(0, 0, 3, 2), 1) << rule.name;
    for (const double decay : {0.0, 0.5}) {
      EXPECT_EQ(ratio(decay, 1, 0, 2), 1) << rule.name;
      EXPECT_EQ(ratio(decay, 1, 3, 0), 1) << rule.name;
      EXPECT_TRUE(std::isnan(ratio(decay, 1, 3, nan))) << rule.name;
      EXPECT_TRUE(std::isnan(ratio(decay, 1, nan, 3))) << rule.name;
    }
    EXPECT_EQ(ratio(0.5, 0, 3, 2), ratio(0.5, 1, 3, 2)) << rule.name;
    EXPECT_NE(ratio(0.5, 0, 3, 2), 1) << rule.name;
  }
  EXPECT_EQ(rule_of(ZERO_OPTIMIZER_ADAMW).trust, nullptr);
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
    return same(param, other.param) &&
           std::equal(std::begin(slots), std::end(slots), std::begin(other.slots), same);
  }
};

Trained train(int32_t optimizer, const std::vector<double>& settings, float scale, double factor,
              float first_param = 0.5f) {
  const Rule& rule = rule_of(optimizer);
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal;
  Trained state;
  std::vector<float> grad(100);
  state.param.resize(grad.size());
  for (auto& slot : state.slots) slot.resize(grad.size());
  for (float& value : state.param) value = normal(random);
  state.param[0] = first_param;
  for (int64_t step = 1; step <= 5; ++step) {
    for (float& value : grad) value = normal(random) * scale;
    UpdateRun run{state.param.data(), grad.data(), {}, grad.size()};
    for (int slot = 0; slot < kMaxSlots; ++slot) run.slots[slot] = state.slots[slot].data();
    whole_step(
        kernel_table(Isa::scalar), optimizer, run,
        {settings.data(), step, step > 1 ? ~0u : 0u, factor, product_before(rule, settings, step)});
  }
  return state;
}

TEST(Rule, maximizing_is_minimizing_the_negated_gradient) {
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    std::vector<Change> changes =
        known(rule_of(optimizer), {{"weight_decay", 0.1}, {"momentum", 0.9}});
    const std::vector<double> minimize = with(rule_of(optimizer), changes);
    changes.push_back({"maximize", 1});
    EXPECT_TRUE(train(optimizer, with(rule_of(optimizer), changes), 1, 1) ==
                train(optimizer, minimize, -1, 1));
  }
}

TEST(Rule, the_factor_multiplies_the_sum_before_anything_else) {
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    const Rule& rule = rule_of(optimizer);
    const std::vector<double> settings = with(rule, known(rule, {{"weight_decay", 0.1}}));
    EXPECT_TRUE(train(optimizer, settings, 1, 0.125) == train(optimizer, settings, 0.125f, 1));
  }
}

TEST(Rule, without_decay_a_parameter_never_reaches_its_state) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    const Rule& rule = rule_of(optimizer);
    const std::vector<double> settings =
        with(rule, known(rule, {{"momentum", 0.9}, {"weight_decay", 0}}));
    const Trained trained = train(optimizer, settings, 1, 1, infinity);
    for (const auto& slot : trained.slots) EXPECT_TRUE(std::isfinite(slot[0])) << rule.name;
  }
}

TEST(Rule, a_momentum_buffer_that_holds_nothing_becomes_the_gradient) {
  const Rule& sgd = rule_of(ZERO_OPTIMIZER_SGD);
  const std::vector<double> settings =
      with(sgd, {{"lr", 1}, {"momentum", 0.5}, {"dampening", 0.5}});
  float param = 0, buffer = std::numeric_limits<float>::quiet_NaN();
  const float grad = 4;
  const UpdateRun run{&param, &grad, {&buffer}, 1};
  kernel_table(best_isa())
      .update[ZERO_OPTIMIZER_SGD](run, sgd.prepare({settings.data(), 17, 0, 1}));
  EXPECT_EQ(buffer, 4);
  EXPECT_EQ(param, -4);
  kernel_table(best_isa()).update[ZERO_OPTIMIZER_SGD](run, sgd.prepare({settings.data(), 1, 1, 1}));
  EXPECT_EQ(buffer, 0.5f * 4 + 0.5f * 4);
  EXPECT_EQ(param, -8);
}

TEST(Rule, a_sum_that_holds_nothing_starts_at_its_initial_value) {
  const Rule& adagrad = rule_of(ZERO_OPTIMIZER_ADAGRAD);
  const std::vector<double> settings =
      with(adagrad, {{"lr", 1}, {"initial_accumulator_value", 9}, {"eps", 0}});
  float param = 0, sum = std::numeric_limits<float>::quiet_NaN();
  const float grad = 4;
  const UpdateRun run{&param, &grad, {&sum}, 1};
  const UpdateKernel update = kernel_table(best_isa()).update[ZERO_OPTIMIZER_ADAGRAD];
  update(run, adagrad.prepare({settings.data(), 3, 0, 1}));
  EXPECT_EQ(sum, 25);
  EXPECT_EQ(param, -4.0f / 5);
  update(run, adagrad.prepare({settings.data(), 1, 1, 1}));
  EXPECT_EQ(sum, 41);
}

TEST(Rule, step_sizes_that_hold_nothing_start_at_the_rate_and_later_rates_change_nothing) {
  const Rule& rprop = rule_of(ZERO_OPTIMIZER_RPROP);
  float param = 0, prev = -1, step_size = 7;
  float grad = 4;
  const UpdateRun run{&param, &grad, {&prev, &step_size}, 1};
  const UpdateKernel update = kernel_table(best_isa()).update[ZERO_OPTIMIZER_RPROP];
  update(run, rprop.prepare({with(rprop, {{"lr", 0.25}}).data(), 1, 0, 1}));
  EXPECT_EQ(param, -0.25f);
  EXPECT_EQ(step_size, 0.25f);
  const Scalars later = rprop.prepare(
      {with(rprop, {{"lr", 8}, {"eta_plus", 2}, {"eta_minus", 0.25}}).data(), 2, 0b11, 1});
  update(run, later);
  EXPECT_EQ(param, -0.75f);
  grad = -1;  // a change of sign is no step, and is forgotten
  update(run, later);
  EXPECT_EQ(param, -0.75f);
  EXPECT_EQ(step_size, 0.125f);
  EXPECT_EQ(prev, 0);
  update(run, later);
  EXPECT_EQ(param, -0.625f);
  EXPECT_EQ(step_size, 0.125f);
}

TEST(Rule, a_nan_reaches_the_parameter_unless_only_its_sign_counts_in_torch) {
  for (int32_t optimizer = 0; optimizer < kRuleCount; ++optimizer) {
    const Rule& rule = rule_of(optimizer);
    float param = 1, slots[kMaxSlots];
    std::fill(std::begin(slots), std::end(slots), 0.5f);
    const float grad = std::numeric_limits<float>::quiet_NaN();
    UpdateRun run{&param, &grad, {}, 1};
    for (int slot = 0; slot < kMaxSlots; ++slot) run.slots[slot] = &slots[slot];
    const std::vector<double> settings = defaults(rule);
    EXPECT_EQ(
        whole_step(kernel_table(best_isa()), optimizer, run, {settings.data(), 2, ~0u, 1, 0.5}), 1u)
        << rule.name;
    if (optimizer == ZERO_OPTIMIZER_RPROP) {
      EXPECT_EQ(param, 1) << rule.name;
    } else {
      EXPECT_TRUE(std::isnan(param)) << rule.name;
    }
  }
}

TEST(Rule, amsgrad_keeps_a_nan_that_reached_it) {
  const Rule& adam = rule_of(ZERO_OPTIMIZER_ADAM);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float old_maximum : {1.0f, nan}) {
    float param = 0, exp_avg = 0, exp_avg_sq = std::isnan(old_maximum) ? 1 : nan,
          maximum = old_maximum;
    const float grad = 1;
    kernel_table(best_isa())
        .update[ZERO_OPTIMIZER_ADAM](
            {&param, &grad, {&exp_avg, &exp_avg_sq, &maximum}, 1},
            adam.prepare({with(adam, {{"amsgrad", 1}}).data(), 2, ~0u, 1}));
    EXPECT_TRUE(std::isnan(maximum));
  }
}

TEST(Rule, bias_corrections_hold_from_the_first_step_to_the_billionth) {
  const Rule& adam = rule_of(ZERO_OPTIMIZER_ADAM);
  for (const int64_t step : {1, 2, 3, 10, 999, 123'457, 1'000'000'000}) {
    const Scalars scalars = adam.prepare({defaults(adam).data(), step, ~0u, 1});
    const long double power1 = std::pow(0.9L, static_cast<long double>(step));
    const long double power2 = std::pow(0.999L, static_cast<long double>(step));
    EXPECT_FLOAT_EQ(scalars.value[rules::Adam::step_size], float(1e-3L / (1 - power1))) << step;
    EXPECT_FLOAT_EQ(scalars.value[rules::Adam::root_scale], float(1 / std::sqrt(1 - power2)))
        << step;
  }
}

TEST(Rule, rectification_begins_where_the_average_is_long_enough) {
  const Rule& radam = rule_of(ZERO_OPTIMIZER_RADAM);
  for (const double beta2 : {0.0, 0.5, 0.7, 0.9, 0.99, 0.999, 0.99999}) {
    const std::vector<double> settings = with(radam, {{"beta2", beta2}});
    int64_t first = 0;
    for (int64_t step = 1; step <= 3000; ++step) {
      const long double power = std::pow(static_cast<long double>(beta2), step);
      const long double length =
          2 / (1 - static_cast<long double>(beta2)) - 1 - 2 * step * power / (1 - power);
      const Scalars scalars = radam.prepare({settings.data(), step, ~0u, 1});
      EXPECT_EQ(scalars.flag[rules::Radam::rectified], length > 5) << beta2 << " " << step;
      EXPECT_TRUE(std::isfinite(scalars.value[rules::Radam::step_size])) << beta2 << " " << step;
      if (first == 0 && length > 5) first = step;
    }
    if (beta2 == 0.999) {
      EXPECT_EQ(first, 6);
    }
    if (beta2 < 0.6) {
      EXPECT_EQ(first, 0);
    }
  }
}

TEST(Rule, the_momentum_of_nadam_grows_as_published_from_the_first_step_to_the_billionth) {
  const Rule& nadam = rule_of(ZERO_OPTIMIZER_NADAM);
  for (const double decay : {0.0, 1e-9, 4e-3, 0.3, 1.6, 77.0, 1e9}) {
    const std::vector<double> settings = with(nadam, {{"momentum_decay", decay}});
    for (const int64_t step : {1, 2, 3, 10, 999, 123'457, 1'000'000'000}) {
      const long double power = std::pow(0.96L, static_cast<long double>(decay) * step);
      EXPECT_NEAR(nadam.next_product({settings.data(), step, ~0u, 1, 0.75}),
                  double(0.75L * 0.9L * (1 - power / 2)), 1e-13)
          << decay << " " << step;
    }
  }
}

}  // namespace
}  // namespace zero
