// SPDX-License-Identifier: Apache-2.0
// Custom update rules as a caller writes them, for zero_custom_optimizer: AdamW, element by
// element, and LARS, which needs whole tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "zero.h"

namespace zero::test {

/// A rule that C++ tests define: its declaration, and a function that updates each range.
struct OwnRule {
  std::string name = "own";
  std::vector<std::string> slots;
  std::vector<std::pair<std::string, double>> settings;
  bool whole_tensors = false;
  std::function<zero_status(const zero_update& update)> update;
};

/// Converts an OwnRule to the struct of the header, for options.custom. The rule must live as long
/// as the optimizer.
class Declared {
 public:
  explicit Declared(const OwnRule& rule);
  Declared(const Declared&) = delete;
  Declared& operator=(const Declared&) = delete;

  /// Makes `options` select this rule.
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

/// Uses the formulas and defaults of ZERO_OPTIMIZER_ADAMW (without amsgrad and maximize).
OwnRule own_adamw();
/// Uses those of ZERO_OPTIMIZER_LARS (without nesterov and maximize).
OwnRule own_lars();

/// Returns the value of a setting in an update, or NaN if there is none with that name.
double setting_of(const zero_update& update, const std::string& name);

}  // namespace zero::test
