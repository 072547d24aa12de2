// SPDX-License-Identifier: Apache-2.0
// Changes the owners of elements. A seal adds parameters, and a deal reassigns all parameters.
// Everything that may fail is prepared before anything changes.
#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/text.h"
#include "optim/optimizer.h"

namespace zero {

std::vector<PlanParam> Optimizer::plan_params(size_t first) const {
  std::vector<PlanParam> out;
  for (size_t i = first; i < params.size(); i++) {
    out.push_back({.count = params[i].count,
                   .order = params[i].order,
                   .owner = params[i].owner,
                   .dtype = params[i].dtype,
                   .grad_dtype = params[i].grad_dtype,
                   .rests = false});
  }
  return out;
}

Result<Memory> Optimizer::allocate_slot(int slot, const Plan& from, size_t section) const {
  const auto elements = static_cast<size_t>(from.share_elements(section, place()));
  return Memory::allocate(comm->device(), elements * slot_size(slot, from.sections()[section]),
                          text("state '", slot_name(*options.rule, slot), "'"));
}

/// Returns a deal for the plan `from`. Allocates memory for master weights and `slots` in the
/// sections from `first_section` on.
Result<Optimizer::Deal> Optimizer::allocate_state(Plan from, size_t first_section,
                                                  uint32_t slots) const {
  Deal deal{.plan = std::move(from)};
  deal.segments = deal.plan.segments(place());
  for (size_t s = first_section; s < deal.plan.sections().size(); s++) {
    SectionState& state = deal.state.emplace_back();
    for (int slot = 0; slot < kSlotCount; slot++) {
      if (slot == kMasterSlot || (slots >> slot & 1) != 0)
        state[static_cast<size_t>(slot)] = ZERO_TRY(allocate_slot(slot, deal.plan, s));
    }
  }
  return deal;
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
  return allocate_state(std::move(next), state_.size(), slots_used());
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
  uint32_t used = slots_used();
  for (const ParamProgress& of : progress) used |= of.live_slots;
  const bool stays = next.places_as(plan);
  Deal deal =
      stays ? Deal{.plan = std::move(next)} : ZERO_TRY(allocate_state(std::move(next), 0, used));
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
