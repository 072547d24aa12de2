// SPDX-License-Identifier: Apache-2.0
// Runs transfers on the host.
#include <algorithm>
#include <cstring>

#include "base/float_environment.h"
#include "base/os.h"
#include "kernels/clamp.h"
#include "step/norm.h"
#include "step/travel.h"

namespace zero::travel {
namespace {

/// Allocates memory for the transfers of the whole step, in arenas that other ranks on the host can
/// access. The sizes are the same on all ranks.
Status make_room(Call& call, const Optimizer& optim, StepMemory& memory) {
  const Room room = room_for(optim, memory);
  for (const auto& [buffer, bytes] :
       {std::pair(&memory.scratch, room.summed), std::pair(&memory.send, room.sent),
        std::pair(&memory.receive, room.received)}) {
    if (buffer->bytes() < bytes)
      buffer->arena = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK, Side::host));
  }
  return Status();
}

/// Copies parameters, whose values have already been rounded, to or from the transfer buffers.
void copy_params(Optimizer& optim, DType from, DType to, const std::vector<launch::Move>& moves) {
  for (const launch::Move& move : moves) {
    const auto count = static_cast<size_t>(move.count);
    if (from == to) {
      std::memcpy(move.to, move.from, count * size_of(to));
    } else if (to == DType::f32) {
      kernels().half(from).widen(reinterpret_cast<float*>(move.to),
                                 reinterpret_cast<const uint16_t*>(move.from), count);
    } else {
      kernels().half(to).narrow(reinterpret_cast<uint16_t*>(move.to),
                                reinterpret_cast<const float*>(move.from), count);
    }
    optim.counters.copied_bytes +=
        move.count * static_cast<int64_t>(std::min(size_of(from), size_of(to)));
  }
}

/// Copies gradients of a section, and converts them to the type in which they are sent.
void convert(const Optimizer& optim, const Section& section, const launch::Move& move) {
  const auto count = static_cast<size_t>(move.count);
  const DType travels = wire(optim, section);
  const Rounding rounding = optim.rounding_of(section);
  if (!rounding.any()) {
    if (travels == section.grad_dtype) {
      std::memcpy(move.to, move.from, count * size_of(travels));
    } else {
      const void* const from = move.from;
      kernels().reduction(travels, section.grad_dtype, Norm::none)(move.to, &from, 1, count);
    }
    return;
  }
  float values[kRounded];
  for (size_t done = 0; done < count; done += kRounded) {
    const size_t part = std::min(kRounded, count - done);
    const void* const at = move.from + done * size_of(section.grad_dtype);
    kernels().reduction(DType::f32, section.grad_dtype, Norm::none)(values, &at, 1, part);
    if (rounding.divisor != 1) scale(values, values, part, 1 / rounding.divisor);
    std::byte* const place = move.to + done * size_of(travels);
    if (travels == rounding.to) {
      kernels().half(rounding.to).narrow(reinterpret_cast<uint16_t*>(place), values, part);
    } else {
      kernels().half(rounding.to).round(reinterpret_cast<float*>(place), values, part);
    }
  }
}

/// Packs this rank's gradients of a transfer into the send buffer.
void pack(Optimizer& optim, const StepMemory& memory, const Travel& travel) {
  const Section& section = section_of(optim, travel.transfer);
  const DType travels = wire(optim, section);
  const FloatEnvironment environment;  // the engine's collective may have changed it
  std::memset(memory.send.data(), 0, summed_bytes(optim, travel.transfer, travels));
  for (const launch::Move& move : travel.pack) {
    convert(optim, section, move);
    optim.counters.copied_bytes += static_cast<int64_t>(size_of(travels, move.count));
  }
}

void take_own(const Optimizer& optim, const StepMemory& memory) {
  const FloatEnvironment environment;
  for (const auto& [number, move] : own_gradients(optim, memory)) {
    const Section& section = optim.plan.section(number);
    const auto count = static_cast<size_t>(move.count);
    const void* const from = move.from;
    if (from == nullptr) {
      std::memset(move.to, 0, count * size_of(section.sum()));
    } else {
      kernels().reduction(section.sum(), section.grad_dtype, Norm::none)(move.to, &from, 1, count);
    }
  }
}

std::span<std::byte> scratch_of(const StepMemory& memory) {
  return {memory.scratch.data(), memory.scratch.bytes()};
}

