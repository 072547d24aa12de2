// SPDX-License-Identifier: Apache-2.0
// What a rule is, apart from its formula: its settings, its slots, its scalars. Each rule stands in
// a file of its own beside this one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/host_device.h"

namespace zero {

inline constexpr int kMaxSlots = 8;
inline constexpr int kMaxSettings = 16;
inline constexpr int kMaxFlags = 4;
inline constexpr int kScalars = 12;

/// A hyper-parameter: its name, default and the values it may take.
struct Setting {
  enum Range : int32_t {
    positive_or_zero,
    unit_interval,         // [0, 1)
    closed_unit_interval,  // [0, 1]
    open_unit_interval,    // (0, 1)
    above_one,
    flag,
    any_finite
  };
  const char* name;
  double initial;
  Range range;
  bool fixed = false;  // decides which state there is, so it cannot change after registration
};

/// True of finite values only.
ZERO_HOST_DEVICE inline bool range_allows(Setting::Range range, double value) {
  if (!(value - value == 0)) return false;
  switch (range) {
    case Setting::positive_or_zero:
      return value >= 0;
    case Setting::unit_interval:
      return value >= 0 && value < 1;
    case Setting::closed_unit_interval:
      return value >= 0 && value <= 1;
    case Setting::open_unit_interval:
      return value > 0 && value < 1;
    case Setting::above_one:
      return value > 1;
    case Setting::flag:
      return value == 0 || value == 1;
    case Setting::any_finite:
      return true;
  }
  return false;
}

/// What one run of elements shares, computed in fp64. Each rule names the places.
struct Scalars {
  double factor = 1;  // multiplies the sum over ranks; negative when the rule maximizes
  double value[kScalars] = {};
  bool flag[kMaxFlags] = {};
};

/// The numbers of Scalars in the type of a run's arithmetic: this is where they are rounded, once.
template <class Real>
struct RoundedScalars {
  ZERO_ELEMENT explicit RoundedScalars(const Scalars& scalars)
      : factor(static_cast<Real>(scalars.factor)) {
    for (int i = 0; i < kScalars; ++i) value[i] = static_cast<Real>(scalars.value[i]);
  }
  Real factor;
  Real value[kScalars];
};

/// What the scalars of one parameter depend on.
struct StepContext {
  const double* settings;   // in the order of Rule::settings
  int64_t step = 1;         // of this parameter, counting from 1
  uint32_t live_slots = 0;  // bit s: slot s holds values of an earlier step
  double factor = 1;        // 1/world, clip: without maximize
  double product = 1;       // what Rule::next_product made of the earlier steps
};

/// Of rules whose step is scaled, for each tensor, by norms of the whole tensor.
struct Trust {
  /// From the norms (p = 2) of the parameter before the step and of its direction.
  double (*ratio)(std::span<const double> settings, double param, double direction);
  int scalar;  // the place in Scalars::value that the ratio multiplies
  /// The direction is what the update kernel turns the parameter into, beside its slots, and
  /// KernelTable::lamb makes the step. Otherwise it is the gradient, and the update makes it.
  bool of_update;
};

/// A rule as a row of a table.
struct Rule {
  const char* name;  // "adamw", as it stands in checkpoints
  std::span<const Setting> settings;
  std::span<const char* const> slots;  // "exp_avg", ...: torch's names
  /// Which slots these settings use, as bits.
  uint32_t (*slots_used)(std::span<const double> settings);
  Scalars (*prepare)(const StepContext& context);
  /// One number that each parameter keeps beside its slots, 1 before its first step: its value
  /// after the step of `context`. nullptr where a rule has none.
  double (*next_product)(const StepContext& context) = nullptr;
  const Trust* trust = nullptr;  // nullptr: every element is updated by itself
};

/// The rule of a ZERO_OPTIMIZER_* number, or nullptr.
const Rule* find_rule(int32_t optimizer);
const Rule* find_rule(std::string_view name);

/// The position of a setting in Rule::settings, or -1.
int find_setting(const Rule& rule, std::string_view name);

/// True if `value` is in the setting's range.
inline bool setting_allows(const Setting& setting, double value) {
  return range_allows(setting.range, value);
}
/// "in [0, 1)" and so on, for error texts.
const char* setting_range_text(const Setting& setting);

}  // namespace zero
