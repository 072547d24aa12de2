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
#include "step/trust.h"

namespace zero {
namespace {

bool has_bit(const std::string& bits, int64_t i) {
  return (static_cast<unsigned char>(bits[static_cast<size_t>(i / 8)]) >> (i % 8) & 1) != 0;
}

bool grad_anywhere(const StepMemory& memory, int64_t param) {
  return memory.present.empty() || memory.present[static_cast<size_t>(param)];
}

bool grad_on(const StepMemory& memory, int32_t rank, int64_t param) {
  return memory.presence.empty() ? grad_anywhere(memory, param)
                                 : has_bit(memory.presence[static_cast<size_t>(rank)], param);
}

/// Numbers the combinations of settings and progress that have a gradient.
class Classes {
 public:
  explicit Classes(StepMemory& memory) : memory_(memory) { memory.classes.clear(); }

  int32_t of(const Optimizer& optim, int64_t index, bool sources) {
    if (sources && !grad_anywhere(memory_, index)) return -1;
    const Param& param = optim.params[static_cast<size_t>(index)];
    const ParamProgress& progress = optim.progress[static_cast<size_t>(index)];
    const auto next = static_cast<int32_t>(memory_.classes.size());
    const Key key(memory_.apart ? index : -1, param.group, param.lr_scale, param.weight_decay,
                  progress.step, progress.live_slots, progress.product);
    const auto [found, added] = numbers_.emplace(key, next);
    if (added) memory_.classes.push_back({index});
    return found->second;
  }

 private:
  using Key =
      std::tuple<int64_t, int32_t, double, std::optional<double>, int64_t, uint32_t, double>;

