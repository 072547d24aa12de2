// SPDX-License-Identifier: Apache-2.0
#include "step/tables.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/text.h"
#include "optim/tensor_checks.h"
#include "step/backward.h"
#include "step/queued/in_place.h"
#include "step/queued/queue.h"

namespace zero {
namespace {

/// Gradients given per call are checked like registered ones: aligned, and no two overlap, nor a
/// parameter.
Status check_memory(const Optimizer& optim, std::span<std::byte* const> given) {
  struct Interval {
    uintptr_t begin, end;
    const char* what;
    const std::string* name;
  };
  std::vector<Interval> intervals;
  intervals.reserve(2 * given.size() + optim.buffers.size());
  for (const Buffer& buffer : optim.buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
    if (buffer.count > 0)
      intervals.push_back({begin, begin + buffer.bytes(), "buffer '", &buffer.name});
  }
  for (size_t i = 0; i < given.size(); i++) {
    const Param& param = optim.params[i];
    const auto begin = reinterpret_cast<uintptr_t>(given[i]);
    ZERO_TRY(check_aligned(given[i], param.grad_dtype,
                           [&] { return text("the gradient of parameter '", param.name, "'"); }));
    if (param.count == 0) continue;
    if (begin != 0)
      intervals.push_back(
          {begin, begin + param.grad_bytes(), "the gradient of parameter '", &param.name});
    const auto data = reinterpret_cast<uintptr_t>(param.data);
    if (data != 0) intervals.push_back({data, data + param.bytes(), "parameter '", &param.name});
  }
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (size_t k = 1; k < intervals.size(); k++) {
    const Interval& a = intervals[k - 1];
    const Interval& b = intervals[k];
    if (a.end <= b.begin) continue;
    return Status(ZERO_ERR_ARGUMENT, text("the memory of ", a.what, *a.name, "' overlaps that of ",
                                          b.what, *b.name, "'"));
  }
  return Status();
}

Status check_count(const Optimizer& optim, void* const* given, size_t count) {
  const size_t params = optim.params.size();
  if (given == nullptr && count != 0) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(count, " gradient pointers are announced, but grads is NULL"));
  }
  if (given != nullptr && count != params) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(count, " gradient pointers given for ", params, " registered parameters"));
  }
  return Status();
}

/// Of gradients that are not the registered ones, which were looked at when they came: on the
/// device, and whole.
Status check_places(const Optimizer& optim, std::span<std::byte* const> given) {
  for (size_t i = 0; i < given.size(); i++) {
    const Param& param = optim.params[i];
    if (given[i] == param.grad) continue;
    const auto name = [&] { return text("the gradient of parameter '", param.name, "'"); };
    ZERO_TRY(check_tensor_memory(*optim.comm, name, given[i], param.grad_bytes()));
  }
  return Status();
}

uint64_t data_at(const Plan& plan, int64_t param) {
  return static_cast<uint64_t>(plan.section_of(param).data_at(plan.layout(param)));
}

uint64_t grad_at(const Plan& plan, int64_t param) {
  return static_cast<uint64_t>(plan.section_of(param).grad_at(plan.layout(param)));
}

/// Behind the placements of all that is sealed.
size_t ready_at(const Optimizer& optim, int64_t param) {
  return optim.sealed_params() * sizeof(Placement) + static_cast<size_t>(param) * sizeof(Ready);
}

/// Where the layout of `layout_bytes` begins if the `address` of every parameter that is `used` is
/// `place` bytes from there, in one arena of this comm that holds the whole layout, with padding
/// that is libzero's; else null.
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

}  // namespace

Status check_given(const Optimizer& optim, void* const* given, size_t count) {
  ZERO_TRY(check_count(optim, given, count));
  std::vector<std::byte*> grads(count, nullptr);
  for (size_t i = 0; i < count; i++)
    if (optim.trains(i)) grads[i] = static_cast<std::byte*>(given[i]);
  return check_memory(optim, grads);
}

