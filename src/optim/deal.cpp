// SPDX-License-Identifier: Apache-2.0
// Who owns what, as it changes: a seal adds parameters, a deal gives all of them new places. What
// may fail is prepared before anything changes.
#include <algorithm>
#include <iterator>

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
  const auto elements = static_cast<size_t>(from.share_elements(section, comm->rank()));
  return Memory::allocate(comm->device(), elements * slot_size(slot, from.sections()[section]),
                          text("state '", slot_name(*options.rule, slot), "'"));
}

Result<SectionState> Optimizer::allocate_section(uint32_t slots, const Plan& from,
                                                 size_t section) const {
  SectionState state;
  for (int slot = 0; slot < kSlotCount; slot++) {
    if ((slots >> slot & 1) != 0)
      state[static_cast<size_t>(slot)] = ZERO_TRY(allocate_slot(slot, from, section));
  }
  return state;
}

Result<Optimizer::Seal> Optimizer::prepare_seal() const {
  Seal seal{.plan = plan, .segments = {}, .added = {}};
  std::vector<int64_t> ends;
  for (const int64_t end : group_ends_) {
    if (end > static_cast<int64_t>(sealed_params_)) {
      ends.push_back(end - static_cast<int64_t>(sealed_params_));
    }
  }
  ZERO_TRY(seal.plan.add(plan_params(sealed_params_), ends));
  seal.segments = seal.plan.segments(comm->rank());
  const uint32_t used = slots_used() | 1u << kMasterSlot;
  for (size_t s = state_.size(); s < seal.plan.sections().size(); s++)
    seal.added.push_back(ZERO_TRY(allocate_section(used, seal.plan, s)));
  return seal;
}

void Optimizer::commit_seal(Seal seal) {
  std::move(seal.added.begin(), seal.added.end(), std::back_inserter(state_));
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
  Deal deal{
      .plan = ZERO_TRY(plan.anew(all, group_ends_)), .segments = {}, .state = {}, .owners = {}};
  deal.owners.assign(owners.begin(), owners.end());
  if (deal.plan.places_as(plan)) return deal;
  deal.segments = deal.plan.segments(comm->rank());
  uint32_t used = slots_used() | 1u << kMasterSlot;
  for (const ParamProgress& of : progress) used |= of.live_slots;
  for (size_t s = 0; s < deal.plan.sections().size(); s++)
    deal.state.push_back(ZERO_TRY(allocate_section(used, deal.plan, s)));
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