  StepMemory& memory_;
  std::map<Key, int32_t> numbers_;
};

/// Where this rank, as owner of `segment`, writes its new parameters: its own first, then every
/// other copy that it can reach, then the outbox.
Status add_targets(const Optimizer& optim, StepMemory& memory, const Segment& segment) {
  const Comm& comm = *optim.comm;
  const size_t begin = memory.view_targets.size();
  const Section& section = optim.plan.section(segment.section);
  const size_t offset = static_cast<size_t>(segment.first) * size_of(section.dtype);
  const size_t bytes = static_cast<size_t>(segment.count) * size_of(section.dtype);
  memory.view_targets.push_back(optim.params[static_cast<size_t>(segment.param)].data + offset);
  if (comm.direct()) {
    const Location own = memory.placements[static_cast<size_t>(segment.param)].data;
    for (int32_t rank = 0; rank < comm.world(); rank++) {
      if (rank == comm.rank()) continue;
      Location location = ZERO_TRY(placement_of(optim, memory, rank, segment.param)).data;
      if (location.arena == 0) continue;
      ZERO_TRY(check_same_place(optim, segment.param, own, rank, location));
      location.offset += offset;
      std::byte* const target = ZERO_TRY(comm.resolve(rank, location, bytes));
      const auto known = memory.view_targets.begin() + static_cast<ptrdiff_t>(begin);
      if (std::find(known, memory.view_targets.end(), target) == memory.view_targets.end()) {
        memory.view_targets.push_back(target);
      }
    }
    if (memory.outbox_used) {
      memory.view_targets.push_back(memory.outbox->data() + section.owned_at(segment.share));
    }
  }
  memory.view_targets.resize(begin + memory.target_width, nullptr);
  return Status();
}

Status add_sources(const Optimizer& optim, StepMemory& memory, const Segment& segment) {
  const Comm& comm = *optim.comm;
  if (!comm.direct()) return Status();
  const size_t element = size_of(optim.params[static_cast<size_t>(segment.param)].grad_dtype);
  const size_t offset = static_cast<size_t>(segment.first) * element;
  const size_t bytes = static_cast<size_t>(segment.count) * element;
  const bool alone = reduces_alone(optim, memory);
  for (int32_t rank = 0; rank < comm.world(); rank++) {
    if (alone && rank != comm.rank()) continue;
    const std::byte* source = nullptr;
    if (alone && grad_on(memory, rank, segment.param)) {
      source = memory.grads[static_cast<size_t>(segment.param)] + offset;
    } else if (grad_on(memory, rank, segment.param)) {
      Location location = ZERO_TRY(placement_of(optim, memory, rank, segment.param)).grad;
      location.offset += offset;
      source = ZERO_TRY(comm.resolve(rank, location, bytes));
    }
    memory.view_sources.push_back(source);
  }
  return Status();
}

/// Where the sum of this segment's gradients goes, or the direction made of it: over this rank's
/// own gradient if that has the sum's type and stays ours until the step, and no more is to come,
/// nor was any of it made early. The sum of one gradient alone is that gradient, and is not
/// written.
std::byte* reduced_place(const Optimizer& optim, const StepMemory& memory, const Segment& segment,
                         const std::byte* own, bool in_place) {
  const Section& section = optim.plan.section(segment.section);
  const bool ours = own != nullptr && !memory.accumulates && section.grad_dtype == section.sum() &&
                    ((in_place && !writes_directions(optim) &&
                      !(optim.world() == 1 && optim.options.wire != DType::none)) ||
                     (!memory.none && (optim.world() > 1 ||
                                       find_arena(own, 1, optim.comm.get(), nullptr) != nullptr)));
  if (const Backward* const sums = memory.accumulates ? nullptr : early(memory))
    return sums->sums() + section.sum_at(segment.share);
  if (ours) return const_cast<std::byte*>(own);
  return memory.reduced.bytes() > 0 ? memory.reduced.data() + section.sum_at(segment.share)
                                    : nullptr;
}

/// True if view `v` may be walked together with the one before it: neighbours in the share and in
/// every memory, with no gap that is not libzero's.
bool goes_on(const Optimizer& optim, const StepMemory& memory, const Runs& runs, size_t v) {
  const View& last = memory.views[v - 1];
  const View& next = memory.views[v];
  const int64_t distance = next.segment.share - last.segment.share;
  if (next.segment.section != last.segment.section) return false;
  if (next.cls != last.cls || distance < last.segment.count) return false;
  if (optim.options.rule->trust != nullptr && next.segment.param != last.segment.param)
    return false;  // each tensor has its own ratio
  if (distance > last.segment.count) {
    const Param& param = optim.params[static_cast<size_t>(last.segment.param)];
    const bool at_end = last.segment.first + last.segment.count == param.count;
    if ((param.flags & ZERO_PARAM_PADDED) == 0 || !at_end ||
        distance != round_up(last.segment.count, kAlignment)) {
      return false;
    }
  }
  const auto follows = [distance](DType dtype) {
    return [bytes = distance * static_cast<int64_t>(size_of(dtype))](const std::byte* before,
                                                                     const std::byte* after) {
      return before == nullptr ? after == nullptr : after == before + bytes;
    };
  };
  const auto all_follow = [v, &follows](const auto& addresses, size_t width, DType dtype) {
    const auto of_next = addresses.begin() + static_cast<ptrdiff_t>(v * width);
    const auto of_last = of_next - static_cast<ptrdiff_t>(width);
    return std::equal(of_last, of_next, of_next, follows(dtype));
  };
  const Section& section = optim.plan.section(next.segment.section);
  return follows(section.sum())(last.reduced, next.reduced) &&
         all_follow(memory.view_sources, runs.source_width, section.grad_dtype) &&
         all_follow(memory.view_targets, runs.target_width, section.dtype);
}

/// Join views that have a gradient into runs.
Runs join(const Optimizer& optim, const StepMemory& memory) {
  Runs all;
  all.source_width = optim.comm->direct() ? memory.source_width : 0;
  all.target_width = memory.target_width;
  const auto append = [](auto& to, const auto& from, size_t row, size_t width) {
    const auto begin = from.begin() + static_cast<ptrdiff_t>(row * width);
    to.insert(to.end(), begin, begin + static_cast<ptrdiff_t>(width));
  };
  for (size_t v = 0; v < memory.views.size(); v++) {
    const auto& [segment, cls, reduced] = memory.views[v];
    if (cls < 0) continue;
    if (!all.runs.empty() && goes_on(optim, memory, all, v)) {
      Run& run = all.runs.back();
      const int64_t count = segment.share + segment.count - run.share;
      run.gaps = run.gaps || run.count + segment.count != count;
      all.elements += count - run.count;
      run.count = count;
      continue;
    }
    all.runs.push_back({segment.section, segment.share, segment.count, cls, false, v});
    append(all.sources, memory.view_sources, v, all.source_width);
    all.reduced.push_back(reduced);
    append(all.targets, memory.view_targets, v, all.target_width);
    all.elements += segment.count;
  }
  return all;
}

/// Parameters of this rank in no arena are pulled from the owner's arena, or from its outbox: only
/// those that are updated, as nothing else is put there. On a device always from the outbox, as
/// nobody waits with new values in the arena until all have pulled.
Status add_pulls(const Optimizer& optim, StepMemory& memory, bool sources) {
  memory.pulls.clear();
  const Comm& comm = *optim.comm;
  if (!comm.direct() || memory.foreign_data.empty() || comm.world() == 1) return Status();
  std::vector<bool> foreign(optim.params.size(), false);
  for (const int64_t index : memory.foreign_data) foreign[static_cast<size_t>(index)] = true;
  for (int32_t owner = 0; owner < comm.world(); owner++) {
    if (owner == comm.rank()) continue;
    for (const Segment& segment : optim.plan.segments(owner)) {
      if (!foreign[static_cast<size_t>(segment.param)]) continue;
      if (sources && !grad_anywhere(memory, segment.param)) continue;
      const Section& section = optim.plan.section(segment.section);
      const size_t offset = static_cast<size_t>(segment.first) * size_of(section.dtype);
      const size_t bytes = static_cast<size_t>(segment.count) * size_of(section.dtype);
      Location from = ZERO_TRY(placement_of(optim, memory, owner, segment.param)).data;
      from.offset += offset;
      if (from.arena == 0 || comm.device() != nullptr) {
        const auto at = static_cast<uint64_t>(section.owned_at(segment.share));
        from = {memory.outbox->number(), 0, at};
      }
      std::byte* to = optim.params[static_cast<size_t>(segment.param)].data + offset;
      memory.pulls.push_back(
          {segment.section, ZERO_TRY(comm.resolve(owner, from, bytes)), to, bytes});
    }
  }
  return Status();
}

ViewsKey key_of(const Optimizer& optim, const StepMemory& memory, bool in_place) {
  return {.addresses = optim.addresses,
          .versions = memory.versions,
          .presence = memory.presence,
          .present = memory.present,
          .grads = reduces_alone(optim, memory) ? memory.grads : std::vector<std::byte*>(),
          .in_place = in_place,
          .none = memory.none,
          .accumulates = memory.accumulates,
          .early = early(memory) != nullptr};
}

}  // namespace

void drop_views(StepMemory& memory) { memory.made_of.addresses = 0; }

/// What the backward left of an owned segment to be updated.
Segment rest_of(const StepMemory& memory, Segment segment, size_t number) {
  if (!updates_early(memory)) return segment;
  const int64_t done = memory.backward->done(number);
  segment.first += done;
  segment.share += done;
  segment.count -= done;
  return segment;
}

Status make_views(Optimizer& optim, StepMemory& memory, Views what) {
  const bool sources = what != Views::of_params;
  const bool in_place = what == Views::of_update;
  const bool all = !updates_early(memory);
  ViewsKey key = key_of(optim, memory, in_place);
  if (all && sources && memory.made_of == key) return Status();
  if (memory.grads_shared) ZERO_TRY(check_grads_apart(optim, memory));
  if (queued::may_have_skipped(optim, memory)) ZERO_TRY(queued::settle(optim));  // classes
  drop_views(memory);
  memory.views_number = ++memory.views_made;
  memory.views.clear();
  memory.view_sources.clear();
  memory.view_targets.clear();
  memory.target_width =
      optim.comm->direct() ? static_cast<size_t>(optim.world()) + (memory.outbox_used ? 1 : 0) : 1;
  memory.source_width = reduces_alone(optim, memory) ? 1 : static_cast<size_t>(optim.world());
  const size_t own_source = memory.source_width == 1 ? 0 : static_cast<size_t>(optim.comm->rank());
  Classes classes(memory);
  const std::vector<Segment>& segments = optim.segments();
  for (size_t i = 0; i < segments.size(); i++) {
    const Segment segment = rest_of(memory, segments[i], i);
    if (segment.count == 0) continue;
    View view{segment, classes.of(optim, segment.param, sources), nullptr};
    ZERO_TRY(add_targets(optim, memory, segment));
    if (sources) {
      const size_t before = memory.view_sources.size();
      ZERO_TRY(add_sources(optim, memory, segment));
      const std::byte* own =
          optim.comm->direct() ? memory.view_sources[before + own_source] : nullptr;
      view.reduced = reduced_place(optim, memory, segment, own, in_place);
    }
    memory.views.push_back(view);
  }
  ZERO_TRY(add_pulls(optim, memory, sources));
  if (!sources) return Status();
  memory.runs = join(optim, memory);
  memory.cut =
      optim.options.rule->trust != nullptr ? cut_params(optim, memory) : std::vector<int64_t>();
  if (all) memory.made_of = std::move(key);
  return Status();
}

}  // namespace zero
