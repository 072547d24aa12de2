// SPDX-License-Identifier: Apache-2.0
// Registration and binding: what callers hand over is checked here, all or nothing.
#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "optim/optimizer.h"
#include "optim/tensor_checks.h"

namespace zero {
namespace {

/// Bytes from the address of a parameter or its gradient that are libzero's to touch.
uintptr_t touched_bytes(const Param& param, bool grad) {
  const bool padded = (param.flags & ZERO_PARAM_PADDED) != 0;
  const int64_t count = padded ? round_up(param.count, kAlignment) : param.count;
  return static_cast<uintptr_t>(count) * size_of(grad ? param.grad_dtype : param.dtype);
}

Status bad_param(std::string_view name, const char* why) {
  return bad_tensor("parameter", name, why);
}

}  // namespace

Result<Param> Optimizer::checked_param(const NewParam& added) const {
  Param param;
  param.count = ZERO_TRY(count_elements("parameter", added.name, added.shape));
  if (options.partition == ZERO_PARTITION_MANUAL &&
      (added.owner < 0 || added.owner >= comm->world())) {
    return Status(ZERO_ERR_ARGUMENT, text("parameter '", added.name, "': owner ", added.owner,
                                          " is no rank of a world of ", comm->world()));
  }
  ZERO_TRY(take_own_settings(added, param));
  param.name = added.name;
  param.shape = added.shape;
  param.owner = added.owner;
  param.flags = added.flags;
  param.dtype = added.dtype;
  param.grad_dtype = added.grad_dtype;
  param.data = static_cast<std::byte*>(added.data);
  param.grad = static_cast<std::byte*>(added.grad);
  ZERO_TRY(check_memory_of(param));
  return param;
}

/// Its memory is where it can be, and as large as it must be.
Status Optimizer::check_memory_of(const Param& param) const {
  const auto data = [&] { return text("parameter '", param.name, "'"); };
  const auto grad = [&] { return text("the gradient of parameter '", param.name, "'"); };
  ZERO_TRY(check_aligned(param.data, param.dtype, data));
  ZERO_TRY(check_aligned(param.grad, param.grad_dtype, grad));
  if (param.count == 0) return Status();
  ZERO_TRY(check_tensor_memory(*comm, data, param.data, param.bytes()));
  ZERO_TRY(check_tensor_memory(*comm, grad, param.grad, param.grad_bytes()));
  return check_not_swapped(*comm, param.name, param.data, param.grad);
}

Status Optimizer::occupy(uintptr_t begin, const Occupied& what) {
  const auto clash = [&](const Occupied& other) {
    const auto name = [&](const Occupied& o) {
      const auto index = static_cast<size_t>(o.index);
      if (o.kind == Occupied::buffer) return text("buffer '", buffers[index].name, "'");
      return text(o.kind == Occupied::grad ? "the gradient of parameter '" : "parameter '",
                  params[index].name, "'");
    };
    return Status(ZERO_ERR_ARGUMENT,
                  text("the memory of ", name(what), " overlaps that of ", name(other)));
  };
  const auto next = occupied_.lower_bound(begin);
  if (next != occupied_.end() && next->first < what.end) return clash(next->second);
  if (next != occupied_.begin() && std::prev(next)->second.end > begin)
    return clash(std::prev(next)->second);
  occupied_.emplace_hint(next, begin, what);
  return Status();
}

Status Optimizer::occupy(const Param& param, int64_t index) {
  if (param.count == 0) return Status();
  for (const bool grad : {false, true}) {
    const uintptr_t bytes = touched_bytes(param, grad);
    const auto begin = reinterpret_cast<uintptr_t>(grad ? param.grad : param.data);
    if (begin == 0) continue;
    if (begin + bytes < begin) return bad_param(param.name, "has memory that wraps around");
    ZERO_TRY(
        occupy(begin, Occupied{begin + bytes, index, grad ? Occupied::grad : Occupied::param}));
  }
  return Status();
}

void Optimizer::vacate(const Param& param, int64_t index) {
  for (const std::byte* memory : {param.data, param.grad}) {
    const auto found = occupied_.find(reinterpret_cast<uintptr_t>(memory));
    if (found != occupied_.end() && found->second.index == index &&
        found->second.kind != Occupied::buffer)
      occupied_.erase(found);
  }
}

void Optimizer::hold_arena(const std::byte* memory, int64_t count) {
  if (memory == nullptr || count == 0) return;
  std::shared_ptr<Arena> arena = find_arena(memory, 1, comm.get(), nullptr);
  if (arena != nullptr) arenas_.insert(std::move(arena));
}

bool Optimizer::is_used(const Arena& arena) const {
  const auto begin = reinterpret_cast<uintptr_t>(arena.data());
  const auto behind = occupied_.lower_bound(begin + arena.bytes());
  return behind != occupied_.begin() && std::prev(behind)->second.end > begin;
}

void Optimizer::hold_arenas(size_t first_param, size_t first_buffer) {
  for (size_t i = first_param; i < params.size(); i++) {
    hold_arena(params[i].data, params[i].count);
    hold_arena(params[i].grad, params[i].count);
  }
  for (size_t i = first_buffer; i < buffers.size(); i++)
    hold_arena(buffers[i].data, buffers[i].count);
}

Result<int32_t> Optimizer::register_params(std::vector<double> group_settings,
                                           std::span<const NewParam> added) {
  if (added.empty()) return Status(ZERO_ERR_ARGUMENT, "no parameters to register");
  const size_t before = params.size();
  const auto add = [&](const NewParam& given) -> Status {
    const auto index = static_cast<int64_t>(params.size());
    Param param = ZERO_TRY(checked_param(given));
    param.group = static_cast<int32_t>(groups.size());
    param.order = given.has_order ? given.order : index;
    if (buffer_names_.count(param.name) != 0)
      return Status(ZERO_ERR_ARGUMENT, text("parameter '", param.name, "' is a buffer already"));
    if (!index_.emplace(param.name, index).second) {
      return Status(ZERO_ERR_ARGUMENT, text("parameter '", param.name, "' is registered twice"));
    }
    params.push_back(std::move(param));
    return occupy(params.back(), index);
  };
  for (const NewParam& given : added) {
    Status status = add(given);
    if (status.ok()) continue;
    for (size_t i = before; i < params.size(); i++) {
      vacate(params[i], static_cast<int64_t>(i));
      index_.erase(params[i].name);
    }
    params.resize(before);
    return status;
  }
  progress.resize(params.size());
  trainable_.resize(params.size(), true);
  for (size_t i = before; i < params.size(); i++)
    freeze(i, (params[i].flags & ZERO_PARAM_FROZEN) != 0);
  hold_arenas(before, buffers.size());
  groups.push_back(Group{std::move(group_settings)});
  group_ends_.push_back(static_cast<int64_t>(params.size()));
  note_moved();
  registered = static_cast<int64_t>(params.size());
  return static_cast<int32_t>(groups.size()) - 1;
}

Status Optimizer::bind(std::span<void* const> data, std::span<void* const> grads) {
  const auto saved_memory = occupied_;
  std::vector<std::pair<std::byte*, std::byte*>> saved;
  for (const Param& param : params) saved.emplace_back(param.data, param.grad);
  std::erase_if(occupied_, [](const auto& one) { return one.second.kind != Occupied::buffer; });
  Status status;
  for (size_t i = 0; i < params.size() && status.ok(); i++) {
    if (!data.empty() && data[i] != nullptr) params[i].data = static_cast<std::byte*>(data[i]);
    if (!grads.empty()) params[i].grad = static_cast<std::byte*>(grads[i]);
    status = check_memory_of(params[i]);
    if (status.ok()) status = occupy(params[i], static_cast<int64_t>(i));
  }
  if (!status.ok()) {
    occupied_ = saved_memory;
    for (size_t i = 0; i < params.size(); i++) std::tie(params[i].data, params[i].grad) = saved[i];
    return status;
  }
  // Arenas that were given up cannot be found again: what is still in use stays.
  std::erase_if(arenas_, [this](const auto& arena) { return !is_used(*arena); });
  hold_arenas(0, 0);
  note_moved();
  return Status();
}

}  // namespace zero
