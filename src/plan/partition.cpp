// SPDX-License-Identifier: Apache-2.0
// One seal becomes part of the plan: its sections, their place on the grid, their owners, their
// layout. All of it is drafted first and appended when nothing can fail any more.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "plan/plan.h"

namespace zero {
namespace {

Status too_large(int64_t param, int64_t count) {
  return {ZERO_ERR_ARGUMENT,
          text("parameter ", param, " of ", count, " elements: the total passes the limit of ",
               kMaxElements, " elements; register fewer or smaller parameters")};
}

Status padded_too_large(int64_t first_param, size_t count, int32_t world) {
  return {ZERO_ERR_ARGUMENT,
          text("parameters ", first_param, " to ", first_param + static_cast<int64_t>(count) - 1,
               ": laid out for ", world, " ranks they pass the limit of ", kMaxElements,
               " elements; register fewer or smaller parameters")};
}

/// The next `elements` behind `end`, both at most kMaxElements; false if that passes kMaxElements.
bool extend(int64_t& end, int64_t elements) {
  if (elements > kMaxElements - end) return false;
  end += elements;
  return true;
}

using Load = std::pair<int64_t, int32_t>;  // (elements, rank): orders by load, then by rank
using LeastLoaded = std::priority_queue<Load, std::vector<Load>, std::greater<>>;

LeastLoaded loads_of(std::span<const int64_t> owned) {
  std::vector<Load> loads;
  loads.reserve(owned.size());
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    loads.emplace_back(owned[rank], static_cast<int32_t>(rank));
  }
  return LeastLoaded(std::greater<>(), std::move(loads));
}

std::span<int64_t> travel_in(const Section& section, std::vector<int64_t>& travel) {
  return std::span(travel).subspan(static_cast<size_t>(section.first_travel),
                                   static_cast<size_t>(section.params));
}

/// Of the seal that begins with parameter `first`: after this, sums of counts do not overflow.
Status check_counts(std::span<const PlanParam> params, int64_t first) {
  int64_t total = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t number = first + static_cast<int64_t>(i), count = params[i].count;
    if (count < 0) {
      return {ZERO_ERR_ARGUMENT, text("parameter ", number, ": negative count ", count)};
    }
    if (!extend(total, count)) return too_large(number, count);
  }
  return {};
}

Status check_groups(size_t params, std::span<const int64_t> group_ends) {
  int64_t end = 0;
  for (const int64_t next : group_ends) {
    if (next < end) return {ZERO_ERR_INTERNAL, text("plan: group end ", next, " after ", end)};
    end = next;
  }
  if (end == static_cast<int64_t>(params)) return {};
  return {ZERO_ERR_INTERNAL, text("plan: groups end at ", end, " of ", params, " parameters")};
}

}  // namespace

Status Plan::add(std::span<const PlanParam> params, std::span<const int64_t> group_ends) {
  Draft draft;
  draft.owned = owned_;
  draft.grid_end = grid_end_;
  return deal(params, group_ends, std::move(draft));
}

Result<Plan> Plan::anew(std::span<const PlanParam> params,
                        std::span<const int64_t> group_ends) const {
  Plan made(options_);
  Draft draft;
  draft.owned = made.owned_;
  draft.grid = grid_;
  draft.grid_end = grid_end_;
  ZERO_TRY(made.deal(params, group_ends, std::move(draft)));
  made.in_place_ = false;
  return made;
}

/// Where the draft has a grid, parameters keep it.
Status Plan::deal(std::span<const PlanParam> params, std::span<const int64_t> group_ends,
                  Draft draft) {
  ZERO_TRY(check_groups(params.size(), group_ends));
  if (params.empty()) return {};
  ZERO_TRY(check_counts(params, this->params()));
  const bool placed = !draft.grid.empty();
  sort_into_sections(params, draft);
  draft.grid.resize(params.size());
  draft.layout.resize(params.size());
  if (!even()) ZERO_TRY(assign_owners(params, group_ends, draft));
  Section end = end_;
  for (Section& section : draft.sections) {
    begin_behind(section, end);
    if (!placed) ZERO_TRY(place_on_grid(params, section, draft));
    ZERO_TRY(even() ? lay_out_evenly(params, section, draft)
                    : lay_out_by_owner(params, section, draft));
    move_behind(section, end);
  }
  append(params, std::move(draft), end);
  return {};
}

