// SPDX-License-Identifier: Apache-2.0
// Broadcasts parameters and buffers. If several ranks hold a tensor in the same shared memory, one
// of them writes it, or none if it is also the root's memory.
#include "step/broadcast.h"

#include <cstring>
#include <new>

#include "base/os.h"
#include "base/refusals.h"
#include "step/enter.h"
#include "step/one_copy.h"
#include "step/seal.h"
#include "step/tables.h"
#include "step/walk.h"

namespace zero {
namespace {

Status check_root(const Optimizer& optim, int32_t root, int32_t lowest) {
  if (root >= lowest && root < optim.world()) return Status();
  return bad_argument("root ", root, " is not a rank in a world of ", optim.world());
}

Status check_broadcast(const Optimizer& optim, int32_t root) {
  ZERO_TRY(optim.check_params());
  ZERO_TRY(optim.check_open());
  return check_root(optim, root, ZERO_ROOT_NONE);
}

Status check_sharing(const Optimizer& optim, int32_t flags) {
  if ((flags & ~ZERO_SHARE_KEEP_MASTERS) != 0)
    return bad_argument("share flags ", flags, " are unknown");
  ZERO_TRY(optim.check_params());
  if (optim.announces()) return optim.check_open();
  return optim.check_loaded();
}

Result<std::vector<Writers>> writers_of_all(const Optimizer& optim, const StepMemory& memory,
                                            int32_t root) {
  std::vector<Writers> writers(optim.params.size());
  std::vector<Location> locations(static_cast<size_t>(optim.world()));
  for (size_t i = 0; i < writers.size() && optim.comm->direct(); i++) {
    const auto param = static_cast<int64_t>(i);
    if (memory.params_alike) {
      writers[i].any = !in_one_copy(*optim.comm, memory.placements[i].data);
      continue;
    }
    for (int32_t rank = 0; rank < optim.world(); rank++) {
      Location& at = locations[static_cast<size_t>(rank)];
      at = ZERO_TRY(placement_of(optim, memory, rank, param)).data;
      ZERO_TRY(check_same_place(optim, param, memory.placements[i].data, rank, at));
    }
    writers[i] = find_writers(*optim.comm, locations, root);
  }
  return writers;
}

}  // namespace

Status copy_params(Call& call, Optimizer& optim, int32_t root) {
  optim.comm->steps.deciding = true;
  const std::vector<Writers> writers =
      ZERO_TRY(call.vote("placements", writers_of_all(optim, step_memory(optim), root)));
  Publishing publishing(*optim.comm);
  for (size_t i = 0; i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    if (!writers[i].any || param.count == 0) continue;
    os().reached("broadcast.param");
    std::byte* const to = writers[i].mine ? param.data : nullptr;
    ZERO_TRY(call.broadcast(param.name, {to, param.bytes()}, root));
  }
  // A rank that did not write must not read before the writer has written.
  ZERO_TRY(call.vote("written", Status()));
  publishing.done();
  return Status();
}

Status broadcast_params(Call& call, Optimizer& optim, int32_t root) {
  ZERO_TRY(enter(call, optim,
                 {.local = check_broadcast(optim, root), .args = text("root ", root, "\n")}));
  if (root != ZERO_ROOT_NONE && optim.world() > 1)
    ZERO_TRY(make_walk(call, optim)->broadcast_params(root));
  ZERO_TRY(retake_masters(call, optim));
  optim.alike_params = optim.sealed_params();
  return Status();
}

Status share_by_hand(Call& call, Optimizer& optim, int32_t flags) {
  ZERO_TRY(
      enter(call, optim,
            {.local = check_sharing(optim, flags), .args = text("share flags ", flags, "\n")}));
  optim.phase = Phase::open;  // sharing discards the locations of reduced gradients
  Publishing publishing(*optim.comm);
  if ((flags & ZERO_SHARE_KEEP_MASTERS) == 0)  // before sharing rounds the parameters
    ZERO_TRY(take_masters(call, optim, 0));
  Status status = make_walk(call, optim)->share_params();
  if (!status.ok()) return status;
  publishing.done();
  optim.alike_params = optim.sealed_params();
  return status;
}

// ---- Buffers. A model may have hundreds of small buffers, which are packed and sent together. A
// buffer that is too large is sent by itself, without a copy.

namespace {

constexpr size_t kBatchBytes = 256 << 10;

Status check_buffers(const Optimizer& optim, int32_t root) {
  if (optim.buffers.empty()) return wrong_state("no buffers are registered");
  return check_root(optim, root, 0);
}

/// Finds out where every buffer is on every rank. Addresses of buffers never change, so the ranks
/// exchange them only after a registration.
Status gather_places(Call& call, const Optimizer& optim, StepMemory& memory) {
  const auto world = static_cast<size_t>(optim.world());
  if (memory.buffer_places.size() == optim.buffers.size() * world) return {};
  std::vector<Location> own;
  for (const Buffer& buffer : optim.buffers)
    own.push_back(buffer.count == 0 ? Location{} : optim.comm->locate(buffer.data, buffer.bytes()));
  const std::string_view mine(reinterpret_cast<const char*>(own.data()),
                              own.size() * sizeof(Location));
  const std::vector<std::string> all = ZERO_TRY(call.gather("buffer locations", mine));
  std::vector<Location> places(own.size() * world);
  for (size_t rank = 0; rank < world; rank++) {
    if (all[rank].size() != mine.size())
      return call.abort({ZERO_ERR_DESYNC, "the ranks sent different numbers of buffer locations"},
                        "buffer locations");
    for (size_t i = 0; i < own.size(); i++)
      std::memcpy(&places[i * world + rank], all[rank].data() + i * sizeof(Location),
                  sizeof(Location));
  }
  memory.buffer_places = std::move(places);
  return {};
}

/// A buffer that is sent, and whether this rank stores what it receives.
struct Moving {
  const Buffer* buffer;
  bool mine;
};

std::vector<Moving> find_moving(const Optimizer& optim, const StepMemory& memory, int32_t root) {
  const auto world = static_cast<size_t>(optim.world());
  std::vector<Moving> moving;
  for (size_t i = 0; i < optim.buffers.size(); i++) {
    if (optim.buffers[i].count == 0) continue;
    Writers writers;
    if (optim.comm->direct())
      writers = find_writers(*optim.comm, std::span(memory.buffer_places).subspan(i * world, world),
                             root);
    if (writers.any) moving.push_back({&optim.buffers[i], writers.mine});
  }
  return moving;
}

/// Broadcasts the buffers of one batch, packed one after the other.
Status pass_packed(Call& call, std::span<const Moving> batch, std::byte* room, size_t bytes,
                   int32_t root) {
  size_t at = 0;
  for (const Moving& one : batch) {
    if (call.rank() == root) std::memcpy(room + at, one.buffer->data, one.buffer->bytes());
    at += one.buffer->bytes();
  }
  ZERO_TRY(call.broadcast("buffers", {room, bytes}, root));
  at = 0;
  for (const Moving& one : batch) {
    if (call.rank() != root && one.mine)
      std::memcpy(one.buffer->data, room + at, one.buffer->bytes());
    at += one.buffer->bytes();
  }
  return {};
}

/// Broadcasts a buffer that is a batch by itself. On comms that are not direct, `one.mine` is true,
/// because null is not allowed there.
Status pass_whole(Call& call, const Moving& one, int32_t root) {
  std::byte* const memory = one.mine ? one.buffer->data : nullptr;
  return call.broadcast("buffer", {memory, one.buffer->bytes()}, root);
}

}  // namespace

Status make_batch(StepMemory& memory) {
  if (memory.batch == nullptr) memory.batch.reset(new (std::nothrow) std::byte[kBatchBytes]);
  if (memory.batch != nullptr) return {};
  return {ZERO_ERR_MEMORY, text("no memory for ", kBatchBytes, " bytes of a batch of buffers")};
}

Status copy_buffers(Call& call, Optimizer& optim, int32_t root) {
  if (optim.world() == 1 || optim.buffers.empty()) return {};
  StepMemory& memory = step_memory(optim);
  os().reached("buffers.begin");
  if (optim.comm->direct()) ZERO_TRY(gather_places(call, optim, memory));
  const std::vector<Moving> moving = find_moving(optim, memory, root);
  for (size_t begin = 0, end = 0; begin < moving.size(); begin = end) {
    size_t bytes = 0;
    do {
      bytes += moving[end++].buffer->bytes();
    } while (end < moving.size() && bytes + moving[end].buffer->bytes() <= kBatchBytes);
    ZERO_TRY(end - begin == 1 ? pass_whole(call, moving[begin], root)
                              : pass_packed(call, std::span(moving).subspan(begin, end - begin),
                                            memory.batch.get(), bytes, root));
    os().reached("buffers.batch");
  }
  // A rank that did not write must not read before the writer has written.
  return call.vote("buffers written", Status());
}

Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root) {
  Status local = check_buffers(optim, root);
  if (local.ok()) local = make_batch(step_memory(optim));
  ZERO_TRY(enter(call, optim, {.local = std::move(local), .args = text("root ", root, "\n")}));
  return make_walk(call, optim)->broadcast_buffers(root);
}

}  // namespace zero
