// SPDX-License-Identifier: Apache-2.0
// Implements the calls that report ownership, plans without ranks, statistics and rules.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>

#include "api/guard.h"
#include "api/options.h"
#include "base/checked.h"
#include "rules/list.h"
#include "state/safetensors.h"
#include "step/backward.h"

namespace {

using namespace zero;
using namespace zero::api;

Result<PlanParam> plan_param(const Param& param, size_t index) {
  const auto count = shape_elements(param.shape);
  if (!count) return bad_argument("parameter ", index, " has an invalid shape");
  return PlanParam{
      .count = *count,
      .order = (param.flags & ZERO_PARAM_ORDER) != 0 ? param.order : static_cast<int64_t>(index),
      .owner = param.owner,
      .dtype = param.dtype,
      .grad_dtype = param.grad_dtype};
}

/// The groups of a plan. Each contains the parameters before its end that no earlier group has.
struct PlanGroups {
  std::vector<Group> groups;
  std::vector<int64_t> ends;
};

Result<PlanGroups> read_groups(const zero_plan& plan, const ReadOptions& read, size_t count) {
  const Group initial{
      .rule = read.options.rule, .custom = read.options.custom_rule, .settings = read.settings};
  const auto all = static_cast<int64_t>(count);
  if (plan.group_count == 0) return PlanGroups{{initial}, {all}};
  if (plan.groups == nullptr || plan.group_ends == nullptr)
    return bad_argument("the plan has ", plan.group_count,
                        " groups, but groups or group_ends is NULL");
  PlanGroups out;
  out.groups = ZERO_TRY(read_array<Group>(
      plan.groups, plan.group_count, [&](const zero_group_options* given) -> Result<Group> {
        return read_group(ZERO_TRY(read_struct(given)), initial);
      }));
  out.ends.assign(plan.group_ends, plan.group_ends + plan.group_count);
  if (std::ranges::is_sorted(out.ends) && out.ends.front() >= 0 && out.ends.back() == all)
    return out;
  return bad_argument("group_ends does not rise from group to group to ", count,
                      ", the number of parameters");
}

Result<std::vector<PlanParam>> plan_params(std::span<const Param> given, const PlanGroups& of) {
  const std::vector<int32_t> kinds = kinds_of(of.groups);
  std::vector<PlanParam> params;
  for (size_t g = 0; g < of.groups.size(); g++) {
    for (size_t i = params.size(); i < static_cast<size_t>(of.ends[g]); i++) {
      PlanParam& added = params.emplace_back(ZERO_TRY(plan_param(given[i], i)));
      added.kind = kinds[g];
      added.whole = of.groups[g].whole_tensors();
    }
  }
  return params;
}

/// Returns the slots that the groups of each section use, as bits.
std::vector<uint32_t> slots_of_sections(const Plan& plan, const PlanGroups& of) {
  std::vector<uint32_t> used(plan.sections().size());
  int64_t param = 0;
  for (size_t g = 0; g < of.groups.size(); g++) {
    for (; param < of.ends[g]; param++)
      used[static_cast<size_t>(plan.section_number(param))] |= of.groups[g].slots_used();
  }
  return used;
}

/// Returns the state bytes of the rank with the most state.
int64_t longest_state(const Plan& plan, const OptimizerOptions& options, const PlanGroups& of) {
  const std::vector<uint32_t> used = slots_of_sections(plan, of);
  int64_t longest = 0;
  for (int32_t rank = 0; rank < plan.options().world; rank++) {
    int64_t bytes = 0;
    for (size_t s = 0; s < plan.sections().size(); s++) {
      const Section& section = plan.sections()[s];
      const SlotFormat format = of.groups[static_cast<size_t>(section.kind)].slot_format;
      const size_t element =
          static_cast<size_t>(std::popcount(used[s])) * state_bytes_of(section.dtype, format) +
          master_bytes(master_of(section.dtype, options));
      bytes += plan.share_elements(s, rank) * static_cast<int64_t>(element);
    }
    longest = std::max(longest, bytes);
  }
  return longest;
}

/// Lays out parameters or gradients in the order of the plan without gaps. Writes their offsets in
/// bytes to `offsets`, unless that is null, and returns the total size.
int64_t pack(const Plan& plan, std::span<const PlanParam> params, DType PlanParam::*dtype,
             int64_t* offsets) {
  std::vector<size_t> order(params.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    const auto index = static_cast<int64_t>(i);
    return std::pair(plan.section_number(index), plan.layout(index));
  });
  int64_t end = 0;
  for (const size_t i : order) {
    if (offsets != nullptr) offsets[i] = end;
    const int64_t elements = round_up(params[i].count, kAlignment);
    end += elements * static_cast<int64_t>(size_of(params[i].*dtype));
  }
  return end;
}

