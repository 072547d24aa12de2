// SPDX-License-Identifier: Apache-2.0
// Makes one seal part of the plan: its sections, their places on the grid, their owners and their
// layout. Works on a copy, so that a failure changes nothing.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/refusals.h"
#include "plan/plan.h"

namespace zero {
namespace {

Status too_large(int64_t param, int64_t count) {
  return bad_argument("parameter ", param, " of ", count,
                      " elements: the total exceeds the limit of ", kMaxElements,
                      " elements; register fewer or smaller parameters");
}

/// Advances `end` by `elements`. Both are at most kMaxElements. Returns false, and changes nothing,
/// if the new end would exceed kMaxElements.
bool extend(int64_t& end, int64_t elements) {
  if (elements > kMaxElements - end) return false;
  end += elements;
  return true;
}

/// Checks the seal that begins with parameter `first`. Afterwards, sums of counts cannot overflow.
Status check_counts(std::span<const PlanParam> params, int64_t first) {
  int64_t total = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t number = first + static_cast<int64_t>(i), count = params[i].count;
    if (count < 0) return bad_argument("parameter ", number, ": negative count ", count);
    if (!extend(total, count)) return too_large(number, count);
  }
  return {};
}

Status check_groups(size_t params, std::span<const int64_t> group_ends) {
  int64_t end = 0;
  for (const int64_t next : group_ends) {
    if (next < end) return internal_error("plan: group end ", next, " after ", end);
    end = next;
  }
  if (end == static_cast<int64_t>(params)) return {};
  return internal_error("plan: groups end at ", end, " of ", params, " parameters");
}

}  // namespace

Status Plan::add(std::span<const PlanParam> params, std::span<const int64_t> group_ends) {
  Plan made = *this;
  ZERO_TRY(made.deal(params, group_ends));
  *this = std::move(made);
  return {};
}

Result<Plan> Plan::anew(std::span<const PlanParam> params,
                        std::span<const int64_t> group_ends) const {
  Plan made(options_);
  made.grid_ = grid_;
  made.grid_end_ = grid_end_;
  ZERO_TRY(made.deal(params, group_ends));
  made.in_place_ = false;
  return made;
}

/// Assigns one seal's parameters. Those that are on the grid already keep their places there.
Status Plan::deal(std::span<const PlanParam> params, std::span<const int64_t> group_ends) {
  const int64_t first = this->params();
  ZERO_TRY(check_groups(params.size(), group_ends));
  if (params.empty()) return {};
  ZERO_TRY(check_counts(params, first));
  const bool placed = grid_.size() > counts_.size();
  for (const PlanParam& param : params) counts_.push_back(param.count);
  grid_.resize(counts_.size());
  layout_.resize(counts_.size());
  const size_t sections = sections_.size();
  sort_into_sections(params, placed);
  ZERO_TRY(assign_owners(params, group_ends));
  const auto check_padded = [&](int64_t begin, int64_t elements) -> Status {
    if (elements <= kMaxElements - begin) return {};
    return bad_argument("parameters ", first, " to ", this->params() - 1, ": laid out for ",
                        options_.world, " ranks, they exceed the limit of ", kMaxElements,
                        " elements; register fewer or smaller parameters");
  };
  for (Section& section : std::span(sections_).subspan(sections)) {
    static_cast<SectionStart&>(section) = end_;
    if (!placed) ZERO_TRY(place_on_grid(section));
    ZERO_TRY(check_padded(0, grid_end_));
    section.whole ? lay_out_by_owner(section) : ZERO_TRY(lay_out_evenly(section));
    ZERO_TRY(check_padded(section.layout, section.layout_elements));
    if (!section.whole) count_owned(section);
    end_ = end_of(section);
  }
  return {};
}

