// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "optim/options.h"
#include "state/json.h"
#include "state/load.h"

namespace zero {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t size : shape) out += text(out.size() == 1 ? "" : ", ", size);
  return out + "]";
}

/// Collects the differences between a checkpoint and an optimizer, as many as an error text holds.
class Differences {
 public:
  Differences(const Manifest& saved, const Optimizer& optim) : saved_(saved), optim_(optim) {}

  void compare_rules() {
    const Rule& rule = *optim_.options.rule;
    if (saved_.rule != rule.name)
      return add("the checkpoint is for optimizer ", shown(saved_.rule), ", but this optimizer is ",
                 rule.name);
    compare_declared(saved_.slots, rule);
    compare_groups();
  }

  Places match() {
    std::unordered_map<std::string_view, Saved> saved;
    for (const ManifestParam& param : saved_.params)
      saved.emplace(param.name, Saved{param, &param});
    for (const ManifestBuffer& buffer : saved_.buffers)
      saved.emplace(buffer.name, Saved{buffer, nullptr});
    Places places;
    for (size_t i = 0; i < optim_.params.size(); i++)
      places.params.push_back(match_param(saved, i, places.frozen));
    for (const Buffer& buffer : optim_.buffers)
      places.buffers.push_back(match_buffer(saved, buffer));
    const auto left_over = [&](const char* kind, const ManifestBuffer& tensor) {
      if (!saved.at(tensor.name).used)
        add(kind, " ", shown(tensor.name), " of the checkpoint is not registered");
    };
    for (const ManifestParam& param : saved_.params) left_over("parameter", param);
    for (const ManifestBuffer& buffer : saved_.buffers) left_over("buffer", buffer);
    return places;
  }

  Status status() const {
    if (count_ == 0) return {};
    return {ZERO_ERR_CKPT_MISMATCH,
            text("the checkpoint differs from what is registered: ", out_,
                 told_ == count_ ? "" : text("; and ", count_ - told_, " more differences"))};
  }

 private:
  struct Saved {
    const ManifestBuffer& tensor;
    const ManifestParam* param;  // nullptr for a buffer
    bool used = false;
  };

  /// Returns the saved tensor with this tensor's name, or adds a difference and returns nullptr.
  template <class Tensor>
  Saved* find(std::unordered_map<std::string_view, Saved>& saved, const char* kind,
              const Tensor& tensor) {
    const auto found = saved.find(tensor.name);
    if (found == saved.end()) {
      add(kind, " ", shown(tensor.name), " is not in the checkpoint");
      return nullptr;
    }
    found->second.used = true;
    compare_tensor(kind, tensor, found->second.tensor);
    return &found->second;
  }

  const ManifestParam* match_param(std::unordered_map<std::string_view, Saved>& saved,
                                   size_t number, std::deque<ManifestParam>& frozen) {
    const Param& param = optim_.params[number];
    const Saved* const found = find(saved, "parameter", param);
    if (found == nullptr) return nullptr;
    if (found->param != nullptr) {
      compare_param(param, *found->param);
      return found->param;
    }
    if (optim_.trains(number))
      add("parameter ", shown(param.name),
          " is a buffer in the checkpoint, but is registered to be trained");
    ManifestParam& made = frozen.emplace_back();
    static_cast<ManifestBuffer&>(made) = found->tensor;
    made.group = param.group;
    return &made;
  }

  const ManifestBuffer* match_buffer(std::unordered_map<std::string_view, Saved>& saved,
                                     const Buffer& buffer) {
    const Saved* const found = find(saved, "buffer", buffer);
    if (found == nullptr) return nullptr;
    if (found->param != nullptr && was_trained(*found->param))
      add("buffer ", shown(buffer.name), " is a parameter that was trained in the checkpoint");
    return &found->tensor;
  }

  static bool was_trained(const ManifestParam& param) {
    return param.step > 0 || std::ranges::any_of(param.slots, [](const ManifestSlot& slot) {
             return slot.name != kMasterName;
           });
  }

  template <class... Parts>
  void add(const Parts&... parts) {
    if (out_.size() < kLongest) {
      out_ += text(count_ == 0 ? "" : "; ", parts...);
      told_++;
    }
    count_++;
  }

  /// Compares what custom rules declare, because different custom rules may have the same name.
  void compare_declared(const std::vector<std::string>& saved, const Rule& rule) {
    if (!is_custom(rule)) return;
    for (const std::string& slot : saved)
      if (std::ranges::find(rule.slots, slot) == rule.slots.end())
        add("the checkpoint's '", rule.name, "' has state ", shown(slot),
            ", which is not declared");
    for (const char* slot : rule.slots)
      if (std::ranges::find(saved, slot) == saved.end())
        add("state ", shown(slot), " is declared, but the checkpoint's '", rule.name,
            "' does not have it");
  }

  void compare_groups() {
    const size_t saved = saved_.groups.size(), registered = optim_.groups.size();
    if (saved != registered)
      add("the checkpoint has ", saved, " groups, but this optimizer has ", registered);
    for (size_t g = 0; g < std::min(saved, registered); g++) compare_group(g);
  }

