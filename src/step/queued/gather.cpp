// SPDX-License-Identifier: Apache-2.0
// Gradients to their owners, and what is found there.
#include <algorithm>
#include <cmath>
#include <vector>

#include "step/queued/walk.h"
#include "step/travel.h"

namespace zero::queued {
namespace {

Norm norm_of_power(double p) {
  if (p == 0) return Norm::none;
  if (std::isinf(p)) return Norm::largest;
  return p == 1 ? Norm::abs : Norm::squares;
}

}  // namespace

Walk::Walk(Optimizer& optim, StepMemory& memory, StreamHandle stream)
    : optim_(optim),
      memory_(memory),
      queue_(*memory.queue),
      device_(*queue_.device),
      plane_(optim.comm->direct() ? nullptr : optim.comm->queued()),
      gates_(optim.comm->gates()),
      stream_(stream) {}

Status Walk::order(StreamHandle before, const Event& event, StreamHandle after, const char* why) {
  ZERO_TRY(device_.record(event.handle(), before));
  return device_.wait(after, event.handle(), why);
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
                              .tiles = table<launch::Tile>(queue_.tables.move_tiles) + tiles.first,
                              .moves = table<launch::Move>(queue_.tables.moves),
                              .unless_skipped = unless_skipped});
}

/// Reductions add to sums of calls before.
bool Walk::adds() const { return memory_.adds && !adds_apart(optim_, memory_); }

/// What a transfer reads and writes at the least: this rank's buffer once out and once in.
void Walk::count_moved(const Travel& travel, DType dtype) {
  int64_t elements = travel.by_owner ? 0 : travel.transfer.chunk * optim_.world();
  if (travel.by_owner)
    travel::for_each_owner(optim_, travel.transfer,
                           [&](int32_t, int64_t, int64_t count) { elements += count; });
  optim_.counters.moved_bytes += 2 * elements * static_cast<int64_t>(size_of(dtype));
}

/// What this rank owns begins where its share does.
Status Walk::send_to_owners(const Travel& travel, std::byte* sums) {
  const Transfer& transfer = travel.transfer;
  const Section& of = section(transfer.section);
  std::vector<Summed> parts;
  travel::for_each_owner(optim_, transfer, [&](int32_t owner, int64_t layout, int64_t count) {
    parts.push_back({memory_.grads_base + of.grad_at(layout), sums + of.sum_at(transfer.share),
                     static_cast<size_t>(count), owner});
  });
  const DType wire = travel::wire(optim_, of);
  count_moved(travel, wire);
  return plane_->reduce({wire, of.sum(), adds()}, parts, queue_.reduces.handle());
}

Status Walk::send_packed(const Travel& travel, std::byte* sums) {
  const Transfer& transfer = travel.transfer;
  const Section& of = section(transfer.section);
  const DType wire = travel::wire(optim_, of);
  const StreamHandle stream = queue_.reduces.handle();
  const size_t bytes = travel::bytes_of(optim_, transfer.chunk, wire);
  ZERO_TRY(device_.fill(stream, memory_.send.data(), 0, bytes));
  ZERO_TRY(move(stream, of.grad_dtype, wire, optim_.rounding_of(of), travel.pack));
  optim_.counters.copied_bytes += static_cast<int64_t>(bytes);
  count_moved(travel, wire);
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
    count_moved(one, wire);
  }
  return plane_->reduce_scatter(parts, queue_.reduces.handle());
}

Status Walk::enter() {
  return gates_ == nullptr ? Status() : gates_->pass(Gate::entered, stream_, order::kEntered);
}

/// Gradients that lie where other ranks cannot read them to where they can.
Status Walk::stage() {
  for (const Measured& one : queue_.tables.staged) {
    const DType grad = section(one.section).grad_dtype;
    ZERO_TRY(move(stream_, grad, grad, {}, one.range));
    optim_.counters.copied_bytes += one.elements * static_cast<int64_t>(size_of(grad));
  }
  return Status();
}

Status Walk::reduce(bool together) {
  if (plane_ == nullptr) {
    ZERO_TRY(stage());
    return enter();
  }
  const bool apart = adds_apart(optim_, memory_);
  std::byte* const sums = (apart ? memory_.incoming : memory_.reduced).data();
  if (memory_.none) {
    for (const Measured& own : queue_.tables.own) {
      const Section& of = section(own.section);
      ZERO_TRY(move(stream_, of.grad_dtype, of.sum(), {}, own.range));
    }
    return Status();
  }
  const StreamHandle stream = queue_.reduces.handle();
  ZERO_TRY(order(stream_, queue_.given, stream, order::kGiven));
  ZERO_TRY(device_.wait(stream, plane_->gathered.handle(), order::kApart));
  ZERO_TRY(device_.wait(stream, plane_->reduced.handle(), order::kApart));
  const size_t at_once = together ? SIZE_MAX : plane_->at_once();
  size_t sent = 0;
  for (std::span<const Travel> rest = queue_.tables.reductions; !rest.empty();) {
    const std::span<const Travel> group = first_group(rest, at_once);
    ZERO_TRY(send_gradients(group, sums));
    rest = rest.subspan(group.size());
    for (const size_t end = sent + group.size(); sent < end; sent++)
      ZERO_TRY(device_.record(queue_.summed[sent].handle(), stream));
  }
  return device_.record(plane_->reduced.handle(), stream);
}