/// Sections by rising numbers of their dtypes, those that rest behind the others, and in
/// draft.travel each section's parameters in falling order, or as they are on the grid.
void Plan::sort_into_sections(std::span<const PlanParam> params, Draft& draft) {
  const auto kind = [&](int64_t index) {
    const PlanParam& param = params[static_cast<size_t>(index)];
    return std::tuple(param.rests, param.dtype, param.grad_dtype);
  };
  // Parameters without elements share a place on the grid with what comes behind them.
  const auto comes_first = [&](size_t a, size_t b) {
    if (draft.grid.empty()) return params[a].order > params[b].order;
    return std::pair(draft.grid[a], params[a].count > 0) <
           std::pair(draft.grid[b], params[b].count > 0);
  };
  draft.travel.resize(params.size());
  draft.section_of.resize(params.size());
  // From the last to the first, so that a stable sort leaves the later one first on ties.
  std::iota(draft.travel.rbegin(), draft.travel.rend(), int64_t{0});
  std::stable_sort(draft.travel.begin(), draft.travel.end(), [&](int64_t a, int64_t b) {
    if (kind(a) != kind(b)) return kind(a) < kind(b);
    return comes_first(static_cast<size_t>(a), static_cast<size_t>(b));
  });
  for (size_t i = 0; i < draft.travel.size(); ++i) {
    const int64_t index = draft.travel[i];
    if (i == 0 || kind(draft.travel[i - 1]) != kind(index)) {
      Section& section = draft.sections.emplace_back();
      section.dtype = params[static_cast<size_t>(index)].dtype;
      section.grad_dtype = params[static_cast<size_t>(index)].grad_dtype;
      section.first_travel = static_cast<int64_t>(i);
    }
    draft.sections.back().params++;
    draft.section_of[static_cast<size_t>(index)] = static_cast<int32_t>(draft.sections.size()) - 1;
  }
}

void Plan::begin_behind(Section& section, const Section& end) const {
  section.layout = end.layout;
  section.share = end.share;
  section.data_bytes = end.data_bytes;
  section.grad_bytes = end.grad_bytes;
  section.owned_bytes = end.owned_bytes;
  section.sum_bytes = end.sum_bytes;
}

void Plan::move_behind(const Section& section, Section& end) const {
  constexpr int64_t kLine = 64;
  end.layout = section.layout + section.layout_elements;
  end.share = section.share + section.share_elements;
  end.data_bytes = round_up(section.data_at(end.layout), kLine);
  end.grad_bytes = round_up(section.grad_at(end.layout), kLine);
  end.owned_bytes = round_up(section.owned_at(end.share), kLine);
  end.sum_bytes = round_up(section.sum_at(end.share), kLine);
}

/// Sets draft.grid of the section's parameters and moves draft.grid_end.
Status Plan::place_on_grid(std::span<const PlanParam> params, const Section& section,
                           Draft& draft) const {
  int64_t end = draft.grid_end;
  for (const int64_t index : travel_in(section, draft.travel)) {
    const int64_t count = params[static_cast<size_t>(index)].count;
    draft.grid[static_cast<size_t>(index)] = end;
    if (!extend(end, count)) return too_large(this->params() + index, count);
    end = round_up(end, kAlignment);
  }
  draft.grid_end = round_up(end, kBlock);
  if (draft.grid_end <= kMaxElements) return {};
  return padded_too_large(this->params(), params.size(), options_.world);
}

/// Sets draft.layout and the section's end: one behind the other, each where it lies in its blocks
/// of the grid, so that it covers as many here.
Status Plan::lay_out_evenly(std::span<const PlanParam> params, Section& section,
                            Draft& draft) const {
  int64_t end = 0;
  for (const int64_t index : travel_in(section, draft.travel)) {
    const auto param = static_cast<size_t>(index);
    const int64_t count = params[param].count, distance = draft.grid[param] - end;
    const int64_t gap = count == 0 ? 0 : (distance % kBlock + kBlock) % kBlock;
    if (!extend(end, gap)) end = kMaxElements;
    draft.layout[param] = section.layout + end;
    if (!extend(end, count)) return too_large(this->params() + index, count);
    end = round_up(end, kAlignment);
  }
  section.end = end;
  return cut_evenly(params, section, draft);
}

/// Sets the section's buckets and adds to draft.owned.
Status Plan::cut_evenly(std::span<const PlanParam> params, Section& section, Draft& draft) const {
  const int64_t blocks = round_up(section.end, kBlock) / kBlock;
  section.buckets = Buckets(blocks, options_.world, bucket_elements(section));
  section.share_elements = section.buckets.share_elements();
  section.layout_elements = section.buckets.layout_elements();
  int64_t layout_end = section.layout;
  if (!extend(layout_end, section.layout_elements)) {
    return padded_too_large(this->params(), params.size(), options_.world);
  }
  if (blocks == 0) return {};

  // All of a rank's blocks, less what in them is no parameter's.
  for (int32_t rank = 0; rank < options_.world; ++rank) {
    draft.owned[static_cast<size_t>(rank)] += section.buckets.owned_blocks(rank) * kBlock;
  }
  int64_t passed = 0;
  const auto subtract_to = [&](int64_t end) {
    while (passed < end) {
      const int64_t next = std::min(end, round_up(passed + 1, kBlock));
      const int32_t rank = section.buckets.find(passed).rank;
      draft.owned[static_cast<size_t>(rank)] -= next - passed;
      passed = next;
    }
  };
  for (const int64_t index : travel_in(section, draft.travel)) {
    const auto param = static_cast<size_t>(index);
    subtract_to(draft.layout[param] - section.layout);
    passed += params[param].count;
  }
  subtract_to(blocks * kBlock);
  return {};
}

