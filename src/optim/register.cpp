// SPDX-License-Identifier: Apache-2.0
// Registration and binding: what callers hand over is checked here, all or nothing.
#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "base/utf8.h"
#include "optim/optimizer.h"

namespace zero {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxDimensions = 16;

/// Bytes from the address of a parameter or its gradient that are libzero's to touch.
uintptr_t touched_bytes(const Param& param, bool grad) {
  const bool padded = (param.flags & ZERO_PARAM_PADDED) != 0;
  const int64_t count = padded ? round_up(param.count, kAlignment) : param.count;
  return static_cast<uintptr_t>(count) * size_of(grad ? param.grad_dtype : param.dtype);
}

bool is_aligned(const void* memory, DType dtype) {
  return reinterpret_cast<uintptr_t>(memory) % size_of(dtype) == 0;
}

Status bad_name(std::string_view name, const char* why) {
  std::string shown(name.substr(0, 60));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return Status(ZERO_ERR_ARGUMENT, text("parameter name '", shown, "' ", why));
}

}  // namespace

Result<Param> Optimizer::checked_param(const NewParam& added) const {
  if (added.name.empty()) return bad_name(added.name, "is empty");
  if (added.name.size() > kMaxNameBytes) return bad_name(added.name, "is longer than 4096 bytes");
  if (!is_utf8(added.name)) return bad_name(added.name, "is not UTF-8");
  if (added.shape.size() > kMaxDimensions)
    return bad_name(added.name, "has more than 16 dimensions");
  Param param;
  param.count = 1;
  for (const int64_t size : added.shape) {
    if (size < 0) return bad_name(added.name, "has a negative dimension");
    const auto product = checked_multiply(param.count, size);
    if (!product || *product > INT64_MAX / 64) return bad_name(added.name, "has too many elements");
    param.count = *product;
  }
  if (!is_aligned(added.data, added.dtype) || !is_aligned(added.grad, added.grad_dtype))
    return bad_name(added.name, "has memory that is not aligned to its elements");
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
  return param;
}

Status Optimizer::occupy(uintptr_t begin, const Occupied& what) {
  const auto clash = [&](const Occupied& other) {
    const auto name = [&](const Occupied& o) {
      return text(o.grad ? "the gradient of parameter '" : "parameter '",
                  params[static_cast<size_t>(o.param)].name, "'");
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
    if (begin + bytes < begin) return bad_name(param.name, "has memory that wraps around");
    ZERO_TRY(occupy(begin, Occupied{begin + bytes, index, grad}));
  }
  return Status();
}

void Optimizer::vacate(const Param& param, int64_t index) {
  for (const std::byte* memory : {param.data, param.grad}) {
    const auto found = occupied_.find(reinterpret_cast<uintptr_t>(memory));
    if (found != occupied_.end() && found->second.param == index) occupied_.erase(found);
  }
}

void Optimizer::hold_arenas(size_t first_param) {
  for (size_t i = first_param; i < params.size(); i++) {
    for (const std::byte* memory : {params[i].data, params[i].grad}) {
      if (memory == nullptr || params[i].count == 0) continue;
      std::shared_ptr<Arena> arena = find_arena(memory, 1, comm.get(), nullptr);
      if (arena != nullptr) arenas_.insert(std::move(arena));
    }
  }
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
  hold_arenas(before);
  groups.push_back(Group{std::move(group_settings)});
  group_ends_.push_back(static_cast<int64_t>(params.size()));
  addresses++;
  return static_cast<int32_t>(groups.size()) - 1;
}

Status Optimizer::bind(std::span<void* const> data, std::span<void* const> grads) {
  const auto saved_memory = occupied_;
  std::vector<std::pair<std::byte*, std::byte*>> saved;
  for (const Param& param : params) saved.emplace_back(param.data, param.grad);
  occupied_.clear();
  Status status;
  for (size_t i = 0; i < params.size() && status.ok(); i++) {
    if (!data.empty() && data[i] != nullptr) params[i].data = static_cast<std::byte*>(data[i]);
    if (!grads.empty()) params[i].grad = static_cast<std::byte*>(grads[i]);
    if (!is_aligned(params[i].data, params[i].dtype) ||
        !is_aligned(params[i].grad, params[i].grad_dtype)) {
      status = bad_name(params[i].name, "is bound to memory that is not aligned to its elements");
    }
    if (status.ok()) status = occupy(params[i], static_cast<int64_t>(i));
  }
  if (!status.ok()) {
    occupied_ = saved_memory;
    for (size_t i = 0; i < params.size(); i++) std::tie(params[i].data, params[i].grad) = saved[i];
    return status;
  }
  arenas_.clear();
  hold_arenas(0);
  addresses++;
  return Status();
}

}  // namespace zero