/// Makes sections by rising numbers of their dtypes and kinds, those of resting parameters last.
/// Sorts the parameters of each section in travel_ by falling order, or as they are on the grid.
void Plan::sort_into_sections(std::span<const PlanParam> params, bool placed) {
  const size_t first = travel_.size();
  const auto given = [&](int64_t param) -> const PlanParam& { return params[at(param) - first]; };
  const auto kind = [&](int64_t param) {
    const PlanParam& of = given(param);
    return std::tuple(of.rests, of.dtype, of.grad_dtype, of.kind);
  };
  // A parameter without elements shares its place on the grid with the next one, and comes first.
  const auto comes_first = [&](int64_t a, int64_t b) {
    if (!placed) return given(a).order > given(b).order;
    return std::pair(grid(a), given(a).count > 0) < std::pair(grid(b), given(b).count > 0);
  };
  travel_.resize(counts_.size());
  section_of_.resize(counts_.size());
  const std::span<int64_t> added = std::span(travel_).subspan(first);
  // The numbers fall, so that a stable sort puts the later parameter first on ties.
  std::iota(added.rbegin(), added.rend(), static_cast<int64_t>(first));
  std::stable_sort(added.begin(), added.end(), [&](int64_t a, int64_t b) {
    return kind(a) != kind(b) ? kind(a) < kind(b) : comes_first(a, b);
  });
  for (size_t i = 0; i < added.size(); ++i) {
    if (i == 0 || kind(added[i - 1]) != kind(added[i])) {
      Section& section = sections_.emplace_back();
      section.number = static_cast<int32_t>(sections_.size()) - 1;
      section.dtype = given(added[i]).dtype;
      section.grad_dtype = given(added[i]).grad_dtype;
      section.kind = given(added[i]).kind;
      section.whole = given(added[i]).whole || options_.rule != ZERO_PARTITION_EVEN;
      section.first_travel = static_cast<int64_t>(first + i);
    }
    sections_.back().params++;
    section_of_[at(added[i])] = sections_.back().number;
  }
}

/// Returns where the section after this one begins.
SectionStart Plan::end_of(const Section& section) const {
  constexpr int64_t kLine = 64;
  const int64_t layout = section.layout + section.layout_elements;
  const int64_t share = section.share + section.share_elements;
  return {.layout = layout,
          .share = share,
          .data_bytes = round_up(section.data_at(layout), kLine),
          .grad_bytes = round_up(section.grad_at(layout), kLine),
          .owned_bytes = round_up(section.owned_at(share), kLine),
          .sum_bytes = round_up(section.sum_at(share), kLine)};
}

/// Sets grid_ of the section's parameters and moves grid_end_.
Status Plan::place_on_grid(const Section& section) {
  for (const int64_t param : travel(section)) {
    grid_[at(param)] = grid_end_;
    if (!extend(grid_end_, counts_[at(param)])) return too_large(param, counts_[at(param)]);
    grid_end_ = round_up(grid_end_, kAlignment);
  }
  grid_end_ = round_up(grid_end_, kBlock);
  return {};
}

/// Sets layout_ and the section's end and buckets. Parameters follow one another, each at the same
/// position within a block as on the grid, so that it covers as many blocks here.
Status Plan::lay_out_evenly(Section& section) {
  int64_t end = 0;
  for (const int64_t param : travel(section)) {
    const int64_t count = counts_[at(param)], distance = grid(param) - end;
    const int64_t gap = count == 0 ? 0 : (distance % kBlock + kBlock) % kBlock;
    if (!extend(end, gap)) end = kMaxElements;
    layout_[at(param)] = section.layout + end;
    if (!extend(end, count)) return too_large(param, count);
    end = round_up(end, kAlignment);
  }
  section.end = end;
  section.buckets =
      Buckets(round_up(end, kBlock) / kBlock, options_.world, bucket_elements(section));
  section.share_elements = section.buckets.owned_elements(0);
  section.layout_elements = section.share_elements * options_.world;
  return {};
}

