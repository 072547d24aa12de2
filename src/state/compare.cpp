// SPDX-License-Identifier: Apache-2.0
#include "state/compare.h"

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "optim/options.h"
#include "state/json.h"

namespace zero {
namespace {

/// Sentences of differences, as many as an error text holds.
class Differences {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (out_.size() < kLongest) {
      out_ += text(count_ == 0 ? "" : "; ", parts...);
      told_++;
    }
    count_++;
  }
  Status status() const {
    if (count_ == 0) return {};
    return {ZERO_ERR_CKPT_MISMATCH,
            text("the checkpoint differs from what is registered: ", out_,
                 told_ == count_ ? "" : text("; and ", count_ - told_, " more differences"))};
  }

 private:
  static constexpr size_t kLongest = 2800;  // what a vote carries, less one sentence
  std::string out_;
  size_t count_ = 0, told_ = 0;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t size : shape) out += text(out.size() == 1 ? "" : ", ", size);
  return out + "]";
}

/// What a parameter and a buffer have alike.
template <class Tensor, class Saved>
void compare_tensor(const char* kind, const Tensor& tensor, const Saved& saved,
                    Differences& differences) {
  if (saved.dtype != dtype_code(tensor.dtype)) {
    differences.add(kind, " ", shown(tensor.name), " is ", saved.dtype,
                    " in the checkpoint, is registered as ", dtype_code(tensor.dtype));
  }
  if (saved.shape != tensor.shape) {
    differences.add(kind, " ", shown(tensor.name), " has shape ", shape_text(saved.shape),
                    " in the checkpoint, is registered with ", shape_text(tensor.shape));
  }
}

void compare_param(const Optimizer& optim, const Param& param, const ManifestParam& saved,
                   Differences& differences) {
  const Rule& rule = *optim.options.rule;
  if (saved.group != param.group) {
    differences.add("parameter ", shown(param.name), " is in group ", saved.group,
                    " in the checkpoint, is registered in group ", param.group);
  }
  for (const ManifestSlot& slot : saved.slots) {
    const int known = find_slot(rule, slot.name);
    if (known < 0 || (known == kMasterSlot && !is_kept(master_of(param.dtype, optim.options)))) {
      differences.add("parameter ", shown(param.name), " has state ", shown(slot.name),
                      " in the checkpoint, which ", rule.name, " does not have");
    }
  }
}

/// What a rule of the caller's declares is not what another one of that name does.
void compare_declared(const Manifest& manifest, const Optimizer& optim, Differences& differences) {
  if (optim.options.custom == nullptr) return;
  const auto& slots = optim.options.rule->slots;
  const std::vector<std::string>& saved = manifest.slots;
  for (const std::string& slot : saved) {
    if (std::find(slots.begin(), slots.end(), slot) == slots.end())
      differences.add("the checkpoint's ", shown(manifest.rule), " has state ", shown(slot),
                      ", which is not declared");
  }
  for (const char* slot : slots) {
    if (std::find(saved.begin(), saved.end(), slot) == saved.end())
      differences.add("state ", shown(slot), " is declared, which the checkpoint's ",
                      shown(manifest.rule), " does not have");
  }
}

void compare_groups(const Manifest& manifest, const Optimizer& optim, Differences& differences) {
  const Rule& rule = *optim.options.rule;
  if (manifest.groups.size() != optim.groups.size()) {
    differences.add("the checkpoint has ", manifest.groups.size(), " groups, registered are ",
                    optim.groups.size());
  }
  for (size_t g = 0; g < std::min(manifest.groups.size(), optim.groups.size()); g++) {
    for (const auto& [name, value] : manifest.groups[g]) {
      const int setting = find_setting(rule, name);
      if (setting < 0) {
        differences.add("group ", g, " has a setting ", shown(name), " in the checkpoint, which ",
                        rule.name, " does not have");
        continue;
      }
      const double registered = optim.groups[g].settings[static_cast<size_t>(setting)];
      if (rule.settings[static_cast<size_t>(setting)].fixed && value != registered) {
        differences.add("group ", g, " has ", name, " ", value,
                        " in the checkpoint, is registered with ", registered);
      }
    }
  }
}

/// Where among `saved` each of `registered` stands, by name; `compare` looks at each pair.
template <class Tensor, class Saved, class Compare>
std::vector<size_t> match(const char* kind, const std::vector<Tensor>& registered,
                          const std::vector<Saved>& saved, Differences& differences,
                          const Compare& compare) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < saved.size(); i++) places.emplace(saved[i].name, i);
  std::vector<size_t> matched(registered.size());
  std::vector<bool> used(saved.size());
  for (size_t i = 0; i < registered.size(); i++) {
    const auto found = places.find(registered[i].name);
    if (found == places.end()) {
      differences.add(kind, " ", shown(registered[i].name), " is not in the checkpoint");
      continue;
    }
    matched[i] = found->second;
    used[found->second] = true;
    compare_tensor(kind, registered[i], saved[found->second], differences);
    compare(registered[i], saved[found->second]);
  }
  for (size_t i = 0; i < used.size(); i++) {
    if (used[i]) continue;
    differences.add(kind, " ", shown(saved[i].name), " of the checkpoint is not registered");
  }
  return matched;
}

}  // namespace

Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim) {
  const Rule& rule = *optim.options.rule;
  Differences differences;
  if (manifest.rule != rule.name) {
    differences.add("the checkpoint is of optimizer ", shown(manifest.rule), ", created is ",
                    rule.name);
  } else {
    compare_declared(manifest, optim, differences);
    compare_groups(manifest, optim, differences);
  }
  Places places;
  places.params = match("parameter", optim.params, manifest.params, differences,
                        [&](const Param& param, const ManifestParam& saved) {
                          compare_param(optim, param, saved, differences);
                        });
  places.buffers = match("buffer", optim.buffers, manifest.buffers, differences,
                         [](const Buffer&, const ManifestBuffer&) {});
  ZERO_TRY(differences.status());
  return places;
}

Result<std::vector<Group>> saved_settings(const Manifest& manifest, const Rule& rule) {
  std::vector<Group> groups;
  for (const Settings& saved : manifest.groups) {
    Group& group = groups.emplace_back();
    for (const Setting& setting : rule.settings) group.settings.push_back(setting.initial);
    for (const auto& [name, value] : saved) {
      const int at = find_setting(rule, name);
      if (at < 0) continue;  // a difference that match_registered tells
      const Setting& setting = rule.settings[static_cast<size_t>(at)];
      if (!setting_allows(setting, value)) {
        return invalid("group ", groups.size() - 1, ": setting '", name, "' is ", value,
                       "; it must be ", setting_range_text(setting));
      }
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
  if (!LossScale::allowed(saved.scale)) return invalid("the loss scale is ", saved.scale);
  if (!(good_steps >= 0 && good_steps <= static_cast<double>(kMostSteps)))
    return invalid("there were ", good_steps, " good steps");
  saved.good_steps = static_cast<int64_t>(good_steps);
  return saved;
}

Status check_products(const Manifest& manifest, const Rule& rule) {
  for (const ManifestParam& param : manifest.params) {
    const bool made = rule.next_product != nullptr && param.step > 0;
    if (made == (param.mu_product != 1)) continue;
    return invalid("parameter '", param.name, "' has ", made ? "no" : "a", " mu_product after ",
                   param.step, " steps of ", rule.name);
  }
  return Status();
}

}  // namespace zero
