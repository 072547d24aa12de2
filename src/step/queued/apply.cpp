// SPDX-License-Identifier: Apache-2.0
// Updates the parameters that this rank owns, and publishes each part as soon as it is updated.
#include "step/apply.h"

#include <vector>

#include "step/backward.h"
#include "step/queued/walk.h"
#include "step/travel.h"

namespace zero::queued {

Status Walk::prepare_scalars() {
  const Tables& tables = queue().tables;
  if (queue().given_count > 0) {
    const std::byte* const given = queue().settings.data() + queue().given_at;
    ZERO_TRY(launch(stream(), launch::Fetch{.count = queue().given_count,
                                            .given = reinterpret_cast<const launch::Given*>(given),
                                            .state = queue().device_state()}));
  }
  if (tables.classes == 0) return Status();
  return launch(
      stream(),
      launch::Prepare{.optimizers = table<int32_t>(tables.class_rules),
                      .count = tables.classes,
                      .settings = reinterpret_cast<const double*>(queue().settings.data()),
                      .params = table<int64_t>(tables.class_params),
                      .progress = reinterpret_cast<const ParamProgress*>(queue().progress.data()),
                      .state = queue().device_state(),
                      .out = reinterpret_cast<Scalars*>(queue().scalars.data())});
}

Status Walk::update(const Part& batch, bool fused) {
  if (batch.range.count == 0) return Status();
  const Tables& tables = queue().tables;
  const bool from_gradients = fused && plane_ == nullptr;
  const Section& of = section(batch.section);
  const size_t gradients =
      from_gradients ? tables.source_width * size_of(of.grad_dtype) : size_of(of.sum());
  optim_.counters.moved_bytes += batch.elements * bytes_updated(optim_, of, gradients);
  return launch(
      stream(),
      launch::Update{
          .format = format_of(optim_, of, from_gradients && !memory_.none),
          .optimizer = optim_.rule_of(of).number,
          .reduced = !from_gradients,
          .width = from_gradients ? tables.source_width : 1,
          .targets_width = tables.target_width,
          .count = batch.range.count,
          .tiles = table<launch::Tile>(tables.tiles) + batch.range.first,
          .runs = table<launch::RunRow>(tables.runs),
          .sources = table<const std::byte*>(from_gradients ? tables.sources : tables.reduced),
          .targets = table<std::byte*>(tables.targets),
          .scalars = reinterpret_cast<const Scalars*>(queue().scalars.data()),
          .state = queue().device_state(),
          .nonfinite = fused ? &queue().records_of_all()[optim_.comm->rank()].nonfinite : nullptr});
}

Status Walk::publish_by_owner(const Travel& travel) {
  const Section& of = section(travel.transfer.section);
  const DType shared = optim_.shared(of);
  std::vector<Sent> parts;
  travel::for_each_owner(
      optim_, travel.transfer, [&](int32_t owner, int64_t layout, int64_t count) {
        parts.push_back({memory_.data_base + of.data_at(layout), size_of(shared, count), owner});
      });
  travel::count_moved(optim_, travel, shared);
  return plane_->broadcast(parts, queue().gathers.handle());
}

/// In a skipped step, the copies change nothing, because the parameters have not been rounded to
/// the type in which they are sent.
Status Walk::publish_packed(const Travel& travel) {
  const Transfer& transfer = travel.transfer;
  const Section& of = section(transfer.section);
  const StreamHandle stream = queue().gathers.handle();
  const DType shared = optim_.shared(of);
  const size_t bytes = size_of(shared, transfer.chunk);
  travel::count_moved(optim_, travel, shared);
  ZERO_TRY(move(stream, of.dtype, shared, {}, travel.packed, queue().device_state()));
  ZERO_TRY(plane_->all_gather(memory_.send.data(), memory_.receive.data(), bytes, stream));
  optim_.counters.copied_bytes += static_cast<int64_t>(bytes) * optim_.world();
  return move(stream, shared, of.dtype, {}, travel.unpacked, queue().device_state());
}

Status Walk::publish_group(std::span<const Travel> group) {
  if (group[0].by_owner) return publish_by_owner(group[0]);
  if (!group[0].in_place) return publish_packed(group[0]);
  const auto rank = static_cast<size_t>(optim_.comm->rank());
  std::vector<Gathered> parts;
  for (const Travel& one : group) {
    const Section& of = section(one.transfer.section);
    const DType shared = optim_.shared(of);
    const size_t bytes = size_of(shared, one.transfer.chunk);
    std::byte* const all = memory_.data_base + of.data_at(one.transfer.layout);
    parts.push_back({all + rank * bytes, all, bytes});
    travel::count_moved(optim_, one, shared);
  }
  return plane_->all_gather(parts, queue().gathers.handle());
}

/// If parameters are sent through collectives, sends each part as soon as it is updated.
Status Walk::apply(bool fused) {
  const DeviceRange range = optim_.comm->trace.range("apply");
  const Tables& tables = queue().tables;
  if (fused) {
    end_round(memory_);
    NormSums* const own = queue().records_of_all() + optim_.comm->rank();
    ZERO_TRY(device().fill(stream(), own, 0, sizeof *own));
  }
  ZERO_TRY(prepare_scalars());
  if (plane_ == nullptr) {
    for (const Part& batch : tables.batches) ZERO_TRY(update(batch, fused));
    return Status();
  }
  const StreamHandle travels = queue().gathers.handle();
  ZERO_TRY(begin_gathers());
  const bool as_they_come =
      fused && !memory_.none && tables.reductions.size() == tables.gathers.size() &&
      (tables.reductions.empty() || tables.reductions[0].in_place == tables.gathers[0].in_place);
  if (fused && !as_they_come) ZERO_TRY(await_sums());
  size_t updated = 0;
  for (std::span<const Travel> rest = tables.gathers; !rest.empty();) {
    const std::span<const Travel> group = first_group(rest, plane_->at_once());
    rest = rest.subspan(group.size());
    const size_t end = updated + group.size();
    for (size_t i = updated; i < end; i++) {
      if (as_they_come)
        ZERO_TRY(device().wait(stream(), queue().summed[i].handle(), order::kSummed));
      ZERO_TRY(update(tables.batches[i], fused));
    }
    ZERO_TRY(order(stream(), queue().updated[end - 1], travels, order::kUpdated));
    ZERO_TRY(publish_group(group));
    for (; updated < end; updated++)
      ZERO_TRY(device().record(queue().arrived[updated].handle(), travels));
  }
  return device().record(plane_->gathered.handle(), travels);
}

/// Copies this rank's parameters in no arena from their owners' outboxes.
Status Walk::take_over() {
  for (const Part& one : queue().tables.pulled) {
    const DType dtype = section(one.section).dtype;
    ZERO_TRY(move(stream(), dtype, dtype, {}, one.range, queue().device_state()));
    optim_.counters.copied_bytes += static_cast<int64_t>(size_of(dtype, one.elements));
  }
  return Status();
}

/// Queues the update of the progress after everything else. If there is a stream that gathers, uses
/// that stream, because it ends last.
Status Walk::publish(bool fused) {
  const DeviceRange range = optim_.comm->trace.range("publish");
  if (gates_ != nullptr) {
    if (fused) ZERO_TRY(tell_record());
    ZERO_TRY(gates_->pass(Gate::published, stream(), order::kPublished));
    ZERO_TRY(take_over());
  }
  if (plane_ == nullptr) {
    ZERO_TRY(advance(stream(), fused));
    return device().record(queue().gathered.handle(), stream());
  }
  const StreamHandle travels = queue().gathers.handle();
  if (fused) ZERO_TRY(gather_records());
  ZERO_TRY(advance(travels, fused));
  if (!optim_.options.overlap_gather || queue().capture != 0)
    return order(travels, queue().gathered, stream(), order::kGathered);
  const std::lock_guard lock(queue().waiting);
  queue().gathering = true;
  queue().last_gathers = queue().tables.last_gathers;
  return device().record(queue().gathered.handle(), travels);
}

Status Walk::advance(StreamHandle stream, bool fused) {
  const OptimizerOptions& options = optim_.options;
  const Tables& tables = queue().tables;
  const std::byte* const settings = queue().settings.data();
  return launch(
      stream, launch::Advance{
                  .optimizers = table<int32_t>(tables.group_rules),
                  .world = static_cast<uint32_t>(optim_.places()),  // counts each share once
                  .records = fused ? queue().records_of_all() : nullptr,
                  .count = static_cast<uint32_t>(optim_.params.size()),
                  .present = tables.all_present ? nullptr : table<uint8_t>(tables.present),
                  .groups = table<int32_t>(tables.groups),
                  .used = reinterpret_cast<const uint32_t*>(settings + queue().groups_used_at),
                  .settings = reinterpret_cast<const double*>(settings + queue().group_settings_at),
                  .progress = reinterpret_cast<ParamProgress*>(queue().progress.data()),
                  .growth_factor = options.growth_factor,
                  .backoff_factor = options.backoff_factor,
                  .growth_interval = options.scales_loss() ? options.growth_interval : 0,
                  .state = queue().device_state()});
}

}  // namespace zero::queued
