// SPDX-License-Identifier: Apache-2.0
#include "step/collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/float_environment.h"
#include "base/os.h"
#include "kernels/clamp.h"
#include "step/reduce.h"
#include "step/travel.h"

namespace zero::collective {
namespace {

using namespace travel;

/// Buffers for the whole step, made before the vote: after it nothing local may fail.
Status make_room(const Optimizer& optim, StepMemory& memory) {
  size_t gathered = 0, packed = 0;
  for (const Transfer& transfer : optim.plan.transfers(reduces_in_place(optim, memory))) {
    const DType dtype = wire(optim, section_of(optim, transfer));
    gathered = std::max(gathered, bytes_of(optim, transfer.chunk, dtype));
  }
  if (!reduces_in_place(optim, memory)) packed = gathered;
  if (!publishes_in_place(optim, memory)) {
    for (const Transfer& transfer : optim.plan.transfers(false)) {
      const DType dtype = optim.shared(section_of(optim, transfer));
      packed = std::max(packed, bytes_of(optim, transfer.chunk, dtype));
    }
  }
  const auto grow = [&](Memory& buffer, size_t size) -> Status {
    if (buffer.bytes() < size)
      buffer = ZERO_TRY(Memory::allocate(optim.comm->device(), size, "transfer buffers"));
    return Status();
  };
  ZERO_TRY(grow(memory.scratch, gathered));
  ZERO_TRY(grow(memory.send, packed));
  return grow(memory.receive, packed);
}

/// A parameter's values, which are rounded already, to the place where they travel, or from there.
void copy_values(DType param, DType travels, std::byte* values, std::byte* place, size_t count,
                 bool pack) {
  const KernelTable& kernels = kernel_table(best_isa());
  if (travels == param) {
    const size_t bytes = count * size_of(param);
    pack ? std::memcpy(place, values, bytes) : std::memcpy(values, place, bytes);
  } else if (pack) {
    kernels.narrow(travels)(reinterpret_cast<uint16_t*>(place),
                            reinterpret_cast<const float*>(values), count);
  } else {
    kernels.widen(travels)(reinterpret_cast<float*>(values),
                           reinterpret_cast<const uint16_t*>(place), count);
  }
}

/// What a transfer reads and writes at the least: this rank's buffer once out and once in.
void count_moved(Optimizer& optim, const Transfer& transfer, DType dtype) {
  optim.counters.moved_bytes += 2 * static_cast<int64_t>(bytes_of(optim, transfer.chunk, dtype));
}

/// `count` gradients of a section, as they travel.
void convert(const Optimizer& optim, const Section& section, const void* from, std::byte* to,
             size_t count) {
  const KernelTable& kernels = kernel_table(best_isa());
  const DType travels = wire(optim, section);
  const Rounding rounding = optim.rounding_of(section);
  if (!rounding.any()) {
    if (travels == section.grad_dtype) {
      std::memcpy(to, from, count * size_of(travels));
    } else {
      kernels.reduction(travels, section.grad_dtype, Norm::none)(to, &from, 1, count);
    }
    return;
  }
  float values[kRounded];
  for (size_t done = 0; done < count; done += kRounded) {
    const size_t part = std::min(kRounded, count - done);
    const void* const at = static_cast<const std::byte*>(from) + done * size_of(section.grad_dtype);
    kernels.reduction(DType::f32, section.grad_dtype, Norm::none)(values, &at, 1, part);
    if (rounding.divisor != 1) scale(values, values, part, 1 / rounding.divisor);
    std::byte* const place = to + done * size_of(travels);
    if (travels == rounding.to) {
      kernels.narrow(rounding.to)(reinterpret_cast<uint16_t*>(place), values, part);
    } else {
      kernels.round(rounding.to)(reinterpret_cast<float*>(place), values, part);
    }
  }
}

/// This rank's gradients of a transfer, a chunk for each rank.
void pack_gradients(Optimizer& optim, const StepMemory& memory, const Transfer& transfer,
                    const std::vector<std::vector<Segment>>& segments) {
  const Section& section = section_of(optim, transfer);
  const size_t element = size_of(wire(optim, section));
  const FloatEnvironment environment;  // the engine's collective may have left another
  std::byte* const send = memory.send.data();
  std::memset(send, 0, bytes_of(optim, transfer.chunk, wire(optim, section)));
  for (size_t rank = 0; rank < segments.size(); rank++) {
    const int64_t chunk = static_cast<int64_t>(rank) * transfer.chunk;
    for_each_part(transfer, segments[rank], [&](int64_t at, const Segment& segment) {
      const std::byte* grad = memory.grads[static_cast<size_t>(segment.param)];
      if (grad == nullptr) return;
      const auto count = static_cast<size_t>(segment.count);
      convert(optim, section,
              grad + static_cast<size_t>(segment.first) * size_of(section.grad_dtype),
              send + static_cast<size_t>(chunk + at) * element, count);
      optim.counters.copied_bytes += static_cast<int64_t>(count * element);
    });
  }
}

/// This rank's own gradients of what it owns, as if they were the sums.
void take_own(Optimizer& optim, const StepMemory& memory, std::byte* sums) {
  const FloatEnvironment environment;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    const std::byte* grad = memory.grads[static_cast<size_t>(segment.param)];
    std::byte* const to = sums + section.sum_at(segment.share);
    const auto count = static_cast<size_t>(segment.count);
    if (grad == nullptr) {
      std::memset(to, 0, count * size_of(section.sum()));
      continue;
    }
    const void* const from =
        grad + static_cast<size_t>(segment.first) * size_of(section.grad_dtype);
    kernel_table(best_isa())
        .reduction(section.sum(), section.grad_dtype, Norm::none)(to, &from, 1, count);
  }
}

}  // namespace