/// Reduces all transfers in place, without packing.
Status reduce_in_place(Call& call, Optimizer& optim, StepMemory& memory,
                       std::span<const Travel> travels) {
  size_t bytes = 0;
  std::vector<Scattered> all;
  for (const Travel& travel : travels) {
    const Transfer& transfer = travel.transfer;
    const Section& section = section_of(optim, transfer);
    all.push_back({.types = {.from = section.grad_dtype,
                             .sum = section.sum(),
                             .adds = memory.adds && !adds_apart(optim, memory),
                             .travels = section.sum()},
                   .send = memory.grads_base + section.grad_at(transfer.layout),
                   .recv = arriving_sums(optim, memory) + section.sum_at(transfer.share),
                   .count = static_cast<size_t>(transfer.chunk),
                   .owners = summing_ranks(optim, transfer)});
    bytes += summed_bytes(optim, transfer, section.grad_dtype);
    count_moved(optim, travel, section.grad_dtype);
  }
  const Span span(optim.comm->trace, Trace::Kind::transfer, "reduce_scatter", bytes);
  return optim.comm->reduce_scatter(call, all, memory.scratch.data());
}
Status reduce_packed(Call& call, Optimizer& optim, StepMemory& memory, const Travel& travel) {
  const Transfer& transfer = travel.transfer;
  const Section& section = section_of(optim, transfer);
  pack(optim, memory, travel);
  std::byte* const sums = arriving_sums(optim, memory) + section.sum_at(transfer.share);
  const bool alone = optim.options.instances == 1;
  std::byte* const parts = alone ? sums : memory.receive.data();
  const int64_t part = part_elements(optim, transfer);
  std::byte* const to = moved(parts, part * optim.instance(), section.sum());
  const auto count = static_cast<size_t>(part);
  const bool adds = memory.adds && !adds_apart(optim, memory);
  const Rounding rounding = optim.rounding_of(section);
  const auto multiply = [&](float by) {
    auto* const divided = reinterpret_cast<float*>(to);
    if (rounding.divisor != 1) scale(divided, divided, count, by);
  };
  if (adds && !alone) std::memcpy(parts, sums, size_of(section.sum(), transfer.chunk));
  if (adds) multiply(1 / rounding.divisor);
  const Span span(optim.comm->trace, Trace::Kind::transfer, "reduce_scatter",
                  summed_bytes(optim, transfer, wire(optim, section)));
  const Scattered one{{.from = wire(optim, section),
                       .sum = section.sum(),
                       .adds = adds,
                       .travels = rounding.any() ? rounding.to : section.sum()},
                      memory.send.data(),
                      to,
                      count,
                      summing_ranks(optim, transfer)};
  ZERO_TRY(optim.comm->reduce_scatter(call, {&one, 1}, memory.scratch.data()));
  multiply(rounding.divisor);
  count_moved(optim, travel, wire(optim, section));
  if (alone) return Status();
  const Gathered own{to, parts, size_of(section.sum(), part)};
  ZERO_TRY(optim.comm->gather_among(call, optim.copies(), {&own, 1}, scratch_of(memory)));
  std::memcpy(sums, parts, size_of(section.sum(), transfer.chunk));
  optim.counters.moved_bytes += 2 * static_cast<int64_t>(size_of(section.sum(), transfer.chunk));
  return Status();
}

/// Exchanges the parameters of some transfers among the ranks of this rank's instance.
Status gather(Call& call, Optimizer& optim, StepMemory& memory, std::span<const Travel> travels) {
  size_t bytes = 0;
  std::vector<Gathered> all;
  for (const Travel& travel : travels) {
    const Section& section = section_of(optim, travel.transfer);
    const DType shared = optim.shared(section);
    const size_t part = size_of(shared, travel.transfer.chunk);
    const int32_t places = sending_places(optim, travel.transfer);
    if (travel.in_place) {
      std::byte* const place = memory.data_base + section.data_at(travel.transfer.layout);
      all.push_back({place + static_cast<size_t>(optim.place()) * part, place, part, places});
    } else {
      all.push_back({memory.send.data(), memory.receive.data(), part, places});
    }
    bytes += gathered_bytes(optim, travel.transfer, shared);
    count_moved(optim, travel, shared);
  }
  const Span span(optim.comm->trace, Trace::Kind::transfer, "all_gather", bytes);
  return optim.comm->gather_among(call, optim.instance_ranks(), all, scratch_of(memory));
}

Status publish_packed(Call& call, Optimizer& optim, StepMemory& memory, const Travel& travel) {
  const Section& section = section_of(optim, travel.transfer);
  const DType shared = optim.shared(section);
  copy_params(optim, section.dtype, shared, travel.pack);
  ZERO_TRY(gather(call, optim, memory, {&travel, 1}));
  copy_params(optim, shared, section.dtype, travel.unpack);
  return Status();
}

/// Runs all transfers. Transfers in place run together. Packed transfers run one at a time, because
/// the buffers have room for only one.
template <class Together, class Alone>
Status make(Call& call, const std::vector<Travel>& travels, const char* point,
            const Together& together, const Alone& alone) {
  const bool in_place = !travels.empty() && travels[0].in_place;  // the same for all
  for (size_t i = 0; i < (in_place ? 1 : travels.size()); i++) {
    ZERO_TRY(in_place ? together() : alone(travels[i]));
    call.progress();
    os().reached(point);
  }
  return Status();
}

}  // namespace

Status reduce(Call& call, Optimizer& optim, StepMemory& memory) {
  if (memory.none) {
    take_own(optim, memory);
    return Status();
  }
  ZERO_TRY(make_room(call, optim, memory));
  const std::vector<Travel> travels = reductions(optim, memory);
  return make(
      call, travels, "gather.transfer",
      [&] { return reduce_in_place(call, optim, memory, travels); },
      [&](const Travel& one) { return reduce_packed(call, optim, memory, one); });
}

Status publish(Call& call, Optimizer& optim, StepMemory& memory) {
  ZERO_TRY(make_room(call, optim, memory));
  const std::vector<Travel> travels = gathers(optim, memory);
  return make(
      call, travels, "publish.transfer", [&] { return gather(call, optim, memory, travels); },
      [&](const Travel& one) { return publish_packed(call, optim, memory, one); });
}

}  // namespace zero::travel