/// Adds to owned_ the elements that ranks own in an evenly laid out section: all elements of their
/// blocks, except those that belong to no parameter.
void Plan::count_owned(const Section& section) {
  for (int32_t rank = 0; rank < options_.world; ++rank)
    owned_[at(rank)] += section.buckets.owned_elements(rank);
  int64_t passed = 0;
  const auto subtract_to = [&](int64_t end) {
    while (passed < end) {
      const int64_t next = std::min(end, round_up(passed + 1, kBlock));
      owned_[at(section.buckets.find(passed).rank)] -= next - passed;
      passed = next;
    }
  };
  for (const int64_t param : travel(section)) {
    subtract_to(layout(param) - section.layout);
    passed += counts_[at(param)];
  }
  subtract_to(round_up(section.end, kBlock));
}

/// Sets owners_, and adds to owned_ for parameters in whole sections. With EVEN, these are assigned
/// like those of ZERO_PARTITION_GREEDY.
Status Plan::assign_owners(std::span<const PlanParam> params, std::span<const int64_t> group_ends) {
  const size_t first = owners_.size();
  owners_.resize(counts_.size(), ZERO_OWNER_SPLIT);
  const auto is_whole = [&](size_t index) {
    return section_of(static_cast<int64_t>(first + index)).whole;
  };
  const auto give = [&](size_t index, int32_t rank) {
    owners_[first + index] = rank;
    owned_[at(rank)] += params[index].count;
  };
  if (options_.rule == ZERO_PARTITION_MANUAL) {
    for (size_t index = 0; index < params.size(); ++index) {
      const int32_t owner = params[index].owner;
      if (owner < 0 || owner >= options_.world)
        return bad_argument("parameter ", first + index, ": owner ", owner,
                            " is not one of ranks 0 to ", options_.world - 1);
      give(index, owner);
    }
    return {};
  }

  std::vector<size_t> turn(params.size());
  std::iota(turn.begin(), turn.end(), size_t{0});
  if (std::ranges::none_of(turn, is_whole)) return {};
  using Load = std::pair<int64_t, int32_t>;  // (elements, rank): orders by load, then by rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t rank = 0; rank < options_.world; ++rank) loads.emplace(owned_[at(rank)], rank);
  auto group = turn.begin();
  for (const int64_t group_end : group_ends) {
    const auto next_group = turn.begin() + group_end;
    if (options_.rule != ZERO_PARTITION_GREEDY_IN_ORDER)
      std::stable_sort(group, next_group,
                       [&](size_t a, size_t b) { return params[a].count > params[b].count; });
    group = next_group;
  }
  std::stable_partition(turn.begin(), turn.end(),
                        [&](size_t index) { return !params[index].rests; });
  for (const size_t index : turn) {
    if (!is_whole(index)) continue;
    const auto [load, rank] = loads.top();
    loads.pop();
    loads.emplace(load + params[index].count, rank);
    give(index, rank);
  }
  return {};
}

/// Sets layout_ and the section's end and bucket, and sorts its part of travel_ by owner, for
/// whole-tensor rules.
void Plan::lay_out_by_owner(Section& section) {
  const std::span<int64_t> params = travel(section);
  std::stable_sort(params.begin(), params.end(),
                   [&](int64_t a, int64_t b) { return owner(a) < owner(b); });
  int64_t end = 0, chunk = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    if (i > 0 && owner(params[i - 1]) != owner(params[i])) end = 0;
    layout_[at(params[i])] = end;
    end = round_up(end + counts_[at(params[i])], kAlignment);
    chunk = std::max(chunk, end);
  }
  section.layout_elements = checked_multiply<int64_t>(chunk, options_.world).value_or(INT64_MAX);
  if (section.layout_elements > kMaxElements) return;  // deal() refuses it
  section.end = section.layout_elements;
  section.share_elements = chunk;
  section.buckets = Buckets::single(options_.world, chunk);
  for (const int64_t param : params) layout_[at(param)] += section.layout + owner(param) * chunk;
}

}  // namespace zero
