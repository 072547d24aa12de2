// SPDX-License-Identifier: Apache-2.0
#include "step/views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/checked.h"
#include "step/backward.h"
#include "step/one_copy.h"
#include "step/queued/queue.h"
#include "step/tables.h"
#include "step/tiles.h"

namespace zero {
namespace {

/// Assigns numbers to the combinations of settings and progress of parameters with a gradient.
class Classes {
 public:
  explicit Classes(StepMemory& memory) : memory_(memory) { memory.classes.clear(); }

  int32_t of(const Optimizer& optim, int64_t index, bool sources) {
    if (sources && !memory_.is_present(index)) return -1;
    const Param& param = optim.param(index);
    const ParamProgress& progress = optim.progress[static_cast<size_t>(index)];
    const auto next = static_cast<int32_t>(memory_.classes.size());
    const Key key(memory_.apart ? index : -1, param.group, param.lr_scale, param.weight_decay,
                  progress.step, progress.live_slots, progress.product);
    const auto [found, added] = numbers_.emplace(key, next);
    if (added) memory_.classes.push_back(index);
    return found->second;
  }

 private:
  using Key =
      std::tuple<int64_t, int32_t, double, std::optional<double>, int64_t, uint32_t, double>;

  StepMemory& memory_;
  std::map<Key, int32_t> numbers_;
};

/// Adds the addresses to which this rank stores the new parameters of its `segment`. Its own comes
/// first, followed by all other copies that it can access and the outbox.
Status add_targets(const Optimizer& optim, StepMemory& memory, const Segment& segment) {
  const Comm& comm = *optim.comm;
  std::vector<std::byte*>& all = memory.targets.all;
  const size_t begin = all.size();
  const Section& section = optim.plan.section(segment.section);
  const size_t offset = size_of(section.dtype, segment.first);
  const size_t bytes = size_of(section.dtype, segment.count);
  all.push_back(optim.values(segment));
  if (comm.direct()) {
    const Location own = memory.placements[static_cast<size_t>(segment.param)].data;
    for (int32_t place = 0; place < optim.places(); place++) {
      const int32_t rank = optim.rank_at(place);
      if (rank == comm.rank()) continue;
      Location location = ZERO_TRY(placement_of(optim, memory, rank, segment.param)).data;
      if (location.arena == 0) continue;
      ZERO_TRY(check_same_place(optim, segment.param, own, rank, location));
      location.offset += offset;
      std::byte* const target = ZERO_TRY(comm.resolve(rank, location, bytes));
      const auto known = all.begin() + static_cast<ptrdiff_t>(begin);
      if (std::find(known, all.end(), target) == all.end()) all.push_back(target);
    }
    if (memory.outbox_used) all.push_back(memory.outbox->data() + section.owned_at(segment.share));
  }
  all.resize(begin + memory.targets.width, nullptr);
  return Status();
}

Status add_sources(const Optimizer& optim, StepMemory& memory, const Segment& segment) {
  const Comm& comm = *optim.comm;
  if (!comm.direct()) return Status();
  const size_t element = size_of(optim.param(segment.param).grad_dtype);
  const size_t offset = static_cast<size_t>(segment.first) * element;
  const size_t bytes = static_cast<size_t>(segment.count) * element;
  const bool alone = reduces_alone(optim, memory);
  if (alone) {
    const std::byte* const own = memory.grads[static_cast<size_t>(segment.param)];
    memory.sources.all.push_back(own == nullptr ? nullptr : own + offset);
    return Status();
  }
  for (int32_t rank = 0; rank < comm.world(); rank++) {
    Location location = ZERO_TRY(placement_of(optim, memory, rank, segment.param)).grad;
    location.offset += offset;
    memory.sources.all.push_back(
        location.arena == 0 ? nullptr : ZERO_TRY(comm.resolve(rank, location, bytes)));
  }
  return Status();
}

/// Returns where the sum of a segment, or the direction computed from it, is stored. This is the
/// memory of this rank's own gradient if that has the type of sums and belongs to libzero until the
/// step, no other rank reads it, nothing will be added, and nothing was summed early. The sum of a
/// single gradient is that gradient itself, so nothing is written.
std::byte* reduced_place(const Optimizer& optim, const StepMemory& memory, const Segment& segment,
                         const std::byte* own, bool in_place) {
  const Section& section = optim.plan.section(segment.section);
  if (const Backward* const sums = memory.accumulates ? nullptr : early(memory))
    return sums->sums() + section.sum_at(segment.share);
  const bool fits =
      own != nullptr && section.grad_dtype == section.sum() && !is_read_elsewhere(optim, memory);
  const bool rounded_alone = optim.world() == 1 && optim.options.wire_dtype != 0;
  const bool summed_in_step =
      in_place && !writes_directions(optim.rule_of(segment)) && !rounded_alone;
  const bool summed_for_step =
      !memory.none &&
      (optim.world() > 1 || find_arena(own, 1, optim.comm.get(), nullptr) != nullptr);
  if (fits && !memory.accumulates && (summed_in_step || summed_for_step))
    return const_cast<std::byte*>(own);
  return memory.reduced.bytes() > 0 ? memory.reduced.data() + section.sum_at(segment.share)
                                    : nullptr;
}

/// Returns true if view `v` belongs to the same run as the previous view. They must be adjacent in
/// the share and in every memory, and libzero must be allowed to use a gap between them.
bool goes_on(const Optimizer& optim, const StepMemory& memory, size_t v) {
  const View& last = memory.views[v - 1];
  const View& next = memory.views[v];
  const int64_t distance = next.segment.share - last.segment.share;
  if (next.segment.section != last.segment.section) return false;
  if (next.cls != last.cls || distance < last.segment.count) return false;
  if (has_trust(optim.rule_of(next.segment)) && next.segment.param != last.segment.param)
    return false;  // each tensor has its own ratio
  if (distance > last.segment.count) {
    const Param& param = optim.param(last.segment.param);
    const bool at_end = last.segment.first + last.segment.count == param.count;
    if ((param.flags & ZERO_PARAM_PADDED) == 0 || !at_end ||
        distance != round_up(last.segment.count, kAlignment)) {
      return false;
    }
  }
  if (TileSlots::converts(optim, optim.plan.section(next.segment.section)) &&
      optim.random_at(next.segment) - optim.random_at(last.segment) != distance)
    return false;  // the random bits of its elements follow from the position of the first one
  const auto follows = [distance](DType dtype) {
    return [bytes = size_of(dtype, distance)](const std::byte* before, const std::byte* after) {
      return before == nullptr ? after == nullptr : after == before + bytes;
    };
  };
  const auto all_follow = [v, &follows](const auto& addresses, DType dtype) {
    return std::ranges::equal(addresses[v - 1], addresses[v], follows(dtype));
  };
  const Section& section = optim.plan.section(next.segment.section);
  return follows(section.sum())(last.reduced, next.reduced) &&
         all_follow(memory.sources, section.grad_dtype) &&
         all_follow(memory.targets, section.dtype);
}

/// Joins the views that have a gradient into runs, except those that custom rules update.
Runs joined_runs(const Optimizer& optim, const StepMemory& memory) {
  Runs all;
  all.sources.width = memory.sources.width;
  all.targets.width = memory.targets.width;
  for (size_t v = 0; v < memory.views.size(); v++) {
    const Segment& segment = memory.views[v].segment;
    if (memory.views[v].cls < 0 || is_custom(optim.rule_of(segment))) continue;
    all.elements += segment.count;
    if (!all.runs.empty() && goes_on(optim, memory, v)) {
      Run& run = all.runs.back();
      const int64_t gap = segment.share - (run.segment.share + run.segment.count);
      run.gaps = run.gaps || gap > 0;
      run.segment.count += gap + segment.count;
      all.elements += gap;
      continue;
    }
    all.runs.push_back({memory.views[v], false, v});
    all.sources.add(memory.sources[v]);
    all.targets.add(memory.targets[v]);
  }
  return all;
}

/// Adds pulls of this rank's parameters in no arena from the outboxes of their owners. If gradients
/// are used, adds only parameters that are updated, because the outboxes have nothing else.
Status add_pulls(const Optimizer& optim, StepMemory& memory, bool sources) {
  memory.pulls.clear();
  const Comm& comm = *optim.comm;
  if (!comm.direct() || memory.foreign_data.empty() || comm.world() == 1) return Status();
  for (int32_t owner = 0; owner < optim.places(); owner++) {
    if (owner == optim.place()) continue;
    for (const Segment& segment : optim.plan.segments(owner)) {
      if (!std::ranges::binary_search(memory.foreign_data, segment.param)) continue;
      if (sources && !memory.is_present(segment.param)) continue;
      const Section& section = optim.plan.section(segment.section);
      const auto bytes = size_of(section.dtype, segment.count);
      const auto at = static_cast<uint64_t>(section.owned_at(segment.share));
      const Location from = {memory.outbox->number(), 0, at};
      std::byte* const to = optim.values(segment);
      memory.pulls.push_back(
          {segment.section,
           {ZERO_TRY(comm.resolve(optim.rank_at(owner), from, bytes)), to, segment.count}});
    }
  }
  return Status();
}

/// Returns, for rules with trust ratios, the parameters with a gradient and more than one owner.
/// The result is the same on every rank.
std::vector<int64_t> cut_params(const Optimizer& optim, const StepMemory& memory) {
  std::vector<int64_t> cut;
  if (!optim.any_rule(has_trust)) return cut;
  for (int64_t param = 0; param < optim.plan.params(); param++) {
    if (has_trust(optim.rule_of(optim.param(param))) && memory.is_present(param) &&
        optim.plan.owner(param) == ZERO_OWNER_SPLIT)
      cut.push_back(param);
  }
  return cut;
}

ViewsKey key_of(const Optimizer& optim, const StepMemory& memory, bool in_place) {
  return {.addresses = optim.addresses,
          .agreed = memory,
          .grads = reduces_alone(optim, memory) ? memory.grads : std::vector<std::byte*>(),
          .in_place = in_place,
          .early = early(memory) != nullptr};
}

/// Returns the part of an owned segment that the backward pass has not updated.
Segment rest_of(const StepMemory& memory, Segment segment, size_t number) {
  if (!updates_early(memory)) return segment;
  const int64_t done = memory.backward->done(number);
  segment.first += done;
  segment.share += done;
  segment.count -= done;
  return segment;
}

}  // namespace

bool is_ready(const Optimizer& optim, const StepMemory& memory) {
  const bool stages = memory.staging != nullptr && !memory.foreign_grads.empty();
  return memory.all_present && optim.phase == Phase::open && !stages &&
         memory.backward == nullptr && memory.background == nullptr && memory.queue == nullptr &&
         !optim.any_rule(is_custom) && optim.saving == nullptr &&
         optim.alike_params == optim.sealed_params() && optim.has_slots() &&
         memory.made_of == key_of(optim, memory, true);
}

Status make_views(Optimizer& optim, StepMemory& memory, Views what) {
  const bool sources = what != Views::of_params;
  const bool in_place = what == Views::of_update;
  const bool all = !updates_early(memory);
  ViewsKey key = key_of(optim, memory, in_place);
  if (all && sources && memory.made_of == key) return Status();
  if (memory.grads_shared) ZERO_TRY(check_grads_apart(optim, memory));
  if (queued::may_have_skipped(optim, memory)) ZERO_TRY(queued::settle(optim));  // for classes
  drop_views(memory);
  memory.views_number = ++memory.views_made;
  const Comm& comm = *optim.comm;
  const auto world = static_cast<size_t>(comm.world());
  const auto places = static_cast<size_t>(optim.places());
  const bool alone = reduces_alone(optim, memory);
  memory.views.clear();
  memory.sources = {.all = {}, .width = !comm.direct() ? 0 : alone ? 1 : world};
  memory.targets = {.all = {}, .width = comm.direct() ? places + (memory.outbox_used ? 1 : 0) : 1};
  const size_t own_source = alone ? 0 : static_cast<size_t>(comm.rank());
  Classes classes(memory);
  const std::vector<Segment>& segments = optim.segments();
  for (size_t i = 0; i < segments.size(); i++) {
    const Segment segment = rest_of(memory, segments[i], i);
    if (segment.count == 0) continue;
    View view{segment, classes.of(optim, segment.param, sources), nullptr};
    ZERO_TRY(add_targets(optim, memory, segment));
    if (sources) {
      ZERO_TRY(add_sources(optim, memory, segment));
      const auto row = memory.sources[memory.views.size()];
      const std::byte* const own = row.empty() ? nullptr : row[own_source];
      view.reduced = reduced_place(optim, memory, segment, own, in_place);
    }
    memory.views.push_back(view);
  }
  ZERO_TRY(add_pulls(optim, memory, sources));
  if (!sources) return Status();
  memory.runs = joined_runs(optim, memory);
  memory.cut = cut_params(optim, memory);
  if (all) memory.made_of = std::move(key);
  return Status();
}

}  // namespace zero