Status take_grads(Optimizer& optim, StepMemory& memory, void* const* given, size_t count) {
  const size_t params = optim.params.size();
  ZERO_TRY(check_count(optim, given, count));
  const bool reducing = optim.announces();
  if (!reducing && !memory.grads_announced && memory.grads_from_addresses == optim.addresses &&
      std::equal(given, given + count, memory.given.begin(), memory.given.end())) {
    return Status();
  }
  std::vector<std::byte*> grads(params, nullptr);
  bool all_present = true;
  for (size_t i = 0; i < params; i++) {
    if (!optim.trains(i)) continue;
    const bool announced = memory.backward != nullptr && memory.backward->announced(i);
    grads[i] = announced          ? memory.backward->grad(i)
               : given == nullptr ? optim.params[i].grad
                                  : static_cast<std::byte*>(given[i]);
    all_present = all_present && grads[i] != nullptr;
  }
  if (given != nullptr || reducing) ZERO_TRY(check_memory(optim, grads));
  ZERO_TRY(check_places(optim, grads));
  if (reducing && grads == memory.grads && memory.grads_from_addresses == optim.addresses)
    return Status();
  memory.grads = std::move(grads);
  memory.grads_announced = reducing;
  memory.all_present = all_present;
  memory.given.assign(given, given + count);
  memory.grads_from_addresses = optim.addresses;
  memory.placements.clear();
  return Status();
}

void forget_grads(const Optimizer& optim, StepMemory& memory) {
  memory.grads.assign(optim.params.size(), nullptr);
  memory.grads_from_addresses = 0;
  memory.placements.clear();
}

bool wants_staging(const Optimizer& optim, const StepMemory& memory) {
  if (!optim.comm->direct() || reduces_alone(optim, memory)) return false;
  for (size_t i = 0; i < memory.grads.size(); i++) {
    if (memory.grads[i] == nullptr || optim.params[i].count == 0) continue;
    if (optim.comm->locate(memory.grads[i], optim.params[i].grad_bytes()).arena == 0) return true;
  }
  return false;
}

bool wants_outbox(const Optimizer& optim, const StepMemory&) {
  if (!optim.comm->direct() || optim.world() == 1) return false;
  for (const Param& param : optim.params) {
    if (param.count > 0 && optim.comm->locate(param.data, param.bytes()).arena == 0) return true;
  }
  return false;
}

