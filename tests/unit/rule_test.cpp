// SPDX-License-Identifier: Apache-2.0
// The rules compared with the published formulas, evaluated in fp64 from the settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "random_elements.h"
#include "rules/list.h"
#include "whole_step.h"
#include "zero.h"

namespace zero {
namespace {

using test::Random;

const Rule& rule_of(int32_t optimizer) { return *find_rule(optimizer); }

struct Change {
  const char* name;
  double value;
};

/// Returns the defaults with `changes`.
std::vector<double> with(const Rule& rule, const std::vector<Change>& changes) {
  std::vector<double> settings = test::defaults_of(rule);
  for (const Change& change : changes)
    settings.at(size_t(find_setting(rule, change.name))) = change.value;
  return settings;
}

/// Returns those of `changes` that the rule knows.
std::vector<Change> known(const Rule& rule, std::vector<Change> changes) {
  std::erase_if(changes, [&](const Change& c) { return find_setting(rule, c.name) < 0; });
  return changes;
}

class EveryRule : public ::testing::TestWithParam<int> {
 protected:
  const int32_t optimizer_ = GetParam();
  const Rule& rule_ = rule_of(optimizer_);
};

INSTANTIATE_TEST_SUITE_P(, EveryRule, ::testing::Range(0, kRuleCount),
                         [](const auto& made) { return rule_of(made.param).name; });

// ---- The table

/// Returns "name=default ..." and the slots, in order.
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

const struct {
  int32_t optimizer;
  const char *name, *settings, *slots;
} kInWords[] = {
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

TEST(Rule, names_settings_defaults_and_slots_are_those_of_the_header_and_of_torch) {
  ASSERT_EQ(std::size(kInWords), size_t{kRuleCount});
  for (const auto& row : kInWords) {
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
      EXPECT_TRUE(setting.range.allows(setting.initial));
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
      EXPECT_TRUE(setting.range.allows(value)) << row.name << value;
    for (const double value : row.refused)
      EXPECT_FALSE(setting.range.allows(value)) << row.name << value;
    EXPECT_STREQ(setting.range.text, row.range) << row.name;
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
    EXPECT_EQ(rule.slots_used(test::defaults_of(rule)), (1u << rule.slots.size()) - 1) << rule.name;
  }
}

// ---- The formulas

/// A number and its possible error in fp32, in roundings of 2^-24 to first order.
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

struct Values {  // settings by name
  const Rule& rule;
  const std::vector<double>& settings;
  double operator[](const char* name) const {
    return settings.at(size_t(find_setting(rule, name)));
  }
  bool is(const char* name) const { return find_setting(rule, name) >= 0 && (*this)[name] != 0; }
};

/// The update of one element, as in the rule's paper. `first`: slots are empty.
struct Model {
  const Values& s;
  const int64_t step;
  const bool first;
  double grad;
  Fuzzy theta;
  Fuzzy slots[kMaxSlots];

  double corrected(const char* beta) const { return 1 - std::pow(s[beta], double(step)); }
  static void mix(Fuzzy& average, double rate, Fuzzy with) {
    average = c(rate) * average + c(1 - rate) * with;
  }
  Fuzzy gradient() const { return {s.is("maximize") ? -grad : grad, 2 * std::fabs(grad)}; }
  void shrink() { theta = c(1 - s["lr"] * s["weight_decay"]) * theta; }
  /// Returns the gradient with weight decay, unless that is decoupled and shrinks theta.
  Fuzzy decayed() {
    if (!s.is("weight_decay")) return gradient();
    if (!s.is("decoupled_weight_decay")) return gradient() + c(s["weight_decay"]) * theta;
    shrink();
    return gradient();
  }
  void moments(Fuzzy g) {
    mix(slots[0], s["beta1"], g);
    mix(slots[1], s["beta2"], g * g);
  }

  void adam_of(Fuzzy g) {
    moments(g);
    if (s.is("amsgrad")) slots[2] = larger(slots[2], slots[1]);
    const Fuzzy m_hat = slots[0] / c(corrected("beta1"));
    const Fuzzy v_hat = slots[s.is("amsgrad") ? 2 : 1] / c(corrected("beta2"));
    theta = theta - c(s["lr"]) * m_hat / (root(v_hat) + c(s["eps"]));
  }
  void adam() { adam_of(decayed()); }
  void adamw() {
    shrink();
    adam_of(gradient());
  }
  void sgd() {
    Fuzzy g = decayed();
    if (s.is("momentum")) {
      slots[0] = first ? g : c(s["momentum"]) * slots[0] + c(1 - s["dampening"]) * g;
      g = s.is("nesterov") ? g + c(s["momentum"]) * slots[0] : slots[0];
    }
    theta = theta - c(s["lr"]) * g;
  }
  void rmsprop() {
    const Fuzzy g = decayed();
    mix(slots[0], s["alpha"], g * g);
    Fuzzy variance = slots[0];
    if (s.is("centered")) {
      mix(slots[2], s["alpha"], g);
      variance = slots[0] - slots[2] * slots[2];
    }
    Fuzzy step_taken = g / (root(variance) + c(s["eps"]));
    if (s.is("momentum")) step_taken = slots[1] = c(s["momentum"]) * slots[1] + step_taken;
    theta = theta - c(s["lr"]) * step_taken;
  }
  void adagrad() {
    const Fuzzy g = decayed();
    slots[0] = (first ? c(s["initial_accumulator_value"]) : slots[0]) + g * g;
    const double rate = s["lr"] / (1 + double(step - 1) * s["lr_decay"]);
    theta = theta - c(rate) * g / (root(slots[0]) + c(s["eps"]));
  }
  void lion() {
    const Fuzzy g = gradient();
    const double direction = sign(s["beta1"] * slots[0].value + (1 - s["beta1"]) * g.value);
    shrink();
    theta = theta - c(s["lr"] * direction);
    mix(slots[0], s["beta2"], g);
  }
  void adamax() {
    const Fuzzy g = decayed();
    mix(slots[0], s["beta1"], g);
    const Fuzzy size{std::fabs(g.value), g.error};
    slots[1] = larger(c(s["beta2"]) * slots[1], size + c(s["eps"]));
    theta = theta - c(s["lr"] / corrected("beta1")) * slots[0] / slots[1];
  }
  void adadelta() {
    const Fuzzy g = decayed();
    mix(slots[0], s["rho"], g * g);
    const Fuzzy delta = root(slots[1] + c(s["eps"])) / root(slots[0] + c(s["eps"])) * g;
    mix(slots[1], s["rho"], delta * delta);
    theta = theta - c(s["lr"]) * delta;
  }
  void radam() {
    moments(decayed());
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
    const Fuzzy g = decayed();
    moments(g);
    double product = 1;
    for (int64_t t = 1; t <= step; ++t) product *= mu(t);
    const Fuzzy m_hat = c(mu(step + 1) / (1 - product * mu(step + 1))) * slots[0] +
                        c((1 - mu(step)) / (1 - product)) * g;
    const Fuzzy v_hat = slots[1] / c(corrected("beta2"));
    theta = theta - c(s["lr"]) * m_hat / (root(v_hat) + c(s["eps"]));
  }
  void rprop() {
    Fuzzy g = gradient();
    const double agreement = first ? 0 : sign(g.value * slots[0].value);
    const double eta = agreement > 0 ? s["eta_plus"] : agreement < 0 ? s["eta_minus"] : 1;
    const Fuzzy wanted = c(eta) * (first ? c(s["lr"]) : slots[1]);
    const double clamped = std::clamp(wanted.value, s["step_size_min"], s["step_size_max"]);
    slots[1] = {clamped, std::max(wanted.error, clamped)};
    if (agreement < 0) g = {0};
    theta = theta - Fuzzy{sign(g.value)} * slots[1];
    slots[0] = g;
  }
  /// The paper's betas are the weights of the new values of averages.
  void adan() {
    const Fuzzy g = gradient();
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
  /// Computes the slow average as in the paper's appendix, where logarithms are of f: 0.5 = beta^(t
  /// + 1).
  void ademamix() {
    const Fuzzy g = gradient();
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
    shrink();
    theta = theta - c(s["lr"]) * (mixed / (root(v_hat) + c(s["eps"])));
  }
};

using Tensor = std::vector<Model>;

/// Returns a norm with its error in fp32, to first order.
template <class Of>
Fuzzy norm_of(const Tensor& tensor, const Of& of) {
  double squares = 0, error = 0;
  for (const Model& element : tensor) {
    const Fuzzy one = of(element);
    squares += one.value * one.value;
    error += std::fabs(one.value) * one.error;
  }
  const double norm = std::sqrt(squares);
  return {norm, norm == 0 ? 0 : error / norm};
}

Fuzzy theta_of(const Model& element) { return element.theta; }
Fuzzy gradient_of(const Model& element) { return element.gradient(); }

Fuzzy trust_ratio(const Values& s, Fuzzy size, Fuzzy by) {
  const bool adapts = s.is("weight_decay") || s.is("always_adapt");
  return adapts && size.value > 0 && by.value > 0 ? size / by : Fuzzy{1};
}

void lamb(Tensor& tensor, const Values& s) {
  const auto direction = [&](const Model& element) {
    const Fuzzy m_hat = element.slots[0] / c(element.corrected("beta1"));
    const Fuzzy v_hat = element.slots[1] / c(element.corrected("beta2"));
    return m_hat / (root(v_hat) + c(s["eps"])) + c(s["weight_decay"]) * element.theta;
  };
  for (Model& element : tensor) element.moments(element.gradient());
  const Fuzzy ratio = trust_ratio(s, norm_of(tensor, theta_of), norm_of(tensor, direction));
  for (Model& element : tensor)
    element.theta = element.theta - c(s["lr"]) * ratio * direction(element);
}

void lars(Tensor& tensor, const Values& s) {
  const Fuzzy norm = norm_of(tensor, theta_of), of_grad = norm_of(tensor, gradient_of);
  Fuzzy local = trust_ratio(s, c(s["trust_coefficient"]) * norm,
                            of_grad + c(s["weight_decay"]) * norm + c(s["eps"]));
  if (of_grad.value == 0) local = {1};
  for (Model& element : tensor) {
    Fuzzy step = local * (element.gradient() + c(s["weight_decay"]) * element.theta);
    if (s.is("momentum")) {
      Fuzzy& buffer = element.slots[0];
      buffer = element.first ? step : c(s["momentum"]) * buffer + step;
      step = s.is("nesterov") ? step + c(s["momentum"]) * buffer : buffer;
    }
    element.theta = element.theta - c(s["lr"]) * step;
  }
}

void step_by_paper(int32_t optimizer, Tensor& tensor, const Values& s) {
  if (optimizer == ZERO_OPTIMIZER_LAMB) return lamb(tensor, s);
  if (optimizer == ZERO_OPTIMIZER_LARS) return lars(tensor, s);
  static const std::map<int32_t, void (Model::*)()> kModels = {
      {ZERO_OPTIMIZER_ADAMW, &Model::adamw},      {ZERO_OPTIMIZER_ADAM, &Model::adam},
      {ZERO_OPTIMIZER_SGD, &Model::sgd},          {ZERO_OPTIMIZER_RMSPROP, &Model::rmsprop},
      {ZERO_OPTIMIZER_ADAGRAD, &Model::adagrad},  {ZERO_OPTIMIZER_LION, &Model::lion},
      {ZERO_OPTIMIZER_ADAMAX, &Model::adamax},    {ZERO_OPTIMIZER_ADADELTA, &Model::adadelta},
      {ZERO_OPTIMIZER_RADAM, &Model::radam},      {ZERO_OPTIMIZER_NADAM, &Model::nadam},
      {ZERO_OPTIMIZER_RPROP, &Model::rprop},      {ZERO_OPTIMIZER_ADAN, &Model::adan},
      {ZERO_OPTIMIZER_ADEMAMIX, &Model::ademamix}};
  for (Model& element : tensor) (element.*kModels.at(optimizer))();
}

/// Returns Rule::next_product of all steps before this one.
double product_before(const Rule& rule, const std::vector<double>& settings, int64_t step) {
  double product = 1;
  if (rule.next_product == nullptr) return product;
  for (int64_t t = 1; t < step; ++t)
    product = rule.next_product({settings.data(), t, ~0u, 1, product});
  return product;
}

/// Returns a value that a slot of that name can have.
template <class Real>
Real random_state(std::string_view slot, Real square_avg, Random& random) {
  std::normal_distribution<Real> normal;
  const Real value = normal(random);
  if (slot == "grad_avg") return std::tanh(value) * Real(0.7) * std::sqrt(square_avg);
  const bool any_sign = slot == "exp_avg" || slot == "exp_avg_diff" || slot == "prev_grad" ||
                        slot == "exp_avg_slow" || slot == "momentum_buffer" || slot == "prev";
  return any_sign ? value : value * value + Real(1e-6);
}

/// The tolerance of a type relative to that of fp32. In fp64 it includes the error of scalars: 1 -
/// beta^step cancels, which rounding to fp32 hides.
template <class Real>
constexpr double kShare = 1;
template <>
constexpr double kShare<double> = 1e-4;

struct Moment {
  int64_t step;
  bool first;              // slots are empty
  bool no_param, no_grad;  // all zeros; without a gradient, state is also zero
};

template <class Real>
void check_step_in(int32_t optimizer, const std::vector<double>& settings, const Moment& moment,
                   Random& random) {
  constexpr size_t kElements = 257;
  constexpr double kFactor = 1.0 / 3;
  const Rule& rule = rule_of(optimizer);
  const Values values{rule, settings};
  std::normal_distribution<Real> normal;
  std::vector<Real> param(kElements), grad(kElements), slots[kMaxSlots];
  const uint32_t used = rule.slots_used(settings);
  constexpr Real kUnread = std::numeric_limits<Real>::quiet_NaN();  // shows any read
  for (int s = 0; s < kMaxSlots; ++s)
    slots[s].resize(kElements, (used >> s & 1) != 0 ? 0 : kUnread);
  Tensor tensor;
  for (size_t i = 0; i < kElements; ++i) {
    if (!moment.no_param) param[i] = normal(random);
    if (!moment.no_grad) grad[i] = normal(random) * std::pow(Real(10), Real(random() % 7) - 4);
    for (size_t s = 0; s < rule.slots.size() && !moment.no_grad; ++s)
      if ((used >> s & 1) != 0) slots[s][i] = random_state(rule.slots[s], slots[0][i], random);
    Model& model = tensor.emplace_back(
        Model{values, moment.step, moment.first, grad[i] * kFactor, {param[i]}, {}});
    for (int s = 0; s < kMaxSlots; ++s) model.slots[s] = {slots[s][i]};
  }
  UpdateRunOf<Real> run{param.data(), grad.data(), {}, kElements};
  for (int s = 0; s < kMaxSlots; ++s) run.slots[s] = slots[s].data();
  test::whole_step(Isa::scalar, optimizer, run,
                   {settings.data(), moment.step, moment.first ? 0u : ~0u, kFactor,
                    product_before(rule, settings, moment.step)});
  step_by_paper(optimizer, tensor, values);
  constexpr double kOne = 0x1p-23 * kShare<Real>;  // twice the largest error of a rounding
  for (size_t i = 0; i < kElements; ++i) {
    const Model& model = tensor[i];
    ASSERT_NEAR(param[i], model.theta.value, kOne * model.theta.error) << "param " << i;
    for (int s = 0; s < kMaxSlots; ++s) {
      const bool stands = std::memcmp(&slots[s][i], &kUnread, sizeof kUnread) == 0;
      ASSERT_EQ(stands, (used >> s & 1) == 0) << "slot " << s << " element " << i;
      if (stands) continue;
      ASSERT_NEAR(slots[s][i], model.slots[s].value, kOne * model.slots[s].error)
          << "slot " << s << " element " << i;
    }
  }
}

/// Returns settings in which the bits of `choice` switch features of the formula on. For each
/// numeric setting, one of two values is selected.
std::vector<double> telling_settings(const Rule& rule, unsigned choice, Random& random) {
  const Change on[] = {{"weight_decay", 0.1},   {"maximize", 1},
                       {"momentum", 0.9},       {"dampening", 0.4},
                       {"nesterov", 1},         {"amsgrad", 1},
                       {"centered", 1},         {"decoupled_weight_decay", 1},
                       {"always_adapt", 1},     {"lr_decay", 0.1},
                       {"momentum_decay", 0.3}, {"initial_accumulator_value", 0.5},
                       {"alpha_warmup", 6},     {"beta3_warmup", 700},
                       {"step_size_min", 0.1}};
  const Change numbers[][2] = {{{"lr", 0.02}, {"lr", 0.05}},
                               {{"eps", 1e-6}, {"eps", 1e-3}},
                               {{"beta1", 0.3}, {"beta1", 0.9}},
                               {{"beta2", 0.8}, {"beta2", 0.999}},
                               {{"beta3", 0.7}, {"beta3", 0.9999}},
                               {{"alpha", 0.8}, {"alpha", 0.99}},
                               {{"rho", 0.5}, {"rho", 0.9}},
                               {{"trust_coefficient", 0.01}, {"trust_coefficient", 0.7}}};
  std::vector<Change> changes;
  for (const Change& one : known(rule, {std::begin(on), std::end(on)})) {
    changes.push_back({one.name, choice % 2 == 1 ? one.value : 0});
    choice /= 2;
  }
  for (const auto& two : numbers) changes.push_back(two[random() % 2]);
  return with(rule, known(rule, changes));
}

/// In fp32 and in fp64.
TEST_P(EveryRule, follows_its_published_formula) {
  Random random(3);
  const int zeros = rule_.trust == nullptr ? 1 : 3;  // with norms: none, param, grad
  for (unsigned choice = 0; choice < 32; ++choice) {
    for (const int64_t step : {1, 2, 5, 6, 7, 1000}) {
      for (int turn = 0; turn < 2 * zeros; ++turn) {
        const std::vector<double> settings = telling_settings(rule_, choice, random);
        const Moment moment{step, turn < zeros, turn % zeros == 1, turn % zeros == 2};
        SCOPED_TRACE("step " + std::to_string(step) + ", turn " + std::to_string(turn) +
                     ", settings " + ::testing::PrintToString(settings));
        check_step_in<float>(optimizer_, settings, moment, random);
        check_step_in<double>(optimizer_, settings, moment, random);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Rule, trust_ratios_keep_a_nan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int32_t optimizer : {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS}) {
    const Rule& rule = rule_of(optimizer);
    for (const double decay : {0.0, 0.5}) {
      const auto settings = with(rule, {{"weight_decay", decay}, {"always_adapt", 1}});
      EXPECT_TRUE(std::isnan(rule.trust->ratio(settings, 3, nan))) << rule.name;
      EXPECT_TRUE(std::isnan(rule.trust->ratio(settings, nan, 3))) << rule.name;
    }
  }
}

// ---- Consequences of the formulas, bitwise

constexpr size_t kTrained = 100;

/// Returns the bits of `kTrained` parameters and their slots after five steps.
std::vector<uint32_t> train(const Rule& rule, int32_t optimizer,
                            const std::vector<double>& settings, float scale, double factor,
                            float first_param = 0.5f) {
  Random random(9);
  std::normal_distribution<float> normal;
  std::vector<float> state((1 + kMaxSlots) * kTrained), grad(kTrained);
  for (size_t i = 0; i < kTrained; ++i) state[i] = i == 0 ? first_param : normal(random);
  for (int64_t step = 1; step <= 5; ++step) {
    for (float& value : grad) value = normal(random) * scale;
    UpdateRun run{state.data(), grad.data(), {}, kTrained};
    for (size_t slot = 0; slot < kMaxSlots; ++slot)
      run.slots[slot] = state.data() + (1 + slot) * kTrained;
    test::whole_step(
        Isa::scalar, optimizer, run,
        {settings.data(), step, step > 1 ? ~0u : 0u, factor, product_before(rule, settings, step)});
  }
  std::vector<uint32_t> bits;
  for (const float value : state) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST_P(EveryRule, maximizing_is_minimizing_the_negated_gradient) {
  std::vector<Change> changes = known(rule_, {{"weight_decay", 0.1}, {"momentum", 0.9}});
  const auto minimized = train(rule_, optimizer_, with(rule_, changes), -1, 1);
  changes.push_back({"maximize", 1});
  EXPECT_EQ(train(rule_, optimizer_, with(rule_, changes), 1, 1), minimized);
}

TEST_P(EveryRule, the_factor_multiplies_the_sum_before_anything_else) {
  const std::vector<double> settings = with(rule_, known(rule_, {{"weight_decay", 0.1}}));
  EXPECT_EQ(train(rule_, optimizer_, settings, 1, 0.125),
            train(rule_, optimizer_, settings, 0.125f, 1));
}

TEST_P(EveryRule, without_decay_a_parameter_never_reaches_its_state) {
  const std::vector<double> settings =
      with(rule_, known(rule_, {{"momentum", 0.9}, {"weight_decay", 0}}));
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<uint32_t> trained = train(rule_, optimizer_, settings, 1, 1, infinity);
  for (size_t slot = 0; slot < kMaxSlots; ++slot)
    EXPECT_TRUE(std::isfinite(std::bit_cast<float>(trained[(1 + slot) * kTrained])));
}

/// One element that is updated repeatedly.
struct OneElement {
  const int32_t optimizer;
  float param = 0, grad = 4;
  float slots[kMaxSlots] = {};

  uint64_t update(const std::vector<Change>& changes, int64_t step, uint32_t live) {
    const std::vector<double> settings = with(rule_of(optimizer), changes);
    UpdateRun run{&param, &grad, {}, 1};
    for (int slot = 0; slot < kMaxSlots; ++slot) run.slots[slot] = &slots[slot];
    return test::whole_step(best_isa(), optimizer, run, {settings.data(), step, live, 1, 0.5});
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Rule, a_momentum_buffer_that_holds_nothing_becomes_the_gradient) {
  const std::vector<Change> changes = {{"lr", 1}, {"momentum", 0.5}, {"dampening", 0.5}};
  OneElement one{ZERO_OPTIMIZER_SGD};
  one.slots[0] = kNan;
  one.update(changes, 17, 0);
  EXPECT_EQ(one.slots[0], 4);
  EXPECT_EQ(one.param, -4);
  one.update(changes, 1, 1);
  EXPECT_EQ(one.slots[0], 0.5f * 4 + 0.5f * 4);
  EXPECT_EQ(one.param, -8);
}

TEST_P(EveryRule, a_nan_reaches_the_parameter_unless_only_its_sign_counts_in_torch) {
  OneElement one{optimizer_, 1, kNan};
  std::fill(std::begin(one.slots), std::end(one.slots), 0.5f);
  EXPECT_EQ(one.update({}, 2, ~0u), 1u);
  if (optimizer_ == ZERO_OPTIMIZER_RPROP) {
    EXPECT_EQ(one.param, 1);
  } else {
    EXPECT_TRUE(std::isnan(one.param));
  }
}

TEST(Rule, amsgrad_keeps_a_nan_that_reached_it) {
  for (const float old_maximum : {1.0f, kNan}) {
    OneElement one{ZERO_OPTIMIZER_ADAM, 0, 1, {0, std::isnan(old_maximum) ? 1 : kNan, old_maximum}};
    one.update({{"amsgrad", 1}}, 2, ~0u);
    EXPECT_TRUE(std::isnan(one.slots[2]));
  }
}

TEST(Rule, bias_corrections_hold_from_the_first_step_to_the_billionth) {
  const Rule& adam = rule_of(ZERO_OPTIMIZER_ADAM);
  for (const int64_t step : {1, 2, 3, 10, 999, 123'457, 1'000'000'000}) {
    const Scalars scalars = adam.prepare({with(adam, {}).data(), step, ~0u, 1});
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
