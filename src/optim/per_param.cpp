// SPDX-License-Identifier: Apache-2.0
// What a parameter has of its own beside its group: whether it is trained, and two settings.
#include <algorithm>

#include "base/text.h"
#include "optim/optimizer.h"

namespace zero {

Status Optimizer::check_own_setting(const NewParam& added, const char* name, double value) const {
  const bool scale = std::string_view(name) == "lr_scale";
  const int at = find_setting(*options.rule, scale ? "lr" : name);
  if (at < 0) {
    return Status(ZERO_ERR_ARGUMENT, text("parameter '", added.name, "' sets ", name, ", which ",
                                          options.rule->name, " does not have"));
  }
  const Setting& setting = options.rule->settings[static_cast<size_t>(at)];
  if (setting_allows(setting, value)) return Status();
  return Status(ZERO_ERR_ARGUMENT, text("parameter '", added.name, "': ", name, " is ", value,
                                        "; it must be ", setting_range_text(setting)));
}

Status Optimizer::take_own_settings(const NewParam& added, Param& param) const {
  if (added.lr_scale) ZERO_TRY(check_own_setting(added, "lr_scale", *added.lr_scale));
  if (added.weight_decay) ZERO_TRY(check_own_setting(added, "weight_decay", *added.weight_decay));
  param.lr_scale = added.lr_scale.value_or(1);
  param.weight_decay = added.weight_decay;
  return Status();
}

std::array<double, kMaxSettings> Optimizer::settings_of(size_t param) const {
  const Param& of = params[param];
  const std::vector<double>& shared = groups[static_cast<size_t>(of.group)].settings;
  std::array<double, kMaxSettings> own{};
  std::copy(shared.begin(), shared.end(), own.begin());
  const auto at = [this](const char* name) {
    return static_cast<size_t>(find_setting(*options.rule, name));
  };
  if (of.lr_scale != 1) own[at("lr")] *= of.lr_scale;
  if (of.weight_decay) own[at("weight_decay")] = *of.weight_decay;
  return own;
}

void Optimizer::freeze(size_t param, bool frozen) {
  if (trainable_[param] != frozen) return;
  trainable_[param] = !frozen;
  frozen_ += frozen ? 1 : size_t{0} - 1;
  // A sum of hashes, so that freezing all of many parameters stays linear.
  const uint64_t hash = hash64(std::as_bytes(std::span(&param, 1)));
  frozen_hash_ += frozen ? hash : uint64_t{0} - hash;
  note_moved();
}

Status Optimizer::set_trainable(int64_t param, bool trains) {
  if (param < 0 || static_cast<size_t>(param) >= params.size()) {
    return Status(ZERO_ERR_ARGUMENT,
                  text("parameter ", param, " does not exist: there are ", params.size()));
  }
  ZERO_TRY(check_open());
  const Param& of = params[static_cast<size_t>(param)];
  if (trains && !is_floating(of.dtype)) {
    return Status(ZERO_ERR_UNSUPPORTED, text("parameter '", of.name, "' is ", dtype_name(of.dtype),
                                             " and cannot be trained: it stays frozen"));
  }
  freeze(static_cast<size_t>(param), !trains);
  return Status();
}

std::string Optimizer::trainable_lines() const {
  std::string lines;
  for (size_t i = 0; i < params.size(); i++)
    lines +=
        text("parameter '", params[i].name, trainable_[i] ? "' is trained\n" : "' is frozen\n");
  return lines;
}

}  // namespace zero
