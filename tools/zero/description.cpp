// SPDX-License-Identifier: Apache-2.0
#include "description.h"

#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>

#include "account.h"
#include "base/refusals.h"
#include "optim/optimizer.h"
#include "state/json.h"
#include "state/load.h"
#include "state/safetensors.h"

namespace zero::tool {
namespace {

Json json_of(const Settings& settings) {
  Json out = Json::object();
  for (const auto& [name, value] : settings) out[name] = tool::json_of(value);
  return out;
}

/// The keys of a group's rule and, if that is custom, of its slots, beside its settings. Only a
/// group with its own rule has them.
constexpr const char *kGroupRule = "optimizer", *kGroupSlots = "slots";
constexpr const char* kGroupState = "state_dtype";  // only of groups with state in bf16

Json json_of(const ManifestGroup& group) {
  Json out = json_of(group.settings);
  if (!group.rule.empty()) out[kGroupRule] = group.rule;
  if (!group.slots.empty()) out[kGroupSlots] = group.slots;
  if (group.slot_format == SlotFormat::bf16) out[kGroupState] = dtype_name(DType::bf16);
  return out;
}

Json json_of(const ManifestBuffer& tensor) {
  return {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}};
}

Json json_of(const ManifestParam& param) {
  Json out = json_of(static_cast<const ManifestBuffer&>(param));
  out["group"] = param.group;
  out["step"] = param.step;
  if (param.mu_product != 1) out["mu_product"] = param.mu_product;
  out["state"] = Json::array();
  for (const ManifestSlot& slot : param.slots) out["state"].push_back(slot.name);
  return out;
}

template <class Items>
Json array_of(const Items& items) {
  Json out = Json::array();
  for (const auto& item : items) out.push_back(json_of(item));
  return out;
}

// ---- Back from JSON. These throw the JSON library's exceptions for what is missing or of another
// kind, and std::out_of_range.

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto word = json.get<std::string>();
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && !std::isnan(value) ? value : Json().get<double>();  // which throws
}

/// Returns an integer from 0 to `most`. The JSON library would convert any number to one.
template <class Count>
Count count_of(const Json& json, const char* key, int64_t most) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(most))
    throw std::out_of_range(
        text("'", key, "' is ", shown(value.dump()), ", not an integer from 0 to ", most));
  return value.get<Count>();
}

Settings settings_of(const Json& json) {
  Settings settings;
  for (const auto& [name, value] : json.items()) settings.emplace_back(name, number_of(value));
  return settings;
}

/// Reads the settings of a group and, if it has them, the name of its rule and the type of its
/// state, which are text.
ManifestGroup group_of(Json json) {
  ManifestGroup group;
  if (const auto rule = json.find(kGroupRule); rule != json.end() && rule->is_string()) {
    rule->get_to(group.rule);
    json.erase(rule);
    if (const auto slots = json.find(kGroupSlots); slots != json.end() && slots->is_array()) {
      slots->get_to(group.slots);
      json.erase(slots);
    }
  }
  if (const auto state = json.find(kGroupState); state != json.end()) {
    if (*state != dtype_name(DType::bf16))
      throw std::out_of_range(
          text("'", kGroupState, "' is ", shown(state->dump()), ", not ", dtype_name(DType::bf16)));
    group.slot_format = SlotFormat::bf16;
    json.erase(state);
  }
  group.settings = settings_of(json);
  return group;
}

void read_tensor(ManifestBuffer& tensor, const Json& json) {
  json.at("name").get_to(tensor.name);
  json.at("dtype").get_to(tensor.dtype);
  json.at("shape").get_to(tensor.shape);
  tensor.count = shape_elements(tensor.shape).value_or(0);  // parse_manifest() refuses the others
}

