// SPDX-License-Identifier: Apache-2.0
#include "own_rules.h"

#include <cmath>
#include <limits>

namespace zero::test {
namespace {

zero_status call(void* ctx, const zero_update* update) {
  return static_cast<const OwnRule*>(ctx)->update(*update);
}

double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base = base * base) {
    if (exponent % 2 == 1) result = result * base;
  }
  return result;
}

template <class Real>
void adamw(const zero_update& update) {
  auto* const p = static_cast<Real*>(update.values);
  const auto* const g = static_cast<const Real*>(update.gradient);
  auto* const m = static_cast<Real*>(update.slots[0]);
  auto* const v = static_cast<Real*>(update.slots[1]);
  const double beta1 = setting_of(update, "beta1"), beta2 = setting_of(update, "beta2");
  const Real keep = Real(1 - update.lr * update.weight_decay);
  const Real size = Real(update.lr / (1 - power(beta1, update.step)));
  const Real root = Real(1 / std::sqrt(1 - power(beta2, update.step)));
  const Real eps = Real(setting_of(update, "eps"));
  for (int64_t i = 0; i < update.count; i++) {
    m[i] = m[i] * Real(beta1) + g[i] * Real(1 - beta1);
    v[i] = v[i] * Real(beta2) + (g[i] * Real(1 - beta2)) * g[i];
    p[i] = p[i] * keep - (m[i] * size) / (std::sqrt(v[i]) * root + eps);
  }
}

template <class Real>
double norm(const Real* values, int64_t count) {
  long double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
  return static_cast<double>(std::sqrt(sum));
}

template <class Real>
void lars(const zero_update& update) {
  auto* const p = static_cast<Real*>(update.values);
  auto* const g = static_cast<Real*>(update.gradient);
  auto* const buffer = static_cast<Real*>(update.slots[0]);
  const double of_param = norm(p, update.count), of_grad = norm(g, update.count);
  double trust = 1;
  if (update.weight_decay != 0 && of_param > 0 && of_grad > 0) {
    trust = setting_of(update, "trust_coefficient") * of_param /
            (of_grad + update.weight_decay * of_param + setting_of(update, "eps"));
  }
  const double momentum = setting_of(update, "momentum");
  for (int64_t i = 0; i < update.count; i++) {
    if (update.weight_decay != 0) g[i] = g[i] + Real(update.weight_decay) * p[i];
    const Real step = g[i] * Real(trust);
    buffer[i] = update.step > 1 ? Real(momentum) * buffer[i] + step : step;
    p[i] = p[i] - Real(update.lr) * buffer[i];
  }
}

template <void (*single)(const zero_update&), void (*wide)(const zero_update&)>
zero_status either(const zero_update& update) {
  update.dtype == ZERO_FLOAT64 ? wide(update) : single(update);
  return ZERO_OK;
}

}  // namespace

Declared::Declared(const OwnRule& rule) {
  for (const std::string& slot : rule.slots) slots_.push_back(slot.c_str());
  for (const auto& [name, value] : rule.settings) {
    names_.push_back(name.c_str());
    values_.push_back(value);
  }
  ZERO_INIT(custom_);
  custom_.name = rule.name.c_str();
  custom_.update = call;
  custom_.ctx = const_cast<OwnRule*>(&rule);
  custom_.slots = slots_.data();
  custom_.slot_count = slots_.size();
  custom_.setting_names = names_.data();
  custom_.setting_values = values_.data();
  custom_.setting_count = names_.size();
  custom_.flags = rule.whole_tensors ? ZERO_CUSTOM_WHOLE_TENSORS : 0;
}

OwnRule own_adamw() {
  return {.name = "my-adamw",
          .slots = {"exp_avg", "exp_avg_sq"},
          .settings = {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}},
          .update = either<adamw<float>, adamw<double>>};
}

OwnRule own_lars() {
  return {.name = "my.lars",
          .slots = {"momentum_buffer"},
          .settings = {{"lr", 1}, {"momentum", 0}, {"trust_coefficient", 1e-3}, {"eps", 1e-8}},
          .whole_tensors = true,
          .update = either<lars<float>, lars<double>>};
}

double setting_of(const zero_update& update, const std::string& name) {
  for (size_t i = 0; i < update.setting_count; i++) {
    if (name == update.setting_names[i]) return update.setting_values[i];
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace zero::test
