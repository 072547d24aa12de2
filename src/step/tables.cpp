// SPDX-License-Identifier: Apache-2.0
#include "step/tables.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/hash.h"
#include "step/queued/queue.h"

namespace zero {
namespace {

uint64_t data_at(const Plan& plan, int64_t param) {
  return static_cast<uint64_t>(plan.section_of(param).data_at(plan.layout(param)));
}

uint64_t grad_at(const Plan& plan, int64_t param) {
  return static_cast<uint64_t>(plan.section_of(param).grad_at(plan.layout(param)));
}

/// Returns the offset of a Ready in a table. It follows the placements of all sealed parameters.
size_t ready_at(const Optimizer& optim, int64_t param) {
  return optim.sealed_params() * sizeof(Placement) + static_cast<size_t>(param) * sizeof(Ready);
}

/// Returns the address of the row at offset `at` of one rank's table.
template <class Row>
Result<Row*> row_on(const Optimizer& optim, const StepMemory& memory, int32_t rank, size_t at) {
  std::byte* const row =
      rank == optim.comm->rank()
          ? memory.tables->data() + at
          : ZERO_TRY(optim.comm->resolve(rank, {memory.tables->number(), 0, at}, sizeof(Row)));
  return reinterpret_cast<Row*>(row);
}

/// Returns the start of a layout if its tensors are laid out as in the plan, and null otherwise.
/// The conditions are that the address of every used parameter is at offset place() from the start,
/// that one arena of this comm contains all `layout_bytes`, and that libzero may use the padding.
template <class Used, class Address, class Place>
std::byte* layout_base(const Optimizer& optim, int64_t layout_bytes, const Used& used,
                       const Address& address, const Place& place) {
  if (!optim.plan.in_place()) return nullptr;
  std::byte* base = nullptr;
  for (size_t i = 0; i < optim.sealed_params(); i++) {
    if (optim.params[i].count == 0 || !used(i)) continue;
    std::byte* at = address(i);
    const bool gap = optim.params[i].count % kAlignment != 0;
    if (at == nullptr || (gap && (optim.params[i].flags & ZERO_PARAM_PADDED) == 0)) return nullptr;
    std::byte* from = at - place(optim.plan, static_cast<int64_t>(i));
    if (base != nullptr && from != base) return nullptr;
    base = from;
  }
  if (base == nullptr) return nullptr;
  bool whole = false;
  const std::shared_ptr<Arena> arena =
      find_arena(base, static_cast<size_t>(layout_bytes), optim.comm.get(), &whole);
  return arena != nullptr && whole && arena->comm() == optim.comm ? base : nullptr;
}

/// Finds the locations of gradients and parameters before any gradients are staged.
Placed locate(const Optimizer& optim, const StepMemory& memory) {
  const Comm& comm = *optim.comm;
  Placed found;
  found.placements.resize(optim.params.size());
  std::vector<std::shared_ptr<Arena>>& held = found.held;
  /// Holds the arena of a location. Returns true if it has one copy for all ranks.
  const auto hold = [&](const Location& location) {
    std::shared_ptr<Arena> arena = comm.arena(location);
    const bool one_copy = arena != nullptr && arena->one_copy();
    if (arena != nullptr && (held.empty() || held.back() != arena) &&
        std::ranges::find(held, arena) == held.end()) {
      held.push_back(std::move(arena));
    }
    return one_copy;
  };
  for (size_t i = 0; i < found.placements.size(); i++) {
    const Param& param = optim.params[i];
    if (param.count == 0) continue;
    auto& [data, grad] = found.placements[i];
    data = comm.locate(param.data, param.bytes());
    if (hold(data)) {
      const uint64_t told[] = {found.one_copy, i, data.arena, data.offset};
      found.one_copy = hash64(std::as_bytes(std::span(told)));
    }
    if (data.arena == 0) found.foreign_data.push_back(static_cast<int64_t>(i));
    if (i >= memory.grads.size() || memory.grads[i] == nullptr) continue;
    grad = comm.locate(memory.grads[i], param.grad_bytes());
    found.shares_grads = hold(grad) || found.shares_grads;
    if (grad.arena == 0) found.foreign_grads.push_back(static_cast<int64_t>(i));
  }
  found.shares_grads = found.shares_grads && !reduces_alone(optim, memory);
  return found;
}

/// Returns true if other ranks read this rank's gradients, either in place or in staging.
bool shows_grads(const Optimizer& optim, const StepMemory& memory) {
  return optim.comm->direct() && !reduces_alone(optim, memory);
}

/// Writes placements to the table that other ranks read. Returns false if they have not changed.
bool tell(const StepMemory& memory, const Placed& now) {
  if (memory.tables == nullptr || now.placements.empty()) return true;
  auto* const table = reinterpret_cast<Placement*>(memory.tables->data());
  if (memory.version != 0 && std::equal(now.placements.begin(), now.placements.end(), table))
    return false;
  std::ranges::copy(now.placements, table);
  return true;
}

}  // namespace

bool wants_staging(const Optimizer& optim, const StepMemory& memory) {
  return shows_grads(optim, memory) && !locate(optim, memory).foreign_grads.empty();
}

bool wants_outbox(const Optimizer& optim, const StepMemory& memory) {
  return optim.comm->direct() && optim.world() > 1 && !locate(optim, memory).foreign_data.empty();
}

bool place(Optimizer& optim, StepMemory& memory) {
  const PlacedKey key = {.addresses = optim.addresses,
                         .grads = memory.grads_number,
                         .staging = memory.staging == nullptr ? 0 : memory.staging->number(),
                         .none = memory.none};
  if (memory.placed_from == key) return true;
  Placed now = locate(optim, memory);
  now.placed_from = key;
  if (shows_grads(optim, memory)) {
    if (!now.foreign_grads.empty() && memory.staging == nullptr) return false;
    for (const int64_t param : now.foreign_grads)
      now.placements[static_cast<size_t>(param)].grad = staging_of(optim, memory, param);
  }
  if (tell(memory, now)) memory.version++;
  if (!optim.comm->direct()) {
    if (memory.grads.size() == optim.params.size())
      now.grads_base = layout_base(
          optim, optim.plan.end().grad_bytes, [&](size_t i) { return optim.trains(i); },
          [&](size_t i) { return memory.grads[i]; }, grad_at);
    now.data_base = layout_base(
        optim, optim.plan.end().data_bytes, [](size_t) { return true; },
        [&](size_t i) { return optim.params[i].data; }, data_at);
    if (const QueuedPlane* const plane = optim.comm->queued())
      now.layouts = {plane->mappable(now.grads_base), plane->mappable(now.data_base)};
  }
  std::swap(static_cast<Placed&>(memory), now);
  memory.places_made++;
  if (memory.queue != nullptr) memory.queue->keep(now.held);
  return true;
}

Location staging_of(const Optimizer& optim, const StepMemory& memory, int64_t param) {
  return {memory.staging->number(), 0, grad_at(optim.plan, param)};
}

size_t table_bytes(size_t params) {
  return params * (sizeof(Placement) + sizeof(Ready)) + sizeof(Stored);
}

Ready* own_ready(const Optimizer& optim, const StepMemory& memory, int64_t param) {
  return reinterpret_cast<Ready*>(memory.tables->data() + ready_at(optim, param));
}

Result<Ready> ready_on(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                       int64_t param) {
  Ready* const at = ZERO_TRY(row_on<Ready>(optim, memory, rank, ready_at(optim, param)));
  Ready ready;
  ready.round = std::atomic_ref(at->round).load(std::memory_order_acquire);
  ready.arena = std::atomic_ref(at->arena).load(std::memory_order_relaxed);
  ready.offset = std::atomic_ref(at->offset).load(std::memory_order_relaxed);
  return ready;
}

Result<Stored*> stored_of(const Optimizer& optim, const StepMemory& memory, int32_t rank) {
  const auto behind = static_cast<int64_t>(optim.sealed_params());
  return row_on<Stored>(optim, memory, rank, ready_at(optim, behind));
}

Result<Placement> placement_of(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                               int64_t param) {
  const auto index = static_cast<size_t>(param);
  if (rank == optim.comm->rank()) return memory.placements[index];  // there may be no tables
  return *ZERO_TRY(row_on<Placement>(optim, memory, rank, index * sizeof(Placement)));
}

}  // namespace zero
