// SPDX-License-Identifier: Apache-2.0
// Defines a rule apart from its formula: its settings, slots and scalars. Each rule has its own
// file in this directory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "base/host_device.h"
#include "zero.h"

namespace zero {

class Status;

inline constexpr int kMaxSlots = 8;
inline constexpr int kMaxSettings = 16;
inline constexpr int kMaxFlags = 4;
inline constexpr int kScalars = 12;

/// The values that a setting may have. All are finite.
struct SettingRange {
  const char* text;  // for errors
  double least, most;
  bool with_least = true, with_most = true;
  bool flag = false;  // only `least` and `most` are allowed

  ZERO_HOST_DEVICE bool allows(double value) const {
    if (value == least) return with_least;
    if (value == most) return with_most;
    return !flag && value > least && value < most;
  }
};

/// A hyper-parameter: its name, its default and the values that it may have.
struct Setting {
  static constexpr double kLargest = std::numeric_limits<double>::max();
  static constexpr SettingRange positive_or_zero = {"finite and at least 0", 0, kLargest};
  static constexpr SettingRange unit_interval = {"in [0, 1)", 0, 1, true, false};
  static constexpr SettingRange closed_unit_interval = {"in [0, 1]", 0, 1};
  static constexpr SettingRange open_unit_interval = {"in (0, 1)", 0, 1, false, false};
  static constexpr SettingRange above_one = {"finite and above 1", 1, kLargest, false};
  static constexpr SettingRange zero_or_one = {"0 or 1", 0, 1, true, true, true};
  static constexpr SettingRange any_finite = {"finite", -kLargest, kLargest};

  const char* name;
  double initial;
  SettingRange range;
  bool fixed = false;  // decides which slots there are, so it cannot change after registration
};

/// The numbers that one run of elements shares, computed in fp64. Each rule names their positions.
struct Scalars {
  double factor = 1;  // multiplies the sum over ranks; negative when the rule maximizes
  double value[kScalars] = {};
  bool flag[kMaxFlags] = {};
  int64_t step = 1;  // of the parameters, counting from 1
};

/// Scalars, rounded once to the type of a run's arithmetic.
template <class Real>
struct RoundedScalars {
  ZERO_ELEMENT explicit RoundedScalars(const Scalars& scalars)
      : factor(static_cast<Real>(scalars.factor)) {
    for (int i = 0; i < kScalars; ++i) value[i] = static_cast<Real>(scalars.value[i]);
  }
  Real factor;
  Real value[kScalars];
};

/// Everything that the scalars of one parameter depend on.
struct StepContext {
  const double* settings;   // in the order of Rule::settings
  int64_t step = 1;         // of this parameter, counting from 1
  uint32_t live_slots = 0;  // bit s: slot s holds values of an earlier step
  double factor = 1;        // 1/world, clipping and loss scale, without the sign of maximize
  double product = 1;       // result of Rule::next_product after the previous step
};

/// How a rule scales each tensor's step by norms of the whole tensor.
struct Trust {
  /// Returns the ratio, computed from the 2-norms of the parameter before the step and of its
  /// direction.
  double (*ratio)(std::span<const double> settings, double param, double direction);
  int scalar;  // position in Scalars::value of the scalar that the ratio multiplies
  /// If true, the update kernel replaces the parameter with the direction, and Arithmetic::lamb
  /// takes the step. If false, the direction is the gradient, and the update takes the step.
  bool of_update;
};

/// A rule as a row of a table.
struct Rule {
  int32_t number;    // ZERO_OPTIMIZER_*, which is also the index of its kernels
  const char* name;  // the name in checkpoints, such as "adamw"
  std::span<const Setting> settings;
  std::span<const char* const> slots;  // torch's names, such as "exp_avg"
  /// Returns which slots these settings use, as bits.
  uint32_t (*slots_used)(std::span<const double> settings);
  Scalars (*prepare)(const StepContext& context);
  /// Each parameter has one number besides its slots, which is 1 before its first step. This
  /// returns the number after the step of `context`. nullptr if the rule has no such number.
  double (*next_product)(const StepContext& context) = nullptr;
  const Trust* trust = nullptr;  // nullptr: every element is updated independently
};

/// Returns true for a rule of the caller.
inline bool is_custom(const Rule& rule) { return rule.number == ZERO_OPTIMIZER_CUSTOM; }
/// Returns true for a rule that scales each tensor's step by norms of the whole tensor.
inline bool has_trust(const Rule& rule) { return rule.trust != nullptr; }

/// Returns the rule of a ZERO_OPTIMIZER_* number, or nullptr.
const Rule* find_rule(int32_t optimizer);
const Rule* find_rule(std::string_view name);

/// Returns an error that names the rules that exist, because there is none of this name.
Status no_rule(std::string_view name);

/// Returns the position of a setting in Rule::settings, or -1.
int find_setting(const Rule& rule, std::string_view name);
/// Returns an error that names the settings that exist, because there is none of this name.
Status no_setting(const Rule& rule, std::string_view name);

}  // namespace zero
