// SPDX-License-Identifier: Apache-2.0
// Update rules written as a caller writes them, behind zero_custom_optimizer: AdamW, element by
// element, and LARS, which needs whole tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "zero.h"

namespace zero::test {

/// A rule that C++ tests put together: what it declares, and a function of each range.
struct OwnRule {
  std::string name = "own";
  std::vector<std::string> slots;
  std::vector<std::pair<std::string, double>> settings;
  bool whole_tensors = false;
  std::function<zero_status(const zero_update& update)> update;
};

/// An OwnRule in the form of the header, for options.custom. The rule lives as long as the
/// optimizer.
class Declared {
 public:
  explicit Declared(const OwnRule& rule);
  Declared(const Declared&) = delete;
  Declared& operator=(const Declared&) = delete;

  /// Make `options` those of an optimizer by this rule.
  void put_into(zero_options& options) const {
    options.optimizer = ZERO_OPTIMIZER_CUSTOM;
    options.custom = &custom_;
  }
  zero_custom_optimizer& custom() { return custom_; }

 private:
  std::vector<const char*> slots_, names_;
  std::vector<double> values_;
  zero_custom_optimizer custom_;
};

/// By the formulas and defaults of ZERO_OPTIMIZER_ADAMW (without amsgrad and maximize).
OwnRule own_adamw();
/// By those of ZERO_OPTIMIZER_LARS (without nesterov and maximize).
OwnRule own_lars();

/// What an update says of a setting; NaN if it has none of that name.
double setting_of(const zero_update& update, const std::string& name);

}  // namespace zero::test
