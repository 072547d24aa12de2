// SPDX-License-Identifier: Apache-2.0
// An update rule that the caller provides: its declaration, and the input of one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "rules/rule.h"

namespace zero {

/// The most slots of any rule. Built-in rules have at most kMaxSlots.
inline constexpr int kMaxStateSlots = 8;
inline constexpr const char* kMasterName = "master";
/// Begins the names of custom rules in checkpoints.
inline constexpr std::string_view kCustomPrefix = "custom:";

/// Copies of elements [first, first + count) of a parameter, which the function updates.
struct UpdateRange {
  int64_t param = 0;
  const char* name = "";
  std::span<const int64_t> shape;
  DType dtype = DType::f32;
  int64_t first = 0;
  int64_t count = 0;
  std::byte* values = nullptr;
  std::byte* gradient = nullptr;
  std::span<std::byte* const> slots;
  int64_t step = 1;
  std::span<const double> settings;  // in the order of Rule::settings
  std::span<char> message;           // the function writes the reason here if it fails
};

class CustomRule {
 public:
  /// Updates a range of a parameter. Fails with ZERO_ERR_CALLBACK.
  using Update = std::function<Status(const CustomRule& rule, const UpdateRange& range)>;

  struct Declaration {
    std::string name;
    std::vector<std::string> slots;
    std::vector<std::pair<std::string, double>> settings;  // names and defaults
    bool whole_tensors = false;
  };

  /// Indices of the first settings of every custom rule.
  static constexpr size_t kRate = 0, kDecay = 1;

  /// Creates a rule. Fails with ZERO_ERR_ARGUMENT if the declaration is invalid.
  static Result<std::shared_ptr<const CustomRule>> create(Declaration declared, Update update);
  CustomRule(const CustomRule&) = delete;
  CustomRule& operator=(const CustomRule&) = delete;

  const Rule& rule() const { return rule_; }
  bool whole_tensors() const { return whole_tensors_; }
  std::span<const char* const> setting_names() const { return setting_names_; }
  Status update(const UpdateRange& range) const { return update_(*this, range); }
  /// Returns the declaration as one line, which must be the same on every rank.
  std::string line() const;

 private:
  CustomRule() = default;
  Status add_slots(std::vector<std::string> names);
  Status add_settings(const std::vector<std::pair<std::string, double>>& settings);

  std::string name_;
  std::vector<std::string> slots_;
  std::vector<const char*> slot_names_;
  std::vector<std::string> own_settings_;
  std::vector<Setting> settings_;
  std::vector<const char*> setting_names_;
  bool whole_tensors_ = false;
  Update update_;
  Rule rule_{};  // points into the other members
};

}  // namespace zero