/// Writes the layout that is sent unpacked on every comm. If `direct`, writes the smaller one of a
/// comm whose ranks access each other's arenas, on which nothing is sent.
void write_layout(const Plan& plan, std::span<const PlanParam> params, bool direct,
                  zero_plan& out) {
  if (direct) {
    out.arena_bytes = pack(plan, params, &PlanParam::dtype, out.offsets);
    out.grad_arena_bytes = pack(plan, params, &PlanParam::grad_dtype, out.grad_offsets);
    return;
  }
  out.arena_bytes = plan.end().data_bytes;
  out.grad_arena_bytes = plan.end().grad_bytes;
  for (size_t i = 0; i < params.size(); i++) {
    const auto index = static_cast<int64_t>(i);
    const Section& section = plan.section_of(index);
    if (out.offsets != nullptr) out.offsets[i] = section.data_at(plan.layout(index));
    if (out.grad_offsets != nullptr) out.grad_offsets[i] = section.grad_at(plan.layout(index));
  }
}

void write_owners(const Plan& plan, const OptimizerOptions& options, zero_plan& out) {
  const int32_t places = plan.options().world;
  for (int32_t rank = 0; out.elements != nullptr && rank < places * options.instances; rank++)
    out.elements[rank] = plan.owned_elements(rank % places);
  for (int64_t i = 0; out.owners != nullptr && i < plan.params(); i++)
    out.owners[i] = plan.owner(i);
}

// ---- Facts about rules, for programs that have no table of them.

/// The settings and slots of a rule as C arrays.
template <class Of>
struct Columns {
  static constexpr size_t kSettings = std::size(Of::settings);
  std::array<const char*, kSettings> names{}, ranges{};
  std::array<double, kSettings> defaults{};
  std::array<const char*, kSlotsOf<Of>> slot_settings{};

  Columns() {
    for (size_t i = 0; i < kSettings; i++) {
      names[i] = Of::settings[i].name;
      ranges[i] = Of::settings[i].range.text;
      defaults[i] = Of::settings[i].initial;
    }
    const uint32_t always = used(defaults);
    for (size_t i = 0; i < kSettings; i++) {
      std::array<double, kSettings> with = defaults;
      with[i] = 1;
      for (size_t slot = 0; slot < slot_settings.size(); slot++)
        if (~always & used(with) & 1u << slot) slot_settings[slot] = names[i];
    }
  }
  static uint32_t used(const std::array<double, kSettings>& settings) {
    return find_rule(Of::number)->slots_used(settings);
  }
};

template <class Of>
zero_rule rule_of() {
  static const Columns<Of> columns;
  return {.struct_size = 0,
          .name = Of::name,
          .setting_names = columns.names.data(),
          .setting_defaults = columns.defaults.data(),
          .setting_ranges = columns.ranges.data(),
          .setting_count = columns.names.size(),
          .slots = Of::slots,
          .slot_settings = columns.slot_settings.data(),
          .slot_count = columns.slot_settings.size()};
}

}  // namespace

zero_status zero_param_index(const zero_optim* optim, const char* name, int64_t* index) {
  return on_query(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    ZERO_TRY(check_out(index, "index"));
    *index = ZERO_TRY(found.find(name));
    return Status();
  });
}

zero_status zero_owned_ranges(const zero_optim* optim, int32_t rank, int64_t* ranges,
                              size_t capacity, size_t* count) {
  return on_query(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(count, "count"));
    if (ranges == nullptr && capacity > 0) return bad_argument("ranges is NULL");
    if (found.sealed_params() == 0)
      return wrong_state("no parameter is sealed yet: call zero_seal first");
    if (rank < 0 || rank >= found.world())
      return bad_argument("rank ", rank, " is not in a world of ", found.world());
    std::vector<Segment> segments = found.plan.segments(found.place_of(rank));
    std::ranges::sort(segments, {}, &Segment::start);
    for (size_t i = 0; i < std::min(capacity, segments.size()); i++) {
      ranges[3 * i] = segments[i].param;
      ranges[3 * i + 1] = segments[i].first;
      ranges[3 * i + 2] = segments[i].count;
    }
    *count = segments.size();
    return Status();
  });
}

