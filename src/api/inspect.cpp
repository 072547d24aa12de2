// SPDX-License-Identifier: Apache-2.0
// Looking inside: ownership, plans without ranks, statistics.
#include <algorithm>
#include <cstddef>

#include "api/guard.h"
#include "api/optim_options.h"
#include "api/options.h"
#include "base/checked.h"
#include "step/backward.h"

namespace {

using namespace zero;
using namespace zero::api;

Result<PlanParam> plan_param(const Optimizer::NewParam& param, size_t index) {
  PlanParam out;
  out.count = 1;
  for (const int64_t size : param.shape) {
    const auto product = size < 0 ? std::nullopt : checked_multiply(out.count, size);
    if (!product)
      return Status(ZERO_ERR_ARGUMENT, text("parameter ", index, " has an impossible shape"));
    out.count = *product;
  }
  out.owner = param.owner;
  out.dtype = param.dtype;
  out.grad_dtype = param.grad_dtype;
  out.order = param.has_order ? param.order : static_cast<int64_t>(index);
  return out;
}

/// Bytes of state of the busiest rank.
int64_t longest_state(const Plan& plan, const OptimizerOptions& options,
                      std::span<const double> settings) {
  const auto slots = static_cast<size_t>(__builtin_popcount(options.rule->slots_used(settings)));
  int64_t longest = 0;
  for (int32_t rank = 0; rank < plan.options().world; rank++) {
    int64_t bytes = 0;
    for (size_t s = 0; s < plan.sections().size(); s++) {
      const Section& section = plan.sections()[s];
      const size_t element =
          slots * state_bytes_of(section.dtype) + master_bytes(master_of(section.dtype, options));
      bytes += plan.share_elements(s, rank) * static_cast<int64_t>(element);
    }
    longest = std::max(longest, bytes);
  }
  return longest;
}

void write_plan(const Plan& plan, const OptimizerOptions& options, std::span<const double> settings,
                size_t count, zero_plan& out) {
  for (int32_t rank = 0; out.elements != nullptr && rank < plan.options().world; rank++)
    out.elements[rank] = plan.owned_elements(rank);
  for (size_t i = 0; i < count; i++) {
    const auto index = static_cast<int64_t>(i);
    const Section& section = plan.section_of(index);
    if (out.offsets != nullptr) out.offsets[i] = section.data_at(plan.layout(index));
    if (out.grad_offsets != nullptr) out.grad_offsets[i] = section.grad_at(plan.layout(index));
    if (out.owners != nullptr) out.owners[i] = plan.owner(index);
  }
  out.arena_bytes = plan.data_bytes();
  out.grad_arena_bytes = plan.grad_bytes();
  out.state_bytes = longest_state(plan, options, settings);
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
    if (ranges == nullptr && capacity > 0) return Status(ZERO_ERR_ARGUMENT, "ranges is NULL");
    if (found.sealed_params() == 0) return Status(ZERO_ERR_STATE, "nothing is sealed yet");
    if (rank < 0 || rank >= found.world()) {
      return Status(ZERO_ERR_ARGUMENT,
                    text("rank ", rank, " is none of a world of ", found.world()));
    }
    std::vector<Segment> segments = found.plan.segments(rank);
    std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
      return a.param != b.param ? a.param < b.param : a.first < b.first;
    });
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
    if (world < 1 || world > 1'000'000) {
      return Status(ZERO_ERR_ARGUMENT, text("world is ", world, "; 1 to 1,000,000 are allowed"));
    }
    const ReadOptions read = ZERO_TRY(read_optim_options(options, world));
    const std::vector<Optimizer::NewParam> given = ZERO_TRY(read_params(params, count, false));
    std::vector<PlanParam> added;
    added.reserve(count);
    for (size_t i = 0; i < count; i++) added.push_back(ZERO_TRY(plan_param(given[i], i)));
    Plan made(PlanOptions{
        .world = world, .rule = read.options.partition, .bucket_bytes = read.options.bucket_bytes});
    const auto end = static_cast<int64_t>(count);
    ZERO_TRY(made.add(added, std::span(&end, 1)));
    write_plan(made, read.options, read.settings, count, out);
    return write_struct(plan, out, "plan");
  });
}

zero_status zero_stats(const zero_optim* optim, zero_statistics* statistics) {
  return on_query(optim, [&](Optimizer& found) -> Status {
    zero_statistics out{};
    for (const Param& param : found.params) out.parameter_elements += param.count;
    out.owned_elements = found.plan.owned_elements(found.comm->rank());
    out.state_bytes = found.state_bytes();
    out.staging_bytes = found.counters.staging_bytes + found.counters.shadow_bytes;
    out.control_bytes = found.counters.control_bytes;
    out.copied_bytes = found.counters.copied_bytes;
    out.moved_bytes = found.counters.moved_bytes;
    out.steps = found.step;
    out.skipped = found.skipped;
    out.nonfinite_elements = found.counters.nonfinite_elements;
    out.gather_seconds = found.counters.gather_seconds;
    out.vote_seconds = found.counters.vote_seconds;
    out.apply_seconds = found.counters.apply_seconds;
    out.publish_seconds = found.counters.publish_seconds;
    out.save_seconds = found.counters.save_seconds;
    out.load_seconds = found.counters.load_seconds;
    out.early_elements = early_elements(found);
    out.early_updates = early_updates(found);
    out.host_waits = found.counters.host_waits;
    return write_struct(statistics, out, "statistics");
  });
}
