// SPDX-License-Identifier: Apache-2.0
#include "support/user_comm.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace zero::test {
namespace {

constexpr size_t kAreaBytes = 64u << 10;  // of a rank, in one round
constexpr int kMostGroups = 64;           // that are split from one engine in its lifetime
constexpr Code kLost = -77;               // a rank did not arrive

EngineSeat& seat_of(void* ctx) { return *static_cast<EngineSeat*>(ctx); }

Code started(void* ctx, const char* function) {
  const EngineSeat& seat = seat_of(ctx);
  return seat.before ? seat.before(function) : Code{ZERO_OK};
}

Code engine_exchange(void* ctx, const void* send, void* recv, size_t bytes) {
  const Code code = started(ctx, "exchange");
  if (code != ZERO_OK) return code;
  return seat_of(ctx).engine->exchange(seat_of(ctx), send, recv, bytes) ? ZERO_OK : kLost;
}

Code engine_all_gather(void* ctx, const void* send, void* recv, size_t bytes, void*) {
  const Code code = started(ctx, "all_gather");
  if (code != ZERO_OK) return code;
  return seat_of(ctx).engine->exchange(seat_of(ctx), send, recv, bytes) ? ZERO_OK : kLost;
}

Code engine_all_to_all(void* ctx, const void* send, void* recv, size_t bytes, void*) {
  const Code code = started(ctx, "all_to_all");
  if (code != ZERO_OK) return code;
  return seat_of(ctx).engine->all_to_all(seat_of(ctx), send, recv, bytes) ? ZERO_OK : kLost;
}

Code engine_reduce_scatter(void* ctx, const void* send, void* recv, size_t count, int32_t dtype,
                           void*) {
  const Code code = started(ctx, "reduce_scatter");
  if (code != ZERO_OK) return code;
  if (dtype != ZERO_FLOAT32) return -78;
  const EngineSeat& seat = seat_of(ctx);
  const size_t world = static_cast<size_t>(seat.world);
  std::vector<float> all(count * world);
  if (!seat.engine->all_to_all(seat, send, all.data(), count * sizeof(float))) return kLost;
  float* const out = static_cast<float*>(recv);
  for (size_t i = 0; i < count; ++i) {
    float sum = all[(world - 1) * count + i];
    for (size_t r = world - 1; r-- > 0;) sum += all[r * count + i];
    out[i] = sum;
  }
  return ZERO_OK;
}

Code engine_split(void* ctx, int32_t color, int32_t rank, int32_t world, void** child) {
  const Code code = started(ctx, "split");
  if (code != ZERO_OK) return code;
  EngineSeat* made = nullptr;
  if (!seat_of(ctx).engine->split(seat_of(ctx), color, rank, world, &made)) return kLost;
  *child = made;
  return ZERO_OK;
}

void engine_free(void* ctx) { seat_of(ctx).engine->freed(&seat_of(ctx)); }

}  // namespace

struct Engine::Group {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> round;
  alignas(64) std::byte areas[kMostRanks][kAreaBytes];
};

struct Engine::Shared {
  std::atomic<int> groups;
  std::atomic<int> seats;
  Group group[kMostGroups];
};

Engine::Engine(int32_t world)
    : world_(world), memory_(sizeof(Shared)), shared_(memory_.as<Shared>()) {
  if (world > kMostRanks) std::abort();
  shared_->groups = 1;
}

zero_comm_functions as_public(const UserFunctions& functions) {
  zero_comm_functions out;
  ZERO_INIT(out);
  out.exchange = functions.exchange;
  out.all_gather = functions.all_gather;
  out.all_to_all = functions.all_to_all;
  out.reduce_scatter = functions.reduce_scatter;
  out.split = functions.split;
  out.free = functions.free;
  return out;
}

UserFunctions Engine::functions(bool sums) {
  UserFunctions functions;
  functions.exchange = engine_exchange;
  functions.all_gather = engine_all_gather;
  if (sums) functions.reduce_scatter = engine_reduce_scatter;
  if (!sums) functions.all_to_all = engine_all_to_all;
  functions.split = engine_split;
  functions.free = engine_free;
  return functions;
}

EngineSeat* Engine::seat(int32_t rank) {
  ++shared_->seats;
  return new EngineSeat{this, 0, rank, world_, nullptr};
}

void Engine::freed(EngineSeat* seat) {
  --shared_->seats;
  delete seat;
}

int Engine::seats() const { return shared_->seats; }

bool Engine::barrier(const EngineSeat& seat) {
  Group& group = shared_->group[seat.group];
  const uint32_t round = group.round.load();
  if (group.arrived.fetch_add(1) + 1 == static_cast<uint32_t>(seat.world)) {
    group.arrived.store(0);
    group.round.store(round + 1);
    return true;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (group.round.load() == round) {
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

bool Engine::exchange(const EngineSeat& seat, const void* send, void* recv, size_t bytes) {
  Group& group = shared_->group[seat.group];
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, kAreaBytes);
    memcpy(group.areas[seat.rank], from + done, part);
    if (!barrier(seat)) return false;
    for (int32_t r = 0; r < seat.world; ++r)
      memcpy(to + static_cast<size_t>(r) * bytes + done, group.areas[r], part);
    if (!barrier(seat)) return false;
    done += part;
  }
  return true;
}

bool Engine::all_to_all(const EngineSeat& seat, const void* send, void* recv, size_t bytes) {
  const auto world = static_cast<size_t>(seat.world);
  std::vector<std::byte> all(world * world * bytes);
  if (!exchange(seat, send, all.data(), world * bytes)) return false;
  for (size_t r = 0; r < world; ++r)
    memcpy(static_cast<std::byte*>(recv) + r * bytes,
           all.data() + (r * world + static_cast<size_t>(seat.rank)) * bytes, bytes);
  return true;
}

bool Engine::split(const EngineSeat& seat, int32_t color, int32_t rank, int32_t world,
                   EngineSeat** child) {
  std::vector<int32_t> colors(static_cast<size_t>(seat.world));
  if (!exchange(seat, &color, colors.data(), sizeof color)) return false;
  const std::set<int32_t> distinct(colors.begin(), colors.end());
  const auto count = static_cast<int>(distinct.size());
  const int first = seat.rank == 0 ? shared_->groups.fetch_add(count) : 0;
  std::vector<int> firsts(static_cast<size_t>(seat.world));
  if (!exchange(seat, &first, firsts.data(), sizeof first)) return false;
  if (firsts[0] + count > kMostGroups) std::abort();
  if (color < 0) return true;
  const auto index = static_cast<int>(std::distance(distinct.begin(), distinct.find(color)));
  ++shared_->seats;
  *child = new EngineSeat{this, firsts[0] + index, rank, world, nullptr};
  return true;
}

}  // namespace zero::test
