// SPDX-License-Identifier: Apache-2.0
// Registers and binds parameters and buffers. A call that fails changes nothing.
#include <algorithm>

#include "base/checked.h"
#include "base/refusals.h"
#include "optim/optimizer.h"
#include "optim/tensor_checks.h"

namespace zero {
namespace {

/// Returns how many bytes libzero may access, starting at the address of a parameter or its
/// gradient.
uintptr_t touched_bytes(const Param& param, bool grad) {
  const bool padded = (param.flags & ZERO_PARAM_PADDED) != 0;
  const int64_t count = padded ? round_up(param.count, kAlignment) : param.count;
  return static_cast<uintptr_t>(count) * size_of(grad ? param.grad_dtype : param.dtype);
}

Status bad_param(std::string_view name, const char* why) {
  return bad_tensor("parameter", name, why);
}

}  // namespace

Status Optimizer::check_own_setting(const Param& added, const Rule& rule, const char* name,
                                    double value) const {
  const bool scale = std::string_view(name) == "lr_scale";
  const int at = find_setting(rule, scale ? "lr" : name);
  if (at < 0)
    return bad_argument("parameter '", added.name, "' sets ", name, ", which ", rule.name,
                        " does not have");
  const Setting& setting = rule.settings[static_cast<size_t>(at)];
  if (setting.range.allows(value)) return Status();
  return bad_argument("parameter '", added.name, "': ", name, " is ", value, "; it must be ",
                      setting.range.text);
}

/// Checks alignment, location and size of the memory of a parameter and its gradient.
Status Optimizer::check_memory_of(const Param& param) const {
  const TensorName data{"parameter", param.name}, grad{kGradientOf, param.name};
  ZERO_TRY(check_aligned(param.data, param.dtype, data));
  ZERO_TRY(check_aligned(param.grad, param.grad_dtype, grad));
  if (param.count == 0) return Status();
  ZERO_TRY(check_tensor_memory(*comm, data, param.data, param.bytes()));
  ZERO_TRY(check_tensor_memory(*comm, grad, param.grad, param.grad_bytes()));
  return check_not_swapped(*comm, param.name, param.data, param.grad);
}

Status Optimizer::occupy(uintptr_t begin, const Occupied& what) {
  const auto clash = [&](const Occupied& other) {
    const auto name = [&](const Occupied& o) -> TensorName {
      const auto index = static_cast<size_t>(o.index);
      if (o.kind == Occupied::buffer) return {"buffer", buffers[index].name};
      return {o.kind == Occupied::grad ? kGradientOf : "parameter", params[index].name};
    };
    return bad_argument("the memory of ", name(what), " overlaps that of ", name(other));
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

/// Removes the parameters and buffers from the given numbers on.
void Optimizer::forget(size_t first_param, size_t first_buffer) {
  std::erase_if(occupied_, [&](const auto& one) {
    const bool buffer = one.second.kind == Occupied::buffer;
    return static_cast<size_t>(one.second.index) >= (buffer ? first_buffer : first_param);
  });
  for (size_t i = first_param; i < params.size(); i++) index_.erase(params[i].name);
  for (size_t i = first_buffer; i < buffers.size(); i++) buffer_names_.erase(buffers[i].name);
  params.resize(first_param);
  buffers.resize(first_buffer);
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

Status Optimizer::add_param(const Param& added, const Group& group) {
  const Rule& rule = *group.rule;
  Param param = added;
  const auto index = static_cast<int64_t>(params.size());
  param.count = ZERO_TRY(count_elements("parameter", param.name, param.shape));
  param.random_at =
      (params.empty() ? 0 : params.back().random_at) - round_up(param.count, kAlignment);
  if (options.partition == ZERO_PARTITION_MANUAL) ZERO_TRY(check_owner(param.name, param.owner));
  if ((param.flags & ZERO_PARAM_LR_SCALE) != 0)
    ZERO_TRY(check_own_setting(param, rule, "lr_scale", param.lr_scale));
  if (param.weight_decay)
    ZERO_TRY(check_own_setting(param, rule, "weight_decay", *param.weight_decay));
  if (group.slot_format != SlotFormat::full && param.dtype == DType::f64)
    return unsupported("parameter '", param.name, "' is ", dtype_name(param.dtype),
                       ": its state cannot be bfloat16, so register it in a group with full state");
  ZERO_TRY(check_memory_of(param));
  param.group = static_cast<int32_t>(groups.size());
  if ((param.flags & ZERO_PARAM_ORDER) == 0) param.order = index;
  if (buffer_names_.count(param.name) != 0)
    return bad_argument("parameter '", param.name, "' is already a buffer");
  if (index_.count(param.name) != 0)
    return bad_argument("parameter '", param.name, "' is registered twice");
  params.push_back(std::move(param));
  index_.emplace(params.back().name, index);
  return occupy(params.back(), index);
}

/// Undoes a registration that ends early, even if it ends because memory has run out.
class Optimizer::Undo {
 public:
  explicit Undo(Optimizer& optim)
      : optim_(optim),
        params_(optim.params.size()),
        buffers_(optim.buffers.size()),
        groups_(optim.groups.size()) {}
  ~Undo() {
    if (kept_) return;
    optim_.forget(params_, buffers_);
    optim_.progress.resize(params_);
    optim_.trainable_.resize(params_);
    optim_.groups.erase(optim_.groups.begin() + static_cast<std::ptrdiff_t>(groups_),
                        optim_.groups.end());
    optim_.group_ends_.resize(groups_);
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void keep() { kept_ = true; }

 private:
  Optimizer& optim_;
  const size_t params_, buffers_, groups_;
  bool kept_ = false;
};

Result<int32_t> Optimizer::register_params(Group group, std::span<const Param> added) {
  if (added.empty()) return bad_argument("there are no parameters to register");
  const size_t before = params.size();
  Undo undo(*this);
  for (const Param& param : added) ZERO_TRY(add_param(param, group));
  hold_arenas(before, buffers.size());
  progress.resize(params.size());
  trainable_.resize(params.size(), true);
  groups.push_back(std::move(group));
  group_ends_.push_back(static_cast<int64_t>(params.size()));
  undo.keep();
  for (size_t i = before; i < params.size(); i++)
    freeze(i, (params[i].flags & ZERO_PARAM_FROZEN) != 0);
  note_moved();
  registered = static_cast<int64_t>(params.size());
  return static_cast<int32_t>(groups.size()) - 1;
}

Status Optimizer::bind(std::span<void* const> data, std::span<void* const> grads) {
  keep_all();  // the caller may free the old memory
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
  // An arena that has been released cannot be found again, so arenas that are still in use stay.
  std::erase_if(arenas_, [this](const auto& arena) { return !is_used(*arena); });
  hold_arenas(0, 0);
  note_moved();
  return Status();
}

// ---- Buffers.

Status Optimizer::add_buffer(const Buffer& added) {
  Buffer buffer = added;
  const auto bad = [&](const char* why) { return bad_tensor("buffer", buffer.name, why); };
  buffer.count = ZERO_TRY(count_elements("buffer", buffer.name, buffer.shape));
  if (buffer.count > 0 && buffer.data == nullptr) return bad("has no memory");
  const TensorName name{"buffer", buffer.name};
  ZERO_TRY(check_aligned(buffer.data, buffer.dtype, name));
  if (index_.count(buffer.name) != 0)
    return bad_argument("buffer '", buffer.name, "' is already a parameter");
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
  const uintptr_t end = begin + buffer.bytes();
  if (end < begin) return bad("has memory that wraps around");
  ZERO_TRY(check_tensor_memory(*comm, name, buffer.data, buffer.bytes()));
  if (buffer_names_.count(buffer.name) != 0)
    return bad_argument("buffer '", buffer.name, "' is registered twice");
  buffers.push_back(std::move(buffer));
  buffer_names_.insert(buffers.back().name);
  if (begin == end) return Status();
  return occupy(begin, {end, static_cast<int64_t>(buffers.size()) - 1, Occupied::buffer});
}

Status Optimizer::register_buffers(std::span<const Buffer> added) {
  const size_t before = buffers.size();
  Undo undo(*this);
  for (const Buffer& buffer : added) ZERO_TRY(add_buffer(buffer));
  hold_arenas(params.size(), before);
  undo.keep();
  addresses++;
  return Status();
}

}  // namespace zero
