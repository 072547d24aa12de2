// SPDX-License-Identifier: Apache-2.0
#include "optim/custom.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/refusals.h"

namespace zero {
namespace {

constexpr size_t kLongestRuleName = 64;

/// Returns, as bits, the slots in use of a rule that always uses its first `count` slots.
template <size_t count>
uint32_t uses(std::span<const double>) {
  return (1u << count) - 1;
}

template <size_t... counts>
constexpr auto all_uses(std::index_sequence<counts...>) {
  return std::array{&uses<counts>...};
}

/// Allows letters, digits, '_' and the characters in `also`, because names appear in checkpoint
/// files, between dots, and in error messages.
Status check_name(const char* what, std::string_view name, std::string_view also) {
  const auto allowed = [also](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           also.find(c) != also.npos;
  };
  if (!name.empty() && name.size() <= kLongestRuleName &&
      std::all_of(name.begin(), name.end(), allowed))
    return {};
  return bad_argument("custom optimizer: ", what, " '", name.substr(0, kLongestRuleName),
                      "' must be 1 to ", kLongestRuleName, " letters, digits or '_'",
                      also.empty() ? "" : ", '.' or '-'");
}

}  // namespace

Result<std::shared_ptr<const CustomRule>> CustomRule::create(Declaration declared, Update update) {
  ZERO_TRY(check_name("name", declared.name, ".-"));
  std::shared_ptr<CustomRule> made(new CustomRule);
  made->name_ = text(kCustomPrefix, declared.name);
  made->whole_tensors_ = declared.whole_tensors;
  made->update_ = std::move(update);
  ZERO_TRY(made->add_slots(std::move(declared.slots)));
  ZERO_TRY(made->add_settings(declared.settings));
  static constexpr auto kUses = all_uses(std::make_index_sequence<kMaxStateSlots + 1>());
  made->rule_ = Rule{.number = ZERO_OPTIMIZER_CUSTOM,
                     .name = made->name_.c_str(),
                     .settings = made->settings_,
                     .slots = made->slot_names_,
                     .slots_used = kUses[made->slot_names_.size()],
                     .prepare = nullptr};
  return std::shared_ptr<const CustomRule>(std::move(made));
}

Status CustomRule::add_slots(std::vector<std::string> names) {
  if (names.size() > static_cast<size_t>(kMaxStateSlots))
    return bad_argument("custom optimizer: ", names.size(), " slots; at most ", kMaxStateSlots,
                        " are allowed");
  slots_ = std::move(names);
  for (size_t i = 0; i < slots_.size(); i++) {
    ZERO_TRY(check_name("slot", slots_[i], ""));
    if (slots_[i] == kMasterName)
      return bad_argument("custom optimizer: slot '", kMasterName,
                          "' has a reserved name, that of masters: choose another");
    const auto before = slots_.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(slots_.begin(), before, slots_[i]) != before)
      return bad_argument("custom optimizer: slot '", slots_[i], "' is declared twice");
    slot_names_.push_back(slots_[i].c_str());
  }
  return {};
}

Status CustomRule::add_settings(const std::vector<std::pair<std::string, double>>& settings) {
  settings_ = {{"lr", 1e-3, Setting::positive_or_zero},
               {"weight_decay", 0, Setting::positive_or_zero}};
  own_settings_.reserve(settings.size());  // settings_ points to the characters of the names
  for (const auto& [name, initial] : settings) {
    ZERO_TRY(check_name("setting", name, ""));
    if (name == "optimizer" || name == "slots")
      return bad_argument("custom optimizer: setting '", name,
                          "' has a reserved name, that of a group's rule: choose another");
    if (std::ranges::find(own_settings_, name) != own_settings_.end())
      return bad_argument("custom optimizer: setting '", name, "' is declared twice");
    own_settings_.push_back(name);
    const auto same = [&name = name](const Setting& setting) { return name == setting.name; };
    const auto found = std::find_if(settings_.begin(), settings_.end(), same);
    Setting setting{own_settings_.back().c_str(), initial, Setting::any_finite};
    if (found != settings_.end()) setting.range = found->range;
    if (!setting.range.allows(initial))
      return bad_argument("custom optimizer: setting '", name, "' is ", initial, "; it must be ",
                          setting.range.text);
    found == settings_.end() ? settings_.push_back(setting) : (void)(*found = setting);
  }
  if (settings_.size() > static_cast<size_t>(kMaxSettings))
    return bad_argument("custom optimizer: ", settings_.size(),
                        " settings, including lr and weight_decay; at ", "most ", kMaxSettings,
                        " are allowed");
  for (const Setting& setting : settings_) setting_names_.push_back(setting.name);
  return {};
}

std::string CustomRule::line() const {
  std::string out = text(name_, whole_tensors_ ? " on whole tensors" : " on ranges", " with state");
  for (const char* name : slot_names_) out += text(" ", name);
  out += slot_names_.empty() ? " none, settings" : ", settings";
  for (const char* name : setting_names_) out += text(" ", name);
  return out + "\n";
}

}  // namespace zero
