// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/os.h"
#include "step/apply.h"
#include "step/walks.h"

namespace zero::collective {
namespace {

/// Every rank's segments, in rank order.
std::vector<std::vector<Segment>> all_segments(const Optimizer& optim) {
  std::vector<std::vector<Segment>> all;
  for (int32_t rank = 0; rank < optim.world(); rank++) all.push_back(optim.plan.segments(rank));
  return all;
}

/// Call part(chunk position, segment) for the parts of `transfer` that `rank` owns.
template <class Part>
void for_each_part(const Transfer& transfer, const std::vector<Segment>& segments,
                   const Part& part) {
  for (const Segment& segment : Plan::within(segments, transfer.share, transfer.chunk)) {
    part(segment.share - transfer.share, segment);
  }
}

int64_t longest_chunk(const Optimizer& optim, bool in_place) {
  int64_t longest = 0;
  for (const Transfer& transfer : optim.plan.transfers(in_place))
    longest = std::max(longest, transfer.chunk);
  return longest;
}

/// Buffers for the whole step, made before the vote: after it nothing local may fail.
Status make_room(const Optimizer& optim, StepMemory& memory) {
  const auto bytes = [&](int64_t chunk) {
    return static_cast<size_t>(chunk) * static_cast<size_t>(optim.world()) * sizeof(float);
  };
  const size_t summed = bytes(longest_chunk(optim, memory.grads_in_place));
  const bool packs = !memory.grads_in_place || !memory.data_in_place;
  const size_t packed = packs ? bytes(longest_chunk(optim, false)) : 0;
  const auto grow = [](HostMemory& buffer, size_t size) -> Status {
    if (buffer.bytes() < size) buffer = ZERO_TRY(HostMemory::allocate(size, "transfer buffers"));
    return Status();
  };
  ZERO_TRY(grow(memory.scratch, summed));
  ZERO_TRY(grow(memory.send, packed));
  return grow(memory.receive, packed);
}

/// What a transfer reads and writes at the least: this rank's buffer once out and once in.
void count_moved(Optimizer& optim, const Transfer& transfer) {
  optim.counters.moved_bytes +=
      2 * transfer.chunk * optim.world() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Result<NormRecord> gather(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  os().reached("gather.begin");
  const std::vector<Transfer> transfers = optim.plan.transfers(memory.grads_in_place);
  const auto segments = all_segments(optim);
  ZERO_TRY(call.vote("gather: buffers", make_room(optim, memory)));
  const auto pack = [&](const Transfer& transfer) {
    float* send = memory.send.floats();
    std::memset(send, 0, static_cast<size_t>(transfer.chunk * optim.world()) * sizeof(float));
    for (size_t rank = 0; rank < segments.size(); rank++) {
      float* chunk = send + static_cast<int64_t>(rank) * transfer.chunk;
      for_each_part(transfer, segments[rank], [&](int64_t at, const Segment& segment) {
        const float* grad = memory.grads[static_cast<size_t>(segment.param)];
        if (grad == nullptr) return;
        const size_t bytes = static_cast<size_t>(segment.count) * sizeof(float);
        std::memcpy(chunk + at, grad + segment.first, bytes);
        optim.counters.copied_bytes += static_cast<int64_t>(bytes);
      });
    }
    return send;
  };
  for (const Transfer& transfer : transfers) {
    const float* send =
        memory.grads_in_place ? memory.grads_base + transfer.layout : pack(transfer);
    ZERO_TRY(optim.comm->reduce_scatter(call, send, memory.reduced.floats() + transfer.share,
                                        static_cast<size_t>(transfer.chunk),
                                        memory.scratch.floats()));
    count_moved(optim, transfer);
    call.progress();
    os().reached("gather.transfer");
  }
  return norm_of_share(optim, memory, p);
}

Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite) {
  os().reached("publish.begin");
  const std::vector<Transfer> transfers = optim.plan.transfers(memory.data_in_place);
  const auto segments = all_segments(optim);
  ZERO_TRY(call.vote("publish: buffers", make_room(optim, memory)));
  const auto copy = [&](const Transfer& transfer, int32_t rank, float* chunk, bool pack) {
    for_each_part(
        transfer, segments[static_cast<size_t>(rank)], [&](int64_t at, const Segment& segment) {
          float* param = optim.params[static_cast<size_t>(segment.param)].data + segment.first;
          const size_t bytes = static_cast<size_t>(segment.count) * sizeof(float);
          pack ? std::memcpy(chunk + at, param, bytes) : std::memcpy(param, chunk + at, bytes);
          optim.counters.copied_bytes += static_cast<int64_t>(bytes);
        });
  };
  const int32_t own = optim.comm->rank();
  for (const Transfer& transfer : transfers) {
    const auto bytes = static_cast<size_t>(transfer.chunk) * sizeof(float);
    if (memory.data_in_place) {
      float* recv = memory.data_base + transfer.layout;
      ZERO_TRY(optim.comm->all_gather(call, recv + own * transfer.chunk, recv, bytes));
    } else {
      copy(transfer, own, memory.send.floats(), true);
      ZERO_TRY(optim.comm->all_gather(call, memory.send.data(), memory.receive.data(), bytes));
      for (int32_t rank = 0; rank < optim.world(); rank++) {
        if (rank != own)
          copy(transfer, rank, memory.receive.floats() + rank * transfer.chunk, false);
      }
    }
    count_moved(optim, transfer);
    call.progress();
    os().reached("publish.transfer");
  }
  const std::vector<uint64_t> all = ZERO_TRY(call.exchange("publish", *nonfinite));
  *nonfinite = std::accumulate(all.begin(), all.end(), uint64_t{0});
  os().reached("publish.done");
  return Status();
}

}  // namespace zero::collective
