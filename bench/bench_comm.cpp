// SPDX-License-Identifier: Apache-2.0
#include "bench_comm.h"

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

struct Context {
  const Rank& rank;
  const BounceMemory& memory;

  void meet() const { rank.board->comm_barrier.wait(rank.world); }
};

zero_status all_gather(void* ctx, const void* send, void* recv, size_t bytes, void*) {
  const auto& self = *static_cast<Context*>(ctx);
  const auto* from = static_cast<const unsigned char*>(send);
  auto* to = static_cast<unsigned char*>(recv);
  for (size_t at = 0; at < bytes; at += BounceMemory::kSlotBytes) {
    const size_t piece = std::min(BounceMemory::kSlotBytes, bytes - at);
    std::memcpy(self.memory.slot(self.rank.rank), from + at, piece);
    self.meet();
    for (int peer = 0; peer < self.rank.world; peer++) {
      unsigned char* place = to + bytes * static_cast<size_t>(peer) + at;
      if (peer != self.rank.rank) {
        std::memcpy(place, self.memory.slot(peer), piece);
      } else if (place != from + at) {
        std::memcpy(place, from + at, piece);
      }
    }
    self.meet();
  }
  return ZERO_OK;
}

zero_status exchange(void* ctx, const void* send, void* recv, size_t bytes) {
  return all_gather(ctx, send, recv, bytes, nullptr);
}

zero_status all_to_all(void* ctx, const void* send, void* recv, size_t bytes, void*) {
  const auto& self = *static_cast<Context*>(ctx);
  const auto* from = static_cast<const unsigned char*>(send);
  auto* to = static_cast<unsigned char*>(recv);
  const int world = self.rank.world, me = self.rank.rank;
  const size_t room = BounceMemory::kSlotBytes / static_cast<size_t>(world);
  for (size_t at = 0; at < bytes; at += room) {
    const size_t piece = std::min(room, bytes - at);
    for (int peer = 0; peer < world; peer++) {
      const auto place = static_cast<size_t>(peer);
      if (peer != me)
        std::memcpy(self.memory.slot(me) + room * place, from + bytes * place + at, piece);
    }
    self.meet();
    for (int peer = 0; peer < world; peer++) {
      const unsigned char* source = peer == me
                                        ? from + bytes * static_cast<size_t>(me) + at
                                        : self.memory.slot(peer) + room * static_cast<size_t>(me);
      std::memcpy(to + bytes * static_cast<size_t>(peer) + at, source, piece);
    }
    self.meet();
  }
  return ZERO_OK;
}

void release(void* ctx) { delete static_cast<Context*>(ctx); }

}  // namespace

zero_status create_bench_comm(zero_comm** out, const Rank& rank, const BounceMemory& memory) {
  zero_comm_functions functions;
  ZERO_INIT(functions);
  functions.exchange = exchange;
  functions.all_gather = all_gather;
  functions.all_to_all = all_to_all;
  functions.free = release;
  return zero_comm_create_user(out, &functions, new Context{rank, memory}, rank.rank, rank.world,
                               nullptr);
}

}  // namespace bench
