// SPDX-License-Identifier: Apache-2.0
// Sends gradients to their owners, sums them, and measures the sums.
#include <vector>

#include "step/norm.h"
#include "step/queued/walk.h"
#include "step/travel.h"

namespace zero::queued {

Status Walk::order(StreamHandle before, const Event& event, StreamHandle after, const char* why) {
  ZERO_TRY(device().record(event.handle(), before));
  return device().wait(after, event.handle(), why);
}

Status Walk::move(StreamHandle stream, DType from, DType to, const Rounding& rounding, Range tiles,
                  const StepState* unless_skipped) {
  if (tiles.count == 0) return Status();
  return launch(stream,
                launch::Moves{.from = from,
                              .to = to,
                              .rounded = rounding.to,
                              .divisor = rounding.divisor,
                              .count = tiles.count,
                              .tiles = table<launch::Tile>(queue().tables.move_tiles) + tiles.first,
                              .moves = table<launch::Move>(queue().tables.moves),
                              .unless_skipped = unless_skipped});
}

/// Returns true if reductions add to the sums of earlier calls.
bool Walk::adds() const { return memory_.adds && !adds_apart(optim_, memory_); }

/// Reduces each owner's part separately. This rank's sums are stored from the start of its share of
/// the transfer.
Status Walk::send_to_owners(const Travel& travel, std::byte* sums) {
  const Transfer& transfer = travel.transfer;
  const Section& of = section(transfer.section);
  std::vector<Summed> parts;
  travel::for_each_owner(optim_, transfer, [&](int32_t owner, int64_t layout, int64_t count) {
    parts.push_back({memory_.grads_base + of.grad_at(layout), sums + of.sum_at(transfer.share),
                     static_cast<size_t>(count), owner});
  });
  const DType wire = travel::wire(optim_, of);
  travel::count_moved(optim_, travel, wire);
  return plane_->reduce({wire, of.sum(), adds()}, parts, queue().reduces.handle());
}

Status Walk::send_packed(const Travel& travel, std::byte* sums) {
  const Transfer& transfer = travel.transfer;
  const Section& of = section(transfer.section);
  const DType wire = travel::wire(optim_, of);
  const StreamHandle stream = queue().reduces.handle();
  const size_t bytes = travel::summed_bytes(optim_, transfer, wire);
  ZERO_TRY(device().fill(stream, memory_.send.data(), 0, bytes));
  ZERO_TRY(move(stream, of.grad_dtype, wire, optim_.rounding_of(of), travel.packed));
  optim_.counters.copied_bytes += static_cast<int64_t>(bytes);
  travel::count_moved(optim_, travel, wire);
  return plane_->reduce_scatter({wire, of.sum(), adds()}, memory_.send.data(),
                                sums + of.sum_at(transfer.share),
                                static_cast<size_t>(transfer.chunk), stream);
}

Status Walk::send_gradients(std::span<const Travel> group, std::byte* sums) {
  if (group[0].by_owner) return send_to_owners(group[0], sums);
  if (!group[0].in_place) return send_packed(group[0], sums);
  std::vector<Scattered> parts;
  for (const Travel& one : group) {
    const Transfer& transfer = one.transfer;
    const Section& of = section(transfer.section);
    const DType wire = travel::wire(optim_, of);
    parts.push_back({{wire, of.sum(), adds()},
                     memory_.grads_base + of.grad_at(transfer.layout),
                     sums + of.sum_at(transfer.share),
                     static_cast<size_t>(transfer.chunk)});
    travel::count_moved(optim_, one, wire);
  }
  return plane_->reduce_scatter(parts, queue().reduces.handle());
}

Status Walk::find_summed() {
  return gates_ == nullptr ? Status() : gates_->pass(Gate::entered, stream(), order::kEntered);
}

/// Copies gradients that are in no arena to staging.
Status Walk::stage() {
  for (const Part& one : queue().tables.staged) {
    const DType grad = section(one.section).grad_dtype;
    ZERO_TRY(move(stream(), grad, grad, {}, one.range));
    optim_.counters.copied_bytes += static_cast<int64_t>(size_of(grad, one.elements));
  }
  return Status();
}

Status Walk::reduce(size_t at_once) {
  const DeviceRange range = optim_.comm->trace.range("gather");
  if (plane_ == nullptr) {
    ZERO_TRY(stage());
    return find_summed();
  }
  std::byte* const sums = arriving_sums(optim_, memory_);
  if (memory_.none) {
    for (const Part& own : queue().tables.own) {
      const Section& of = section(own.section);
      ZERO_TRY(move(stream(), of.grad_dtype, of.sum(), {}, own.range));
    }
    return Status();
  }
  const StreamHandle travels = queue().reduces.handle();
  ZERO_TRY(order(stream(), queue().given, travels, order::kGiven));
  ZERO_TRY(device().wait(travels, plane_->gathered.handle(), order::kApart));
  ZERO_TRY(device().wait(travels, plane_->reduced.handle(), order::kApart));
  size_t sent = 0;
  for (std::span<const Travel> rest = queue().tables.reductions; !rest.empty();) {
    const std::span<const Travel> group = first_group(rest, at_once);
    ZERO_TRY(send_gradients(group, sums));
    rest = rest.subspan(group.size());
    for (const size_t end = sent + group.size(); sent < end; sent++)
      ZERO_TRY(device().record(queue().summed[sent].handle(), travels));
  }
  return device().record(plane_->reduced.handle(), travels);
}

Status Walk::await_sums() {
  if (plane_ == nullptr || memory_.none || queue().tables.reductions.empty()) return Status();
  const Event& last = queue().summed[queue().tables.reductions.size() - 1];
  return device().wait(stream(), last.handle(), order::kSummed);
}

Status Walk::sum(double p) {
  ZERO_TRY(reduce(SIZE_MAX));  // no sum is read before all have arrived
  ZERO_TRY(await_sums());
  return measure(p, Made::now);
}

Status Walk::measure(double p, Made made) {
  const DeviceRange range = optim_.comm->trace.range("measure");
  NormSums* const own = queue().records_of_all() + optim_.comm->rank();
  const Tables& tables = queue().tables;
  ZERO_TRY(device().fill(stream(), own, 0, sizeof *own));
  const bool now = made == Made::now;
  const bool makes = now && plane_ == nullptr;  // sums the gradients of all ranks
  const bool adds = now && (makes ? memory_.adds : adds_apart(optim_, memory_));
  const size_t sources = makes ? tables.sum_sources : adds ? tables.sum_incoming : tables.sum_self;
  for (const Part& one : tables.measured) {
    const Section& of = section(one.section);
    launch::Format format = format_of(optim_, of, makes && !memory_.none);
    if (!makes) format.grad = of.sum();
    ZERO_TRY(launch(
        stream(), launch::Reduce{.format = format,
                                 .norm = norm_for(p),
                                 .adds = adds,
                                 .width = makes ? tables.source_width : 1,
                                 .count = one.range.count,
                                 .pieces = table<launch::PieceRow>(tables.pieces) + one.range.first,
                                 .sums = table<launch::Sums>(tables.sums),
                                 .sources = table<const std::byte*>(sources),
                                 .record = own}));
    const size_t written = of.sum() == format.grad && !makes ? 0 : size_of(of.sum());
    const size_t read = size_of(format.grad) * (makes ? tables.source_width : 1);
    optim_.counters.moved_bytes += one.elements * static_cast<int64_t>(read + written);
  }
  if (gates_ != nullptr) {
    if (!now) ZERO_TRY(gates_->pass(Gate::reread, stream(), order::kReread));
    ZERO_TRY(tell_record());
    return gates_->pass(Gate::measured, stream(), order::kTold);
  }
  if (plane_ == nullptr) return Status();
  ZERO_TRY(gather_records());
  return order(queue().gathers.handle(), queue().decided, stream(), order::kDecided);
}

Status Walk::begin_gathers() {
  ZERO_TRY(device().wait(queue().gathers.handle(), plane_->reduced.handle(), order::kReduced));
  return device().wait(queue().gathers.handle(), plane_->gathered.handle(), order::kApart);
}

/// Gathers the records of all ranks on the stream that gathers, after its other work.
Status Walk::gather_records() {
  NormSums* const all = queue().records_of_all();
  const StreamHandle travels = queue().gathers.handle();
  ZERO_TRY(order(stream(), queue().measured, travels, order::kMeasured));
  ZERO_TRY(begin_gathers());
  ZERO_TRY(plane_->all_gather(all + optim_.comm->rank(), all, sizeof *all, travels));
  return device().record(plane_->gathered.handle(), travels);
}

Status Walk::tell_record() {
  const Arena& records = *queue().shared_records;
  const auto own = static_cast<size_t>(optim_.comm->rank());
  const Location place{records.number(), 0, own * sizeof(NormSums)};
  for (int32_t rank = 0; rank < optim_.world(); rank++) {
    if (rank == optim_.comm->rank()) continue;
    std::byte* const to = ZERO_TRY(optim_.comm->resolve(rank, place, sizeof(NormSums)));
    ZERO_TRY(device().copy(stream(), to, queue().records_of_all() + own, sizeof(NormSums)));
  }
  return Status();
}

Status Walk::clamp(double limit) {
  const Tables& tables = queue().tables;
  for (const Part& one : tables.measured) {
    ZERO_TRY(launch(
        stream(), launch::Clamp{.sum = section(one.section).sum(),
                                .limit = limit,
                                .count = one.range.count,
                                .pieces = table<launch::PieceRow>(tables.pieces) + one.range.first,
                                .sums = table<launch::Sums>(tables.sums),
                                .state = queue().device_state()}));
  }
  return Status();
}

Status Walk::decide(launch::Decide how, By by) {
  how.world = static_cast<uint32_t>(optim_.places());  // counts each share once
  how.records = by == By::records ? queue().records_of_all() : nullptr;
  how.broken = gates_ != nullptr ? gates_->broken() : nullptr;
  how.layout = queue().layout;
  how.loss_scale = optim_.loss_scale_from.data;
  how.loss_scale_dtype = optim_.loss_scale_from.dtype;
  how.state = queue().device_state();
  return launch(stream(), how);
}

}  // namespace zero::queued