bool place(Optimizer& optim, StepMemory& memory) {
  const bool current =
      memory.placements.size() == optim.params.size() && memory.data_addresses == optim.addresses;
  if (current) return true;
  const Comm& comm = *optim.comm;
  std::vector<Placement> placements(optim.params.size());
  std::vector<int64_t> foreign_grads, foreign_data;
  std::vector<std::shared_ptr<Arena>> held;
  bool shares_grads = false;
  const auto hold = [&](const Location& location) {
    std::shared_ptr<Arena> arena = comm.arena(location);
    const bool one_copy = arena != nullptr && arena->one_copy();
    if (arena != nullptr && (held.empty() || held.back() != arena) &&
        std::find(held.begin(), held.end(), arena) == held.end()) {
      held.push_back(std::move(arena));
    }
    return one_copy;
  };
  for (size_t i = 0; i < placements.size(); i++) {
    const Param& param = optim.params[i];
    if (param.count == 0) continue;
    const auto index = static_cast<int64_t>(i);
    placements[i].data = comm.locate(param.data, param.bytes());
    if (placements[i].data.arena == 0) foreign_data.push_back(index);
    hold(placements[i].data);
    const std::byte* grad = i < memory.grads.size() ? memory.grads[i] : nullptr;
    if (grad == nullptr) continue;
    placements[i].grad = comm.locate(grad, param.grad_bytes());
    shares_grads = hold(placements[i].grad) || shares_grads;
    if (placements[i].grad.arena == 0) {
      foreign_grads.push_back(index);
      if (!comm.direct() || reduces_alone(optim, memory)) continue;
      if (memory.staging == nullptr) return false;
      placements[i].grad = staging_of(optim, memory, index);
    }
  }
  if (memory.tables != nullptr && !placements.empty()) {
    auto* table = reinterpret_cast<Placement*>(memory.tables->data());
    // On a device gradients that are staged are copied from where they lie, by this rank's tables.
    const bool copies = comm.device() != nullptr && !foreign_grads.empty();
    if (memory.version == 0 || copies || !std::equal(placements.begin(), placements.end(), table)) {
      std::copy(placements.begin(), placements.end(), table);
      memory.version++;
    }
  } else if (placements != memory.placements) {
    memory.version++;
  }
  if (!comm.direct()) {
    const bool grads = memory.grads.size() == optim.params.size();
    memory.grads_base =
        grads ? layout_base(
                    optim, optim.plan.grad_bytes(), [&](size_t i) { return optim.trains(i); },
                    [&](size_t i) { return memory.grads[i]; }, grad_at)
              : nullptr;
    memory.data_base = layout_base(
        optim, optim.plan.data_bytes(), [](size_t) { return true; },
        [&](size_t i) { return optim.params[i].data; }, data_at);
    memory.layouts = queued::layouts_of(optim, memory);
  }
  memory.placements = std::move(placements);
  memory.shares_grads = shares_grads && !reduces_alone(optim, memory);
  memory.foreign_grads = std::move(foreign_grads);
  memory.foreign_data = std::move(foreign_data);
  memory.held.swap(held);
  // What is queued still reads and writes the arenas of calls before.
  if (memory.queue != nullptr)
    memory.queue->leaving.insert(memory.queue->leaving.end(), held.begin(), held.end());
  memory.data_addresses = optim.addresses;
  return true;
}

void stage_grads(Optimizer& optim, StepMemory& memory) {
  if (!optim.comm->direct() || reduces_alone(optim, memory) || memory.staging == nullptr) return;
  if (optim.comm->device() != nullptr) return;  // queued, with the step
  for (const int64_t index : memory.foreign_grads) {
    const auto i = static_cast<size_t>(index);
    if (memory.backward != nullptr && memory.backward->staged(i)) continue;
    const size_t bytes = optim.params[i].grad_bytes();
    std::memcpy(memory.staging->data() + grad_at(optim.plan, index), memory.grads[i], bytes);
    optim.counters.copied_bytes += static_cast<int64_t>(bytes);
  }
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
  auto* const at = reinterpret_cast<Ready*>(ZERO_TRY(optim.comm->resolve(
      rank, {memory.tables->number(), 0, ready_at(optim, param)}, sizeof(Ready))));
  Ready ready;
  ready.round = std::atomic_ref(at->round).load(std::memory_order_acquire);
  ready.arena = std::atomic_ref(at->arena).load(std::memory_order_relaxed);
  ready.offset = std::atomic_ref(at->offset).load(std::memory_order_relaxed);
  return ready;
}

Result<Stored*> stored_of(const Optimizer& optim, const StepMemory& memory, int32_t rank) {
  const size_t at = ready_at(optim, static_cast<int64_t>(optim.sealed_params()));
  std::byte* const found =
      rank == optim.comm->rank()
          ? memory.tables->data() + at
          : ZERO_TRY(optim.comm->resolve(rank, {memory.tables->number(), 0, at}, sizeof(Stored)));
  return reinterpret_cast<Stored*>(found);
}

Result<Placement> placement_of(const Optimizer& optim, const StepMemory& memory, int32_t rank,
                               int64_t param) {
  if (rank == optim.comm->rank()) return memory.placements[static_cast<size_t>(param)];
  const std::byte* at = ZERO_TRY(optim.comm->resolve(
      rank, {memory.tables->number(), 0, static_cast<uint64_t>(param) * sizeof(Placement)},
      sizeof(Placement)));
  Placement placement;
  std::memcpy(&placement, at, sizeof placement);
  return placement;
}

}  // namespace zero
