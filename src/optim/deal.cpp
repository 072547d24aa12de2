// SPDX-License-Identifier: Apache-2.0
// Changes the owners of elements. A seal adds parameters, and a deal reassigns all parameters.
// Everything that may fail is prepared before anything changes.
#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "optim/optimizer.h"

namespace zero {

std::vector<int32_t> kinds_of(std::span<const Group> groups) {
  std::map<std::tuple<std::string, uint32_t, SlotFormat>, int32_t> kinds;
  std::vector<int32_t> kind_of;
  for (const Group& group : groups) {
    const auto number = static_cast<int32_t>(kind_of.size());
    kind_of.push_back(
        kinds.emplace(std::tuple(group.rule_line(), group.slots_used(), group.slot_format), number)
            .first->second);
  }
  return kind_of;
}

std::vector<PlanParam> Optimizer::plan_params(size_t first) const {
  const std::vector<int32_t> kind_of = kinds_of(groups);
  std::vector<PlanParam> out;
  for (size_t i = first; i < params.size(); i++) {
    out.push_back({.count = params[i].count,
                   .order = params[i].order,
                   .owner = params[i].owner,
                   .dtype = params[i].dtype,
                   .grad_dtype = params[i].grad_dtype,
                   .rests = false,
                   .kind = kind_of[static_cast<size_t>(params[i].group)],
                   .whole = groups[static_cast<size_t>(params[i].group)].whole_tensors()});
  }
  return out;
}

/// Returns the states of a plan's sections, without memory.
std::vector<SectionState> Optimizer::sections_of(const Plan& of) const {
  std::vector<SectionState> sections(of.sections().size());
  for (int64_t i = 0; i < of.params(); i++) {
    std::vector<int32_t>& found = sections[static_cast<size_t>(of.section_number(i))].groups;
    // Groups are consecutive parameters, so a known one is the last.
    if (found.empty() || found.back() != param(i).group) found.push_back(param(i).group);
  }
  return sections;
}

Result<Memory> Optimizer::allocate_slot(int slot, const Plan& from, const Section& section) const {
  const auto number = static_cast<size_t>(section.number);
  const auto elements = static_cast<size_t>(from.share_elements(number, place()));
  return Memory::allocate(comm->device(), elements * slot_size(slot, section),
                          text("state '", slot_name(rule_of(section), slot), "'"));
}

/// Returns a deal for the plan `from`. In the sections from `first_section` on, allocates memory
/// for master weights, for the slots that settings use, and for those that hold values.
Result<Optimizer::Deal> Optimizer::allocate_state(Plan from, size_t first_section) const {
  std::vector<SectionState> sections = sections_of(from);
  std::vector<uint32_t> live(sections.size());
  for (int64_t i = 0; i < from.params(); i++)
    live[static_cast<size_t>(from.section_number(i))] |=
        progress[static_cast<size_t>(i)].live_slots;
  Deal deal{.plan = std::move(from)};
  deal.segments = deal.plan.segments(place());
  for (size_t s = first_section; s < sections.size(); s++) {
    const uint32_t slots = slots_used(sections[s]) | live[s] | 1u << kMasterSlot;
    ZERO_TRY(allocate(sections[s], slots, deal.plan, deal.plan.sections()[s]));
    deal.state.push_back(std::move(sections[s]));
  }
  return deal;
}

/// Allocates memory for those slots of a section that have none.
Status Optimizer::allocate(SectionState& state, uint32_t slots, const Plan& from,
                           const Section& section) const {
  for (int slot = 0; slot < kSlotCount; slot++) {
    if (((slots & ~state.allocated) >> slot & 1) == 0) continue;
    state.slots[static_cast<size_t>(slot)] = ZERO_TRY(allocate_slot(slot, from, section));
    state.allocated |= 1u << slot;
  }
  return Status();
}

Result<Optimizer::Deal> Optimizer::prepare_seal() const {
  const auto sealed = static_cast<int64_t>(sealed_params_);
  std::vector<int64_t> ends;
  for (const int64_t end : group_ends_)
    if (end > sealed) ends.push_back(end - sealed);
  Plan next = plan;
  ZERO_TRY(next.add(plan_params(sealed_params_), ends));
  if (const int64_t idle = next.idle_ranks() * options.instances;
      idle > 0 && idle < comm->world() && comm->rank() == 0) {
    log(ZERO_LOG_INFO, text(idle, " of ", comm->world(), " ranks will own nothing and hold no ",
                            "optimizer state: the parameters are too few or too small. EVEN ",
                            "splits them into blocks of ", kBlock, " elements; other partitions ",
                            "do not split them"));
  }
  return allocate_state(std::move(next), state_.size());
}

void Optimizer::commit_seal(Deal seal) {
  std::ranges::move(seal.state, std::back_inserter(state_));
  plan = std::move(seal.plan);
  segments_ = std::move(seal.segments);
  sealed_params_ = params.size();
  sealed_buffers_ = buffers.size();
  note_moved();
}

Result<Optimizer::Deal> Optimizer::prepare_deal(std::span<const int32_t> owners) const {
  std::vector<PlanParam> all = plan_params(0);
  for (size_t i = 0; i < all.size(); i++) {
    all[i].rests = !trains(i);
    if (!owners.empty()) all[i].owner = owners[i];
  }
  Plan next = ZERO_TRY(plan.anew(all, group_ends_));
  const bool stays = next.places_as(plan);
  Deal deal = stays ? Deal{.plan = std::move(next)} : ZERO_TRY(allocate_state(std::move(next), 0));
  deal.owners.assign(owners.begin(), owners.end());
  return deal;
}

void Optimizer::commit_deal(Deal deal) {
  for (size_t i = 0; i < deal.owners.size(); i++) params[i].owner = deal.owners[i];
  if (deal.state.empty()) return;
  plan = std::move(deal.plan);
  segments_ = std::move(deal.segments);
  state_ = std::move(deal.state);
  note_moved();
}

}  // namespace zero
