// SPDX-License-Identifier: Apache-2.0
// The table of optimizers, and what holds for all of their settings.
#include "kernels/rule.h"

#include <cmath>

#include "kernels/rows.h"
#include "zero.h"

namespace zero {
namespace {

static_assert(ZERO_OPTIMIZER_ADAMW == 0 && ZERO_OPTIMIZER_ADAM == 1 && ZERO_OPTIMIZER_SGD == 2);
static_assert(ZERO_OPTIMIZER_RMSPROP == 3 && ZERO_OPTIMIZER_ADAGRAD == 4 &&
              ZERO_OPTIMIZER_LION == 5 && ZERO_OPTIMIZER_ADAMAX == 6 &&
              ZERO_OPTIMIZER_ADADELTA == 7 && ZERO_OPTIMIZER_RADAM == 8 &&
              ZERO_OPTIMIZER_NADAM == 9 && ZERO_OPTIMIZER_RPROP == 10 &&
              ZERO_OPTIMIZER_LAMB == 11 && ZERO_OPTIMIZER_LARS == 12);
constexpr const Rule* kRules[kRuleCount] = {
    &kAdamwRule, &kAdamRule,   &kSgdRule,      &kRmspropRule, &kAdagradRule,
    &kLionRule,  &kAdamaxRule, &kAdadeltaRule, &kRadamRule,   &kNadamRule,
    &kRpropRule, &kLambRule,   &kLarsRule};

}  // namespace

const Rule* find_rule(int32_t optimizer) {
  return optimizer >= 0 && optimizer < kRuleCount ? kRules[optimizer] : nullptr;
}

const Rule* find_rule(std::string_view name) {
  for (const Rule* rule : kRules) {
    if (name == rule->name) return rule;
  }
  return nullptr;
}

int find_setting(const Rule& rule, std::string_view name) {
  for (size_t i = 0; i < rule.settings.size(); ++i) {
    if (name == rule.settings[i].name) return static_cast<int>(i);
  }
  return -1;
}

const char* setting_range_text(const Setting& setting) {
  switch (setting.range) {
    case Setting::positive_or_zero:
      return "finite and at least 0";
    case Setting::unit_interval:
      return "in [0, 1)";
    case Setting::closed_unit_interval:
      return "in [0, 1]";
    case Setting::open_unit_interval:
      return "in (0, 1)";
    case Setting::above_one:
      return "finite and above 1";
    case Setting::flag:
      return "0 or 1";
    case Setting::any_finite:
      break;
  }
  return "finite";
}

}  // namespace zero