/// Whole-tensor rules: sets draft.owners and adds to draft.owned.
Status Plan::assign_owners(std::span<const PlanParam> params, std::span<const int64_t> group_ends,
                           Draft& draft) const {
  draft.owners.resize(params.size());
  const auto give = [&](size_t index, int32_t rank) {
    draft.owners[index] = rank;
    draft.owned[static_cast<size_t>(rank)] += params[index].count;
  };
  if (options_.rule == ZERO_PARTITION_MANUAL) {
    for (size_t index = 0; index < params.size(); ++index) {
      const int32_t owner = params[index].owner;
      if (owner < 0 || owner >= options_.world) {
        return {ZERO_ERR_ARGUMENT,
                text("parameter ", this->params() + static_cast<int64_t>(index), ": owner ", owner,
                     " is no rank of 0 to ", options_.world - 1)};
      }
      give(index, owner);
    }
    return {};
  }

  LeastLoaded loads = loads_of(draft.owned);
  std::vector<size_t> turn(params.size());
  std::iota(turn.begin(), turn.end(), size_t{0});
  auto group = turn.begin();
  for (const int64_t group_end : group_ends) {
    const auto next_group = turn.begin() + group_end;
    if (options_.rule == ZERO_PARTITION_GREEDY) {
      std::stable_sort(group, next_group,
                       [&](size_t a, size_t b) { return params[a].count > params[b].count; });
    }
    group = next_group;
  }
  std::stable_partition(turn.begin(), turn.end(),
                        [&](size_t index) { return !params[index].rests; });
  for (const size_t index : turn) {
    const auto [load, rank] = loads.top();
    loads.pop();
    loads.emplace(load + params[index].count, rank);
    give(index, rank);
  }
  return {};
}

/// Whole-tensor rules: sets draft.layout and the section's chunk, and sorts the section's part of
/// draft.travel by owner.
Status Plan::lay_out_by_owner(std::span<const PlanParam> params, Section& section,
                              Draft& draft) const {
  const auto owner = [&](int64_t index) { return draft.owners[static_cast<size_t>(index)]; };
  const std::span<int64_t> travel = travel_in(section, draft.travel);
  std::stable_sort(travel.begin(), travel.end(),
                   [&](int64_t a, int64_t b) { return owner(a) < owner(b); });

  int64_t end = 0;
  for (size_t i = 0; i < travel.size(); ++i) {
    const int64_t index = travel[i];
    if (i > 0 && owner(travel[i - 1]) != owner(index)) end = 0;
    draft.layout[static_cast<size_t>(index)] = end;
    end = round_up(end + params[static_cast<size_t>(index)].count, kAlignment);
    section.chunk = std::max(section.chunk, end);
  }
  section.share_elements = section.chunk;
  int64_t layout_end = section.layout;
  const auto elements = checked_multiply<int64_t>(section.chunk, options_.world);
  if (!elements || !extend(layout_end, *elements)) {
    return padded_too_large(this->params(), params.size(), options_.world);
  }
  section.layout_elements = *elements;
  for (const int64_t index : travel)
    draft.layout[static_cast<size_t>(index)] += section.layout + owner(index) * section.chunk;
  return {};
}

void Plan::append(std::span<const PlanParam> params, Draft draft, const Section& end) {
  const size_t total = counts_.size() + params.size();
  sections_.reserve(sections_.size() + draft.sections.size());
  counts_.reserve(total);
  grid_.reserve(total);
  travel_.reserve(total);
  section_of_.reserve(total);
  layout_.reserve(total);
  if (!even()) owners_.reserve(total);
  // Nothing below can fail.
  const int64_t before = this->params();
  const auto sections = static_cast<int32_t>(sections_.size());
  for (int64_t& index : draft.travel) index += before;
  for (int32_t& section : draft.section_of) section += sections;
  for (Section& section : draft.sections) {
    section.first_travel += before;
    sections_.push_back(section);
  }
  for (const PlanParam& param : params) counts_.push_back(param.count);
  grid_.insert(grid_.end(), draft.grid.begin(), draft.grid.end());
  travel_.insert(travel_.end(), draft.travel.begin(), draft.travel.end());
  section_of_.insert(section_of_.end(), draft.section_of.begin(), draft.section_of.end());
  layout_.insert(layout_.end(), draft.layout.begin(), draft.layout.end());
  owners_.insert(owners_.end(), draft.owners.begin(), draft.owners.end());
  owned_ = std::move(draft.owned);
  grid_end_ = draft.grid_end;
  end_ = end;
}

}  // namespace zero