Result<NormSums> sum(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  os().reached("gather.begin");
  const bool apart = adds_apart(optim, memory);
  const bool adds = memory.adds && !apart;
  std::byte* const sums = (apart ? memory.incoming : memory.reduced).data();
  const auto conclude = [&] {
    return apart ? add_to_share(optim, memory, sums, p) : norm_of_share(optim, memory, p);
  };
  if (memory.none) {
    take_own(optim, memory, sums);
    return conclude();
  }
  const bool in_place = reduces_in_place(optim, memory);
  const auto segments = all_segments(optim);
  ZERO_TRY(call.vote("gather: buffers", make_room(optim, memory)));
  for (const Transfer& transfer : optim.plan.transfers(in_place)) {
    if (!changes(memory, transfer, segments)) continue;
    const Section& section = section_of(optim, transfer);
    const std::byte* send = memory.send.data();
    if (in_place) {
      send = memory.grads_base + section.grad_at(transfer.layout);
    } else {
      pack_gradients(optim, memory, transfer, segments);
    }
    std::byte* const to = sums + section.sum_at(transfer.share);
    const auto count = static_cast<size_t>(transfer.chunk);
    const float divisor = optim.rounding_of(section).divisor;
    const auto multiply = [&](float by) {
      auto* const divided = reinterpret_cast<float*>(to);
      if (divisor != 1) scale(divided, divided, count, by);
    };
    if (adds) multiply(1 / divisor);
    ZERO_TRY(optim.comm->reduce_scatter(call, {wire(optim, section), section.sum(), adds}, send, to,
                                        count, memory.scratch.data()));
    multiply(divisor);
    count_moved(optim, transfer, wire(optim, section));
    call.progress();
    os().reached("gather.transfer");
  }
  return conclude();
}

Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite) {
  os().reached("publish.begin");
  const auto segments = all_segments(optim);
  ZERO_TRY(call.vote("publish: buffers", make_room(optim, memory)));
  const auto copy = [&](const Transfer& transfer, int32_t rank, std::byte* chunk, bool pack) {
    const Section& section = section_of(optim, transfer);
    const DType travels = optim.shared(section);
    for_each_part(transfer, segments[static_cast<size_t>(rank)],
                  [&](int64_t at, const Segment& segment) {
                    const auto index = static_cast<size_t>(segment.param);
                    if (!memory.present.empty() && !memory.present[index]) return;
                    std::byte* const place = chunk + static_cast<size_t>(at) * size_of(travels);
                    const auto count = static_cast<size_t>(segment.count);
                    copy_values(section.dtype, travels, optim.params[index].element(segment.first),
                                place, count, pack);
                    optim.counters.copied_bytes += static_cast<int64_t>(count * size_of(travels));
                  });
  };
  const int32_t own = optim.comm->rank();
  const bool in_place = publishes_in_place(optim, memory);
  for (const Transfer& transfer : optim.plan.transfers(in_place)) {
    if (!changes(memory, transfer, segments)) continue;
    const Section& section = section_of(optim, transfer);
    const auto bytes = static_cast<size_t>(transfer.chunk) * size_of(optim.shared(section));
    if (in_place) {
      std::byte* const recv = memory.data_base + section.data_at(transfer.layout);
      ZERO_TRY(optim.comm->all_gather(call, recv + static_cast<size_t>(own) * bytes, recv, bytes));
    } else {
      copy(transfer, own, memory.send.data(), true);
      ZERO_TRY(optim.comm->all_gather(call, memory.send.data(), memory.receive.data(), bytes));
      for (int32_t rank = 0; rank < optim.world(); rank++) {
        if (rank != own)
          copy(transfer, rank, memory.receive.data() + static_cast<size_t>(rank) * bytes, false);
      }
    }
    count_moved(optim, transfer, optim.shared(section));
    call.progress();
    os().reached("publish.transfer");
  }
  const std::vector<uint64_t> all = ZERO_TRY(call.exchange("publish", *nonfinite));
  *nonfinite = std::accumulate(all.begin(), all.end(), uint64_t{0});
  os().reached("publish.done");
  return Status();
}

}  // namespace zero::collective

namespace zero::direct {

NormSums sum(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  os().reached("gather.begin");
  NormSums record = reduce_share(call, optim, memory, p);
  os().reached("gather.reduced");
  return record;
}

Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite) {
  os().reached("publish.begin");
  if (memory.outbox_used) {
    ZERO_TRY(call.exchange("publish: owners have written", uint64_t{0}));
    for (const Pull& pull : memory.pulls) {
      std::memcpy(pull.to, pull.from, pull.bytes);
      optim.counters.copied_bytes += static_cast<int64_t>(pull.bytes);
    }
    os().reached("publish.pulled");
  }
  const std::vector<uint64_t> all = ZERO_TRY(call.exchange("publish", *nonfinite));
  *nonfinite = std::accumulate(all.begin(), all.end(), uint64_t{0});
  os().reached("publish.done");
  return Status();
}

}  // namespace zero::direct