zero_status zero_partition_plan(const zero_param* params, size_t count, int32_t world,
                                const zero_options* options, zero_plan* plan) {
  return guard([&]() -> Status {
    ZERO_TRY(check_out(plan, "plan"));
    zero_plan out = ZERO_TRY(read_struct(plan));
    if (world < 1 || world > 1'000'000)
      return bad_argument("world is ", world, "; it must be from 1 to 1,000,000");
    const std::shared_ptr<Comm> comm =
        out.comm == nullptr ? nullptr : ZERO_TRY(find_handle(out.comm));
    if (comm != nullptr && comm->world() != world)
      return bad_argument("world is ", world, ", but the plan's comm has ", comm->world(),
                          " ranks");
    const ReadOptions read = ZERO_TRY(read_optim_options(options, world));
    const std::vector<Param> given = ZERO_TRY(read_params(params, count, false));
    const PlanGroups of = ZERO_TRY(read_groups(out, read, count));
    const std::vector<PlanParam> added = ZERO_TRY(plan_params(given, of));
    Plan made(PlanOptions{.world = world / read.options.instances,
                          .rule = read.options.partition,
                          .bucket_bytes = read.options.bucket_bytes});
    ZERO_TRY(made.add(added, of.ends));
    write_layout(made, added, comm != nullptr && comm->direct(), out);
    write_owners(made, read.options, out);
    out.state_bytes = longest_state(made, read.options, of);
    return write_struct(plan, out, "plan");
  });
}

zero_status zero_stats(const zero_optim* optim, zero_statistics* statistics) {
  return on_query(optim, [&](Optimizer& found) -> Status {
    zero_statistics out{};
    for (const Param& param : found.params) out.parameter_elements += param.count;
    out.owned_elements = found.plan.owned_elements(found.place());
    out.state_bytes = found.state_bytes();
    out.staging_bytes = found.counters.staging_bytes + found.counters.shadow_bytes;
    out.control_bytes = found.counters.control_bytes;
    out.copied_bytes = found.counters.copied_bytes;
    out.moved_bytes = found.counters.moved_bytes;
    out.steps = found.state.steps;
    out.skipped = found.state.skipped;
    out.nonfinite_elements = static_cast<int64_t>(found.state.all_nonfinite);
    out.gather_seconds = found.counters.gather_seconds;
    out.vote_seconds = found.counters.vote_seconds;
    out.apply_seconds = found.counters.apply_seconds;
    out.publish_seconds = found.counters.publish_seconds;
    out.save_seconds = found.counters.save_seconds;
    out.load_seconds = found.counters.load_seconds;
    if (const Backward* const backward = backward_of(found)) {
      out.early_elements = backward->elements();
      out.early_updates = backward->updates();
    }
    out.host_waits = found.counters.host_waits;
    const auto& [data, control] = found.comm->traffic();
    out.sent_data_bytes = data.sent.bytes;
    out.sent_data_messages = data.sent.messages;
    out.received_data_bytes = data.received.bytes;
    out.received_data_messages = data.received.messages;
    out.sent_control_bytes = control.sent.bytes;
    out.sent_control_messages = control.sent.messages;
    out.received_control_bytes = control.received.bytes;
    out.received_control_messages = control.received.messages;
    out.idle_ranks = found.plan.idle_ranks() * found.options.instances;
    return write_struct(statistics, out, "statistics");
  });
}

zero_status zero_rule_info(int32_t optimizer, zero_rule* rule) {
  return guard([&]() -> Status {
    zero_rule out{};
    if (!with_rule(optimizer, [&](auto found) { out = rule_of<decltype(found)>(); }))
      return bad_argument("optimizer is ", optimizer, "; rules are numbered from 0 to ",
                          kRuleCount - 1);
    return write_struct(rule, out, "rule");
  });
}
