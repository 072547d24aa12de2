// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace zero {

Optimizer::Optimizer(std::shared_ptr<Comm> seat, const OptimizerOptions& given,
                     std::vector<double> initial, std::unique_ptr<ThreadPool> workers)
    : comm(std::move(seat)),
      object(comm->next_object()),
      options(given),
      settings(std::move(initial)),
      pool(std::move(workers)),
      plan(PlanOptions{.world = comm->world(),
                       .rule = given.partition,
                       .bucket_elements = given.bucket_bytes / 4}),
      slots_(given.rule->slots.size()) {}

Optimizer::~Optimizer() = default;

Result<int64_t> Optimizer::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) {
    return Status(ZERO_ERR_ARGUMENT, text("no parameter is named '", name, "'"));
  }
  return found->second;
}

Status Optimizer::set(int32_t group, std::string_view name, double value) {
  const int setting = find_setting(*options.rule, name);
  if (setting < 0) {
    return Status(ZERO_ERR_ARGUMENT, text(options.rule->name, " has no setting '", name, "'"));
  }
  const Setting& row = options.rule->settings[static_cast<size_t>(setting)];
  if (!setting_allows(row, value)) {
    return Status(ZERO_ERR_ARGUMENT, text("setting '", name, "' is ", value, "; it must be ",
                                          setting_range_text(row)));
  }
  if (group != ZERO_ALL_GROUPS && (group < 0 || static_cast<size_t>(group) >= groups.size())) {
    return Status(ZERO_ERR_ARGUMENT,
                  text("group ", group, " does not exist: there are ", groups.size()));
  }
  if (row.fixed) {
    return Status(ZERO_ERR_STATE, text("setting '", name,
                                       "' decides which state there is: give it at registration"));
  }
  for (size_t i = 0; i < groups.size(); i++) {
    if (group == ZERO_ALL_GROUPS || static_cast<size_t>(group) == i) {
      groups[i].settings[static_cast<size_t>(setting)] = value;
    }
  }
  if (group == ZERO_ALL_GROUPS) settings[static_cast<size_t>(setting)] = value;
  return Status();
}

Result<double> Optimizer::get(int32_t group, std::string_view name) const {
  const int setting = find_setting(*options.rule, name);
  if (setting < 0) {
    return Status(ZERO_ERR_ARGUMENT, text(options.rule->name, " has no setting '", name, "'"));
  }
  if (group == ZERO_ALL_GROUPS) return settings[static_cast<size_t>(setting)];
  if (group < 0 || static_cast<size_t>(group) >= groups.size()) {
    return Status(ZERO_ERR_ARGUMENT,
                  text("group ", group, " does not exist: there are ", groups.size()));
  }
  return groups[static_cast<size_t>(group)].settings[static_cast<size_t>(setting)];
}

Result<Optimizer::Seal> Optimizer::prepare_seal() const {
  Seal seal{.plan = plan, .segments = {}, .slots = std::vector<HostMemory>(slots_.size())};
  std::vector<PlanParam> added;
  for (size_t i = sealed_params_; i < params.size(); i++) {
    added.push_back({.count = params[i].count, .order = params[i].order, .owner = params[i].owner});
  }
  std::vector<int64_t> ends;
  for (const int64_t end : group_ends_) {
    if (end > static_cast<int64_t>(sealed_params_)) {
      ends.push_back(end - static_cast<int64_t>(sealed_params_));
    }
  }
  ZERO_TRY(seal.plan.add(added, ends));
  seal.segments = seal.plan.segments(comm->rank());
  const auto elements = static_cast<size_t>(seal.plan.share_elements(comm->rank()));
  const uint32_t used = slots_used();
  for (size_t slot = 0; slot < slots_.size(); slot++) {
    if ((used >> slot & 1) == 0 && slots_[slot].bytes() == 0) continue;
    seal.slots[slot] = ZERO_TRY(HostMemory::allocate(
        elements * sizeof(float), text("state '", options.rule->slots[slot], "'")));
  }
  return seal;
}

void Optimizer::commit_seal(Seal seal) {
  // A later seal only appends to the share, so what stands keeps its place.
  for (size_t slot = 0; slot < slots_.size(); slot++) {
    if (slots_[slot].bytes() > 0) {
      std::memcpy(seal.slots[slot].data(), slots_[slot].data(), slots_[slot].bytes());
    }
  }
  slots_ = std::move(seal.slots);
  plan = std::move(seal.plan);
  segments_ = std::move(seal.segments);
  sealed_params_ = params.size();
  addresses++;
}

std::string Optimizer::agreed_lines() const {
  std::string lines = text("step ", step, "\n");
  for (size_t g = 0; g < groups.size(); g++) {
    for (size_t s = 0; s < options.rule->settings.size(); s++) {
      const double value = groups[g].settings[s];
      lines += text("group ", g, " ", options.rule->settings[s].name, " = ", hex_double(value),
                    " (", value, ")\n");
    }
  }
  return lines;
}

float* Optimizer::slot(int slot, int64_t share) const {
  const HostMemory& memory = slots_[static_cast<size_t>(slot)];
  return memory.bytes() == 0 ? nullptr : memory.floats() + share;
}

uint32_t Optimizer::slots_used() const {
  uint32_t used = 0;
  for (const Group& group : groups) used |= options.rule->slots_used(group.settings);
  return used;
}

Status Optimizer::allocate_slots(uint32_t also) {
  const uint32_t used = slots_used() | also;
  const auto elements = static_cast<size_t>(share_elements());
  for (size_t slot = 0; slot < slots_.size(); slot++) {
    if ((used >> slot & 1) == 0 || slots_[slot].bytes() > 0) continue;
    slots_[slot] = ZERO_TRY(HostMemory::allocate(elements * sizeof(float),
                                                 text("state '", options.rule->slots[slot], "'")));
  }
  return Status();
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const HostMemory& slot : slots_) bytes += static_cast<int64_t>(slot.bytes());
  return bytes;
}

}  // namespace zero
