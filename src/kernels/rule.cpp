// SPDX-License-Identifier: Apache-2.0
// The optimizers' rows: settings, state slots, and the scalars that rules.h takes. Scalars are
// formed in fp64 and rounded once, with no call into libm, so that they are the same on every
// machine.
#include "kernels/rule.h"

#include <cmath>

#include "kernels/rules.h"
#include "zero.h"

namespace zero {
namespace {

double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

float signed_factor(const StepContext& context, bool maximize) {
  return static_cast<float>(maximize ? -context.factor : context.factor);
}

// ---- AdamW and Adam: the same settings and slots.

struct AdamSettings {
  enum { lr, beta1, beta2, eps, weight_decay, amsgrad, maximize };
};

constexpr Setting kAdamwSettings[] = {{"lr", 1e-3, Setting::positive_or_zero},
                                      {"beta1", 0.9, Setting::unit_interval},
                                      {"beta2", 0.999, Setting::unit_interval},
                                      {"eps", 1e-8, Setting::positive_or_zero},
                                      {"weight_decay", 0.01, Setting::positive_or_zero},
                                      {"amsgrad", 0, Setting::flag, true},
                                      {"maximize", 0, Setting::flag}};

constexpr Setting kAdamSettings[] = {{"lr", 1e-3, Setting::positive_or_zero},
                                     {"beta1", 0.9, Setting::unit_interval},
                                     {"beta2", 0.999, Setting::unit_interval},
                                     {"eps", 1e-8, Setting::positive_or_zero},
                                     {"weight_decay", 0, Setting::positive_or_zero},
                                     {"amsgrad", 0, Setting::flag, true},
                                     {"maximize", 0, Setting::flag}};

constexpr const char* kAdamSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

uint32_t adam_slots_used(std::span<const double> settings) {
  return settings[AdamSettings::amsgrad] != 0 ? 0b111 : 0b011;
}

Scalars adam_scalars(const StepContext& context) {
  using rules::Adam;
  const std::span<const double> setting = context.settings;
  const double beta1 = setting[AdamSettings::beta1];
  const double beta2 = setting[AdamSettings::beta2];
  const double correction1 = 1 - power(beta1, context.step);
  const double correction2 = 1 - power(beta2, context.step);
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[AdamSettings::maximize] != 0);
  scalars.value[Adam::beta1] = static_cast<float>(beta1);
  scalars.value[Adam::one_minus_beta1] = static_cast<float>(1 - beta1);
  scalars.value[Adam::beta2] = static_cast<float>(beta2);
  scalars.value[Adam::one_minus_beta2] = static_cast<float>(1 - beta2);
  scalars.value[Adam::step_size] = static_cast<float>(setting[AdamSettings::lr] / correction1);
  scalars.value[Adam::root_scale] = static_cast<float>(1 / std::sqrt(correction2));
  scalars.value[Adam::eps] = static_cast<float>(setting[AdamSettings::eps]);
  scalars.flag[Adam::amsgrad] = setting[AdamSettings::amsgrad] != 0;
  return scalars;
}

Scalars prepare_adamw(const StepContext& context) {
  const double lr = context.settings[AdamSettings::lr];
  const double weight_decay = context.settings[AdamSettings::weight_decay];
  Scalars scalars = adam_scalars(context);
  scalars.value[rules::Adam::decay] = static_cast<float>(1 - lr * weight_decay);
  return scalars;
}

Scalars prepare_adam(const StepContext& context) {
  const double weight_decay = context.settings[AdamSettings::weight_decay];
  Scalars scalars = adam_scalars(context);
  scalars.value[rules::Adam::decay] = static_cast<float>(weight_decay);
  scalars.flag[rules::Adam::decays] = weight_decay != 0;
  return scalars;
}

// ---- SGD

struct SgdSettings {
  enum { lr, momentum, dampening, weight_decay, nesterov, maximize };
};

constexpr Setting kSgdSettings[] = {
    {"lr", 1e-3, Setting::positive_or_zero}, {"momentum", 0, Setting::positive_or_zero},
    {"dampening", 0, Setting::any_finite},   {"weight_decay", 0, Setting::positive_or_zero},
    {"nesterov", 0, Setting::flag},          {"maximize", 0, Setting::flag}};

constexpr const char* kSgdSlots[] = {"momentum_buffer"};

uint32_t sgd_slots_used(std::span<const double> settings) {
  return settings[SgdSettings::momentum] != 0 ? 0b1 : 0b0;
}

Scalars prepare_sgd(const StepContext& context) {
  using rules::Sgd;
  const std::span<const double> setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[SgdSettings::maximize] != 0);
  scalars.value[Sgd::lr] = static_cast<float>(setting[SgdSettings::lr]);
  scalars.value[Sgd::momentum] = static_cast<float>(setting[SgdSettings::momentum]);
  scalars.value[Sgd::one_minus_dampening] = static_cast<float>(1 - setting[SgdSettings::dampening]);
  scalars.value[Sgd::weight_decay] = static_cast<float>(setting[SgdSettings::weight_decay]);
  scalars.flag[Sgd::decays] = setting[SgdSettings::weight_decay] != 0;
  scalars.flag[Sgd::has_momentum] = setting[SgdSettings::momentum] != 0;
  scalars.flag[Sgd::first] = (context.live_slots & (1u << Sgd::momentum_buffer)) == 0;
  scalars.flag[Sgd::nesterov] = setting[SgdSettings::nesterov] != 0;
  return scalars;
}

static_assert(ZERO_OPTIMIZER_ADAMW == 0 && ZERO_OPTIMIZER_ADAM == 1 && ZERO_OPTIMIZER_SGD == 2);
constexpr Rule kRules[kRuleCount] = {
    {"adamw", kAdamwSettings, kAdamSlots, adam_slots_used, prepare_adamw},
    {"adam", kAdamSettings, kAdamSlots, adam_slots_used, prepare_adam},
    {"sgd", kSgdSettings, kSgdSlots, sgd_slots_used, prepare_sgd},
};

}  // namespace

const Rule* find_rule(int32_t optimizer) {
  return optimizer >= 0 && optimizer < kRuleCount ? &kRules[optimizer] : nullptr;
}

const Rule* find_rule(std::string_view name) {
  for (const Rule& rule : kRules) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

int find_setting(const Rule& rule, std::string_view name) {
  for (size_t i = 0; i < rule.settings.size(); ++i) {
    if (name == rule.settings[i].name) return static_cast<int>(i);
  }
  return -1;
}

bool setting_allows(const Setting& setting, double value) {
  if (!std::isfinite(value)) return false;
  switch (setting.range) {
    case Setting::positive_or_zero:
      return value >= 0;
    case Setting::unit_interval:
      return value >= 0 && value < 1;
    case Setting::flag:
      return value == 0 || value == 1;
    case Setting::any_finite:
      return true;
  }
  return false;
}

const char* setting_range_text(const Setting& setting) {
  switch (setting.range) {
    case Setting::positive_or_zero:
      return "finite and at least 0";
    case Setting::unit_interval:
      return "in [0, 1)";
    case Setting::flag:
      return "0 or 1";
    case Setting::any_finite:
      break;
  }
  return "finite";
}

}  // namespace zero