  void compare_group(size_t group) {
    const ManifestGroup& saved = saved_.groups[group];
    const char* const registered = optim_.groups[group].rule->name;
    if (const std::string& rule = saved_.rule_of(saved); rule != registered)
      return add("group ", group, " follows ", shown(rule),
                 " in the checkpoint, but is registered with ", registered);
    if (saved.slot_format != optim_.groups[group].slot_format) {
      const auto name = [](SlotFormat format) {
        return format == SlotFormat::bf16 ? "bfloat16" : "full";
      };
      add("group ", group, " has state_dtype ", name(saved.slot_format),
          " in the checkpoint, but is registered with ", name(optim_.groups[group].slot_format));
    }
    if (!saved.rule.empty()) compare_declared(saved.slots, *optim_.groups[group].rule);
    for (const auto& [name, value] : saved.settings) compare_setting(group, name, value);
  }

  void compare_setting(size_t group, const std::string& name, double value) {
    const Rule& rule = *optim_.groups[group].rule;
    const int setting = find_setting(rule, name);
    if (setting < 0)
      return add("group ", group, " has a setting ", shown(name), " in the checkpoint, which ",
                 rule.name, " does not have");
    const auto at = static_cast<size_t>(setting);
    const double registered = optim_.groups[group].settings[at];
    if (rule.settings[at].fixed && value != registered)
      add("group ", group, " has ", name, " ", value, " in the checkpoint, but is registered with ",
          registered);
  }

  /// Compares the properties that parameters and buffers share.
  template <class Tensor>
  void compare_tensor(const char* kind, const Tensor& tensor, const ManifestBuffer& saved) {
    if (saved.dtype != dtype_code(tensor.dtype))
      add(kind, " ", shown(tensor.name), " is ", saved.dtype,
          " in the checkpoint, but is registered as ", dtype_code(tensor.dtype));
    if (saved.shape != tensor.shape)
      add(kind, " ", shown(tensor.name), " has shape ", shape_text(saved.shape),
          " in the checkpoint, but is registered with ", shape_text(tensor.shape));
  }

  void compare_param(const Param& param, const ManifestParam& saved) {
    if (saved.group != param.group)
      add("parameter ", shown(param.name), " is in group ", saved.group,
          " in the checkpoint, but is registered in group ", param.group);
    const bool has_master = is_kept(master_of(param.dtype, optim_.options));
    const Rule& rule = optim_.rule_of(param);
    for (const ManifestSlot& slot : saved.slots) {
      const int known = find_slot(rule, slot.name);
      if (known < 0 || (known == kMasterSlot && !has_master))
        add("parameter ", shown(param.name), " has state ", shown(slot.name),
            " in the checkpoint, which ", rule.name, " does not have");
    }
  }

  static constexpr size_t kLongest = 2800;  // what a vote can carry, minus one sentence
  const Manifest& saved_;
  const Optimizer& optim_;
  std::string out_;
  size_t count_ = 0, told_ = 0;
};

}  // namespace

Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim) {
  Differences differences(manifest, optim);
  differences.compare_rules();
  Places places = differences.match();
  ZERO_TRY(differences.status());
  return places;
}

std::vector<const Rule*> rules_of(const Optimizer& optim) {
  std::vector<const Rule*> rules;
  for (const Group& group : optim.groups) rules.push_back(group.rule);
  return rules;
}

Result<std::vector<const Rule*>> find_rules(const Manifest& manifest) {
  std::vector<const Rule*> rules;
  for (const ManifestGroup& group : manifest.groups) {
    const std::string& name = manifest.rule_of(group);
    rules.push_back(find_rule(name));
    if (rules.back() == nullptr && !name.starts_with(kCustomPrefix)) return no_rule(name);
  }
  return rules;
}

Result<std::vector<Group>> saved_groups(const Manifest& manifest,
                                        std::span<const Rule* const> rules) {
  std::vector<Group> groups;
  for (const ManifestGroup& saved : manifest.groups) {
    const Rule* const rule = rules[groups.size()];
    if (rule == nullptr) {
      groups.emplace_back();
      continue;
    }
    Group& group = groups.emplace_back(group_of(*rule));
    for (const auto& [name, value] : saved.settings) {
      const int at = find_setting(*rule, name);
      if (at < 0) continue;  // match_registered() reports it
      const Setting& setting = rule->settings[static_cast<size_t>(at)];
      if (!setting.range.allows(value))
        return invalid("group ", groups.size() - 1, ": setting '", name, "' is ", value,
                       "; it must be ", setting.range.text);
      group.settings[static_cast<size_t>(at)] = value;
    }
  }
  return groups;
}

Result<LossScale> saved_loss_scale(const Manifest& manifest, const LossScale& current) {
  LossScale saved = current;
  double good_steps = static_cast<double>(current.good_steps);
  for (const auto& [name, value] : manifest.options) {
    if (name == kLossScale) saved.scale = value;
    if (name == kGoodSteps) good_steps = value;
  }
  if (!loss_scale_allowed(saved.scale)) return invalid("the loss scale is ", saved.scale);
  if (!(good_steps >= 0 && good_steps <= static_cast<double>(kMostSteps)))
    return invalid("there were ", good_steps, " good steps");
  saved.good_steps = static_cast<int64_t>(good_steps);
  return saved;
}

Status check_products(const Manifest& manifest, std::span<const Group> groups) {
  for (const ManifestParam& param : manifest.params) {
    const Group& group = groups[static_cast<size_t>(param.group)];
    if (group.rule == nullptr) continue;
    const Rule& rule = *group.rule;
    const bool made = rule.next_product != nullptr && param.step > 0;
    if (made == (param.mu_product != 1)) continue;
    return invalid("parameter '", param.name, "' has ", made ? "no" : "a", " mu_product after ",
                   param.step, " steps of ", rule.name);
  }
  return Status();
}

}  // namespace zero