Manifest read_all(const Json& json) {
  Manifest manifest;
  manifest.step = count_of<int64_t>(json, "step", kMostSteps);
  manifest.skipped = count_of<int64_t>(json, "skipped", kMostSteps);
  json.at("optimizer").get_to(manifest.rule);
  manifest.slots = json.value("slots", std::vector<std::string>());
  manifest.options = settings_of(json.at("options"));
  for (const Json& group : json.at("groups")) manifest.groups.push_back(group_of(group));
  for (const Json& param : json.at("parameters")) {
    ManifestParam& to = manifest.params.emplace_back();
    read_tensor(to, param);
    to.group = count_of<int32_t>(param, "group", INT32_MAX);
    to.step = count_of<int64_t>(param, "step", kMostSteps);
    to.mu_product = param.value("mu_product", 1.0);
    for (const Json& slot : param.at("state")) to.slots.push_back({slot.get<std::string>(), {}});
  }
  for (const Json& buffer : json.at("buffers"))
    read_tensor(manifest.buffers.emplace_back(), buffer);
  return manifest;
}

/// Checks that every parameter that has been updated has all of its state.
Status check_whole(const Manifest& manifest, std::span<const Group> groups) {
  Account account({});
  for (const ManifestParam& param : manifest.params) {
    const Group& group = groups[static_cast<size_t>(param.group)];
    if (group.rule == nullptr) continue;
    const uint32_t held = saved_slots(param, *group.rule) & ~(1u << kMasterSlot);
    if (held == 0 && param.step == 0) continue;
    for (size_t slot = 0; slot < group.rule->slots.size(); slot++)
      if ((group.slots_used() & ~held) >> slot & 1)
        account.missing(text(param.name, ".", group.rule->slots[slot]));
  }
  return account.status();
}

Status check_rule(const Manifest& manifest) {
  const std::vector<const Rule*> rules = ZERO_TRY(find_rules(manifest));
  const std::vector<Group> groups = ZERO_TRY(saved_groups(manifest, rules));
  for (size_t i = 0; i < groups.size(); i++) {
    if (rules[i] == nullptr) continue;
    for (const auto& [name, unused] : manifest.groups[i].settings)
      if (find_setting(*groups[i].rule, name) < 0) return no_setting(*groups[i].rule, name);
  }
  for (const ManifestParam& param : manifest.params) {
    if (static_cast<size_t>(param.group) >= groups.size())
      return invalid("parameter ", shown(param.name), ": group ", param.group,
                     " does not exist: there are ", groups.size());
    const Rule* const rule = rules[static_cast<size_t>(param.group)];
    for (const ManifestSlot& slot : param.slots)
      if (rule != nullptr && find_slot(*rule, slot.name) < 0)
        return invalid("parameter ", shown(param.name), ": ", rule->name, " has no state ",
                       shown(slot.name));
  }
  ZERO_TRY(check_whole(manifest, groups));
  return check_products(manifest, groups);
}

}  // namespace

Json describe(const Manifest& manifest) {
  Json out{{"step", manifest.step}, {"skipped", manifest.skipped}, {"optimizer", manifest.rule}};
  if (!manifest.slots.empty()) out["slots"] = manifest.slots;
  out["options"] = json_of(manifest.options);
  out["groups"] = array_of(manifest.groups);
  out["parameters"] = array_of(manifest.params);
  out["buffers"] = array_of(manifest.buffers);
  return out;
}

Result<Manifest> parse_description(const std::string& json) {
  constexpr int kDeepest = 16;
  bool deeper = false;
  std::string twice;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const Json::parser_callback_t keep = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deeper = deeper || depth > kDeepest;
    if (deeper) return false;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  Manifest manifest;
  try {
    const Json parsed = Json::parse(json, keep);
    if (deeper)
      return invalid("its metadata '", kDescriptionKey, "' is nested deeper than ", kDeepest);
    if (!twice.empty())
      return invalid("its metadata '", kDescriptionKey, "': the key ", shown(twice),
                     " comes twice");
    manifest = read_all(parsed);
  } catch (const std::out_of_range& error) {
    return invalid("its metadata '", kDescriptionKey, "': ", error.what());
  } catch (const Json::exception& error) {
    return invalid("its metadata '", kDescriptionKey,
                   "' does not describe a checkpoint: ", error.what());
  }
  ZERO_TRY(check_rule(manifest));
  return manifest;
}

}  // namespace zero::tool
