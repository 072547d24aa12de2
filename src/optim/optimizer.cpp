// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <algorithm>
#include <cstring>

#include "base/refusals.h"

namespace zero {

Optimizer::Optimizer(std::shared_ptr<Comm> seat, const OptimizerOptions& given,
                     std::vector<double> initial_settings, std::unique_ptr<ThreadPool> workers)
    : comm(std::move(seat)),
      on_device(comm->device() != nullptr),
      object(comm->next_object()),
      options(given),
      initial{
          .rule = given.rule, .custom = given.custom_rule, .settings = std::move(initial_settings)},
      pool(std::move(workers)),
      plan(PlanOptions{.world = comm->world() / given.instances,
                       .rule = given.partition,
                       .bucket_bytes = given.bucket_bytes}),
      contributors(comm->world()) {
  if (options.scales_loss()) state.loss_scale = options.loss_scale;
  loss_scale_given = state.loss_scale;
}

Optimizer::~Optimizer() {
  step_memory.reset();  // may have a thread that reads other members
  saving.reset();       // likewise
}

Result<int64_t> Optimizer::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) return bad_argument("no parameter is named '", name, "'");
  return found->second;
}

/// Returns where a setting is stored. With ZERO_ALL_GROUPS, these are all groups whose rules have
/// it, and `initial`. Fails if none has it, or if the group does not exist.
Result<std::vector<SettingPlace>> Optimizer::find_places(int32_t group,
                                                         std::string_view name) const {
  const auto count = static_cast<int32_t>(groups.size());
  if (group != ZERO_ALL_GROUPS && (group < 0 || group >= count))
    return bad_argument("group ", group, " does not exist: there are ", count);
  std::vector<SettingPlace> places;
  const auto add = [&](int32_t number) {
    const int setting = find_setting(*group_at(number).rule, name);
    if (setting >= 0) places.push_back({number, static_cast<size_t>(setting)});
  };
  add(group);
  for (int32_t number = 0; group == ZERO_ALL_GROUPS && number < count; number++) add(number);
  if (places.empty()) return no_setting(*group_at(group).rule, name);
  return places;
}

/// Returns the description of a setting, or fails if it must not change between steps.
Result<const Setting*> Optimizer::check_changeable(const SettingPlace& place) const {
  const Setting& row = group_at(place.group).rule->settings[place.setting];
  if (!row.fixed) return &row;
  return wrong_state("setting '", row.name,
                     "' determines which state exists: set it at registration");
}

Status Optimizer::set(int32_t group, std::string_view name, double value) {
  const std::vector<SettingPlace> places = ZERO_TRY(find_places(group, name));
  for (const SettingPlace& place : places) {
    const Setting& row = group_at(place.group).rule->settings[place.setting];
    if (!row.range.allows(value))
      return bad_argument("setting '", name, "' is ", value, "; it must be ", row.range.text);
    ZERO_TRY(check_changeable(place));
  }
  for (const SettingPlace& place : places) group_at(place.group).settings[place.setting] = value;
  return Status();
}

Status Optimizer::set_from(int32_t group, std::string_view name, const GivenSetting& given) {
  const std::vector<SettingPlace> places = ZERO_TRY(find_places(group, name));
  for (const SettingPlace& place : places) {
    const Setting& row = *ZERO_TRY(check_changeable(place));
    const auto uses = [&](double value) {
      Group with = group_at(place.group);
      with.settings[place.setting] = value;
      return with.slots_used();
    };
    if (row.range.flag || uses(0) != uses(0.5))
      return unsupported("setting '", name,
                         "' determines what an update does or stores: it must be a ",
                         "value known to the host");
  }
  for (const SettingPlace& place : places) {
    if (place.group == ZERO_ALL_GROUPS) continue;  // groups registered later use their own values
    std::map<size_t, GivenSetting>& all = group_at(place.group).given;
    all.erase(place.setting);
    if (given.data != nullptr) all.emplace(place.setting, given);
  }
  layout++;
  return Status();
}

void Optimizer::note_moved() {
  addresses++;
  layout++;
}

Result<double> Optimizer::get(int32_t group, std::string_view name) const {
  const SettingPlace first = ZERO_TRY(find_places(group, name))[0];
  if (first.group != group) return no_setting(*initial.rule, name);  // only other groups have it
  return group_at(group).settings[first.setting];
}

// ---- Attributes of single parameters: two settings, and whether the parameter is trained.

std::array<double, kMaxSettings> Optimizer::settings_of(size_t param) const {
  const Param& of = params[param];
  const std::vector<double>& shared = groups[static_cast<size_t>(of.group)].settings;
  std::array<double, kMaxSettings> own{};
  std::copy(shared.begin(), shared.end(), own.begin());
  const auto at = [&](const char* name) {
    return static_cast<size_t>(find_setting(rule_of(of), name));
  };
  if (of.lr_scale != 1) own[at("lr")] *= of.lr_scale;
  if (of.weight_decay) own[at("weight_decay")] = *of.weight_decay;
  return own;
}

void Optimizer::freeze(size_t param, bool frozen) {
  if (trainable_[param] != frozen) return;
  trainable_[param] = !frozen;
  frozen_ += frozen ? 1 : size_t{0} - 1;
  // The hash of the set is a sum, so that freezing n parameters takes O(n) time.
  const uint64_t hash = hash64(std::as_bytes(std::span(&param, 1)));
  frozen_hash_ += frozen ? hash : uint64_t{0} - hash;
  note_moved();
}