Status Walk::await_sums() {
  if (plane_ == nullptr || memory_.none || queue_.tables.reductions.empty()) return Status();
  const Event& last = queue_.summed[queue_.tables.reductions.size() - 1];
  return device_.wait(stream_, last.handle(), order::kSummed);
}

Status Walk::measure(double p, bool first) {
  NormSums* const own = queue_.records_of_all() + optim_.comm->rank();
  const Tables& tables = queue_.tables;
  ZERO_TRY(device_.fill(stream_, own, 0, sizeof *own));
  const bool makes = first && plane_ == nullptr;  // of all ranks' gradients
  const bool adds = first && (makes ? memory_.adds : adds_apart(optim_, memory_));
  const size_t sources = makes ? tables.sum_sources : adds ? tables.sum_incoming : tables.sum_self;
  for (const Measured& one : tables.measured) {
    const Section& of = section(one.section);
    launch::Format format = format_of(optim_, of, makes && !memory_.none);
    if (!makes) format.grad = of.sum();
    ZERO_TRY(launch(stream_,
                    launch::Reduce{.format = format,
                                   .norm = norm_of_power(p),
                                   .adds = adds,
                                   .width = makes ? tables.source_width : 1,
                                   .count = one.range.count,
                                   .pieces = table<launch::Piece>(tables.pieces) + one.range.first,
                                   .sums = table<launch::Sums>(tables.sums),
                                   .sources = table<const std::byte*>(sources),
                                   .record = own}));
    const size_t made = of.sum() == format.grad && !makes ? 0 : size_of(of.sum());
    const size_t read = size_of(format.grad) * (makes ? tables.source_width : 1);
    optim_.counters.moved_bytes += one.elements * static_cast<int64_t>(read + made);
  }
  memory_.norm_type = p;
  if (gates_ != nullptr) {
    if (!first) ZERO_TRY(gates_->pass(Gate::reread, stream_, order::kReread));
    ZERO_TRY(tell_record());
    return gates_->pass(Gate::measured, stream_, order::kTold);
  }
  if (plane_ == nullptr) return Status();
  ZERO_TRY(share_records());
  return order(queue_.gathers.handle(), queue_.decided, stream_, order::kDecided);
}

Status Walk::begin_gathers() {
  ZERO_TRY(device_.wait(queue_.gathers.handle(), plane_->reduced.handle(), order::kReduced));
  return device_.wait(queue_.gathers.handle(), plane_->gathered.handle(), order::kApart);
}

/// Every rank's record to all, by what gathers, and behind what it has to do.
Status Walk::share_records() {
  NormSums* const all = queue_.records_of_all();
  const StreamHandle travels = queue_.gathers.handle();
  ZERO_TRY(order(stream_, queue_.measured, travels, order::kMeasured));
  ZERO_TRY(begin_gathers());
  ZERO_TRY(plane_->all_gather(all + optim_.comm->rank(), all, sizeof *all, travels));
  return device_.record(plane_->gathered.handle(), travels);
}

Status Walk::tell_record() {
  const Arena& records = *queue_.shared_records;
  const auto own = static_cast<size_t>(optim_.comm->rank());
  const Location place{records.number(), 0, own * sizeof(NormSums)};
  for (int32_t rank = 0; rank < optim_.world(); rank++) {
    if (rank == optim_.comm->rank()) continue;
    std::byte* const to = ZERO_TRY(optim_.comm->resolve(rank, place, sizeof(NormSums)));
    ZERO_TRY(device_.copy(stream_, to, queue_.records_of_all() + own, sizeof(NormSums)));
  }
  return Status();
}

Status Walk::clamp(double limit) {
  const Tables& tables = queue_.tables;
  for (const Measured& one : tables.measured) {
    ZERO_TRY(launch(stream_,
                    launch::Clamp{.sum = section(one.section).sum(),
                                  .limit = limit,
                                  .count = one.range.count,
                                  .pieces = table<launch::Piece>(tables.pieces) + one.range.first,
                                  .sums = table<launch::Sums>(tables.sums),
                                  .state = queue_.device_state()}));
  }
  return Status();
}

Status Walk::decide(const Decision& decision) {
  return launch(stream_,
                launch::Decide{.world = static_cast<uint32_t>(optim_.world()),
                               .records = decision.records ? queue_.records_of_all() : nullptr,
                               .p = decision.p,
                               .factor = decision.factor,
                               .max_grad_norm = decision.max_grad_norm,
                               .skips = decision.skips,
                               .refuses = decision.refuses,
                               .again = decision.again,
                               .gradients = decision.gradients,
                               .broken = gates_ != nullptr ? gates_->broken() : nullptr,
                               .layout = queue_.layout,
                               .loss_scale = optim_.loss_scale_from.data,
                               .loss_scale_dtype = optim_.loss_scale_from.dtype,
                               .state = queue_.device_state()});
}

}  // namespace zero::queued