Status Optimizer::set_trainable(int64_t param, bool trains) {
  ZERO_TRY(check_param(param));
  ZERO_TRY(check_open());
  const Param& of = params[static_cast<size_t>(param)];
  if (trains && !is_floating(of.dtype))
    return unsupported("parameter '", of.name, "' is ", dtype_name(of.dtype),
                       " and cannot be trained: it stays frozen");
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

// ---- Text of values that must be the same on all ranks.

std::string Optimizer::agreed_lines() const {
  AgreedLines lines;
  say_agreed(lines);
  return std::move(lines.text);
}

std::string Optimizer::state_set_lines() const {
  std::string lines;
  for (const auto& [param, slots] : state_sets) {
    const ParamProgress& now = progress[static_cast<size_t>(param)];
    const Rule& rule = rule_of(this->param(param));
    lines += text("state set of parameter '", this->param(param).name, "':");
    for (int slot = 0; slot < kSlotCount; slot++) {
      if (slots >> slot & 1) lines += text(" ", slot_name(rule, slot));
    }
    lines += text(", step ", now.step);
    if (rule.next_product != nullptr) lines += text(", mu_product ", exact(now.product));
    lines += "\n";
  }
  return lines;
}

Status Optimizer::check_param(int64_t param) const {
  if (param >= 0 && static_cast<size_t>(param) < params.size()) return Status();
  return bad_argument("parameter ", param, " does not exist: there are ", params.size());
}

Status Optimizer::check_owner(std::string_view param, int32_t owner) const {
  if (owner >= 0 && owner < places()) return Status();
  const char* const of = options.instances == 1 ? "a world of " : "the first instance, which has ";
  return bad_argument("parameter '", param, "': owner ", owner, " is not a rank in ", of, places());
}

Status Optimizer::check_params() const {
  if (!params.empty()) return Status();
  return wrong_state("no parameters are registered");
}

Status Optimizer::check_open() const {
  if (phase == Phase::open) return Status();
  if (phase == Phase::begun) return check_ended();
  if (phase == Phase::reducing)
    return wrong_state("gradients are announced: step or drop them first");
  return wrong_state("gradients are reduced: step or drop them first");
}

Status Optimizer::check_ended() const {
  if (phase != Phase::begun) return Status();
  return wrong_state(
      "a step has begun, and some of its updates may be made: call zero_step to finish it");
}

Status Optimizer::check_loaded() const {
  if (!not_loaded) return Status();
  return Status(ZERO_ERR_NOT_LOADED, "a load failed halfway: load a checkpoint first");
}

Status Optimizer::check_host(std::string_view call) const {
  if (!on_device) return Status();
  return unsupported(call, " is not supported on a ", comm->device()->kind(), " device");
}

std::byte* Optimizer::slot_in(const Plan& of, std::span<const SectionState> state, int slot,
                              int32_t section, int64_t share) const {
  const Memory& memory = state[static_cast<size_t>(section)].slots[static_cast<size_t>(slot)];
  if (memory.bytes() == 0) return nullptr;
  const Section& in = of.section(section);
  return memory.data() + static_cast<size_t>(share - in.share) * slot_size(slot, in);
}

size_t Optimizer::slot_size(int slot, const Section& section) const {
  return slot == kMasterSlot ? master_bytes(master_of(section))
                             : state_bytes_of(section.dtype, slot_format(section));
}

uint32_t Optimizer::slots_used(const SectionState& state) const {
  uint32_t used = 0;
  for (const int32_t group : state.groups) used |= groups[static_cast<size_t>(group)].slots_used();
  return used;
}

uint32_t Optimizer::slots_used(const Section& section) const {
  return slots_used(state_[static_cast<size_t>(section.number)]);
}

bool Optimizer::has_slots() const {
  return std::ranges::all_of(state_, [this](const SectionState& state) {
    return (slots_used(state) & ~state.allocated) == 0;
  });
}

Status Optimizer::allocate_slots() {
  for (const Section& section : plan.sections())
    ZERO_TRY(allocate_slots(section, slots_used(section)));
  return Status();
}

Status Optimizer::allocate_slots(const Section& section, uint32_t slots) {
  return allocate(state_[static_cast<size_t>(section.number)], slots, plan, section);
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const SectionState& state : state_) {
    for (const Memory& slot : state.slots) bytes += static_cast<int64_t>(slot.bytes());
  }
  return bytes;
}

bool Optimizer::has_masters() const {
  return std::ranges::any_of(
      plan.sections(), [this](const Section& section) { return is_kept(master_of(section)); });
}

void Optimizer::take_masters(size_t first_section) {
  for (const Segment& segment : segments_) {
    if (static_cast<size_t>(segment.section) < first_section) continue;
    const Section& section = plan.section(segment.section);
    const auto count = static_cast<size_t>(segment.count);
    std::byte* const to = slot(kMasterSlot, segment);
    const Master master = master_of(section);
    if (master == Master::full)
      read_values(section.dtype, reinterpret_cast<float*>(to), values(segment), count);
    if (master == Master::remainder) std::memset(to, 0, count * sizeof(uint16_t));
  }
}

}  // namespace zero
