// SPDX-License-Identifier: Apache-2.0
#include "state/access.h"

#include <cmath>
#include <cstring>

#include "base/refusals.h"
#include "optim/options.h"
#include "state/layout.h"

namespace zero {
namespace {

const Param& param_of(const Optimizer& optim, int64_t param) {
  return optim.params[static_cast<size_t>(param)];
}

/// Returns the address of the part in this rank's own copy of the parameter.
std::byte* own_copy(const Optimizer& optim, const Segment& part) {
  return param_of(optim, part.param).element(part.first);
}

uint16_t* halves(std::byte* memory) { return reinterpret_cast<uint16_t*>(memory); }
const uint16_t* halves(const std::byte* memory) {
  return reinterpret_cast<const uint16_t*>(memory);
}

constexpr size_t kMasters = 1024;  // joined or split at once

/// Returns how many elements a window can show at once.
int64_t most_at_once(const Optimizer& optim, const Windows& windows, const Segment& of) {
  return windows.values.most(element_bytes(optim, of.param));
}

/// Rounds values to the dtype of a parameter, and writes them into the parameter.
Status write_rounded(const Optimizer& optim, Windows& windows, const Segment& part,
                     const std::byte* values) {
  const DType dtype = param_of(optim, part.param).dtype;
  const auto write = [&](const Segment& segment, int64_t before) -> Status {
    const auto count = static_cast<size_t>(segment.count);
    std::byte* const own = own_copy(optim, segment);
    write_values(dtype, optim.options, ZERO_TRY(windows.values.room(own)),
                 reinterpret_cast<const float*>(values) + before, count);
    return windows.values.store(own, count * size_of(dtype));
  };
  return in_chunks(part, most_at_once(optim, windows, part), write);
}

/// Returns true if the tensor is state that is stored in 16 bits.
bool is_stored_as_half(const Optimizer& optim, const StateTensor& tensor) {
  return size_of(stored_dtype(optim, tensor.param, tensor.slot)) == 2;
}

/// Rounds values to nearest, and writes them into a slot that is stored in 16 bits.
Status write_halves(const Optimizer& optim, Windows& windows, const StateTensor& tensor,
                    const Segment& part, const std::byte* values) {
  const auto write = [&](const Segment& segment, int64_t before) -> Status {
    std::byte* const to = optim.slot(tensor.slot, segment);
    auto* const room = halves(ZERO_TRY(windows.values.room(to)));
    kernel_table(best_isa())
        .bf16.narrow(room, reinterpret_cast<const float*>(values) + before,
                     static_cast<size_t>(segment.count));
    return windows.values.store(to, static_cast<size_t>(segment.count) * sizeof(uint16_t));
  };
  return in_chunks(part, most_at_once(optim, windows, part), write);
}

/// Copies values into a part that this rank owns.
Status copy_in(const Optimizer& optim, Windows& windows, const StateTensor& tensor,
               const Segment& part, const std::byte* values) {
  const DType dtype = param_of(optim, part.param).dtype;
  const auto count = static_cast<size_t>(part.count);
  if (tensor.slot == kParameterItself) {
    if (master_of(dtype, optim.options) == Master::rounded)
      return write_rounded(optim, windows, part, values);
    return windows.values.write(own_copy(optim, part), values, count * size_of(dtype));
  }
  if (keeps_remainders(optim, tensor.param, tensor.slot))
    return split_masters(optim, windows, part, [&](std::span<float> masters) {
      std::memcpy(masters.data(), values, masters.size_bytes());
      values += masters.size_bytes();
      return Status();
    });
  std::byte* const to = optim.slot(tensor.slot, part);
  if (is_stored_as_half(optim, tensor)) return write_halves(optim, windows, tensor, part, values);
  ZERO_TRY(windows.values.write(to, values, count * size_of(sum_dtype(dtype))));
  if (tensor.slot != kMasterSlot) return {};
  return write_rounded(optim, windows, part, values);
}

/// Makes a slot of a parameter live. The slot holds zeros, because only live slots are written and
/// a load clears the others.
Status make_live(Optimizer& optim, const StateTensor& tensor) {
  if (tensor.slot == kMasterSlot || tensor.slot == kParameterItself) return {};
  uint32_t& live = optim.progress[static_cast<size_t>(tensor.param)].live_slots;
  if (live >> tensor.slot & 1) return {};
  ZERO_TRY(optim.allocate_slots(optim.plan.section_of(tensor.param), 1u << tensor.slot));
  live |= 1u << tensor.slot;
  return {};
}

Status check_settable(const Optimizer& optim) {
  ZERO_TRY(optim.check_loaded());
  return optim.check_open();
}

/// Fails with ZERO_ERR_BUSY if ranks share one copy of the parameter and another rank may still
/// read it for a save in progress. That rank does not learn of this local call.
Status check_not_saved_elsewhere(const Optimizer& optim, const StateTensor& tensor) {
  if (optim.saving == nullptr || optim.world() == 1) return {};
  if (tensor.slot != kParameterItself && tensor.slot != kMasterSlot) return {};
  const Param& param = param_of(optim, tensor.param);
  const auto arena = optim.comm->arena(optim.comm->locate(param.data, param.bytes()));
  if (arena == nullptr || !arena->one_copy()) return {};
  return Status(
      ZERO_ERR_BUSY,
      text("parameter '", param.name,
           "' is in a ZERO_MEMORY_SHARED arena, which another rank may still read for the "
           "save in progress: call zero_state_save_wait first"));
}

Status unknown_scalar(const Rule& rule, std::string_view name) {
  return bad_argument(rule.name, " has no number '", name, "' per parameter; it has step",
                      rule.next_product ? " and mu_product" : "");
}

}  // namespace

Status check_sealed(const Optimizer& optim, int64_t param) {
  const auto registered = static_cast<int64_t>(optim.params.size());
  if (param < 0 || param >= registered)
    return bad_argument("parameter ", param, " does not exist: ", registered, " are registered");
  if (param < static_cast<int64_t>(optim.sealed_params())) return {};
  return wrong_state("parameter '", param_of(optim, param).name,
                     "' is not sealed yet: call zero_seal first");
}

Result<StateTensor> find_tensor(const Optimizer& optim, int64_t param, const char* name) {
  if (param < 0 || param >= static_cast<int64_t>(optim.params.size()))
    return check_sealed(optim, param);
  const Param& of = param_of(optim, param);
  const bool has_master = is_kept(master_of(of.dtype, optim.options));
  if (name == nullptr) return StateTensor{param, has_master ? kMasterSlot : kParameterItself};
  if (!is_floating(of.dtype))
    return bad_argument("parameter '", of.name, "' is ", dtype_name(of.dtype), ": it has no state");
  const Rule& rule = optim.rule_of(of);
  const int slot = find_slot(rule, name);
  if (slot < 0) return bad_argument(rule.name, " has no state '", name, "'");
  if (slot != kMasterSlot || has_master) return StateTensor{param, slot};
  return bad_argument("parameter '", of.name, "' is ", dtype_name(of.dtype), ": it has no master");
}

Status check_live(const Optimizer& optim, const StateTensor& tensor) {
  if (tensor.slot == kParameterItself || (stored_slots(optim, tensor.param) >> tensor.slot & 1))
    return {};
  const Param& of = param_of(optim, tensor.param);
  return wrong_state("state '", slot_name(optim.rule_of(of), tensor.slot), "' of parameter '",
                     of.name, "' has no values yet");
}

Status check_range(const Optimizer& optim, const Range& range, const void* values) {
  const auto [param, first, count] = range;
  const Param& of = param_of(optim, param);
  if (first < 0 || count < 0 || first > of.count || count > of.count - first)
    return bad_argument(count, " elements starting at ", first, " of parameter '", of.name,
                        "', which has ", of.count);
  if (count == 0) return {};
  if (values == nullptr) return bad_argument("values is NULL");
  if (reinterpret_cast<uintptr_t>(values) % size_of(sum_dtype(of.dtype)) != 0)
    return bad_argument("values is not aligned to ", dtype_name(sum_dtype(of.dtype)));
  return check_host_memory(values, "values");
}

Status check_owned(const Optimizer& optim, const Range& range) {
  int64_t owned = 0;
  for (const Segment& part : owned_parts(optim, range)) owned += part.count;
  if (owned == range.count) return {};
  return bad_argument("rank ", optim.comm->rank(), " owns ", owned, " of the ", range.count,
                      " elements starting at ", range.first, " of parameter '",
                      param_of(optim, range.param).name, "': zero_owned_ranges returns which");
}

Status join_masters(const Optimizer& optim, Windows& windows, const Segment& part,
                    const std::function<Status(std::span<const float>)>& visit) {
  const auto join = [&](const Segment& segment, int64_t) -> Status {
    const auto count = static_cast<size_t>(segment.count);
    const size_t bytes = count * sizeof(uint16_t);
    const std::byte* const from = optim.slot(kMasterSlot, segment);
    const uint16_t* const own =
        halves(ZERO_TRY(windows.values.show(own_copy(optim, segment), bytes)));
    const uint16_t* const rest = halves(ZERO_TRY(windows.remainders.show(from, bytes)));
    float masters[kMasters];
    for (size_t done = 0; done < count; done += kMasters) {
      const std::span some(masters, std::min(kMasters, count - done));
      kernel_table(best_isa()).join_remainder(masters, own + done, rest + done, some.size());
      ZERO_TRY(visit(some));
    }
    return {};
  };
  return in_chunks(part, most_at_once(optim, windows, part), join);
}

Status split_masters(const Optimizer& optim, Windows& windows, const Segment& part,
                     const std::function<Status(std::span<float>)>& fill) {
  const auto split = [&](const Segment& segment, int64_t) -> Status {
    const auto count = static_cast<size_t>(segment.count);
    std::byte* const own = own_copy(optim, segment);
    std::byte* const to = optim.slot(kMasterSlot, segment);
    uint16_t* const values = halves(ZERO_TRY(windows.values.room(own)));
    uint16_t* const rest = halves(ZERO_TRY(windows.remainders.room(to)));
    float masters[kMasters];
    for (size_t done = 0; done < count; done += kMasters) {
      const std::span some(masters, std::min(kMasters, count - done));
      ZERO_TRY(fill(some));
      kernel_table(best_isa()).split_remainder(values + done, rest + done, masters, some.size());
    }
    ZERO_TRY(windows.values.store(own, count * sizeof(uint16_t)));
    return windows.remainders.store(to, count * sizeof(uint16_t));
  };
  return in_chunks(part, most_at_once(optim, windows, part), split);
}

std::vector<Segment> owned_parts(const Optimizer& optim, const Range& range) {
  std::vector<Segment> parts;
  for (const auto& [owner, all] : optim.plan.segments_of(range.param)) {
    const int64_t from = std::max(all.first, range.first);
    const int64_t to = std::min(all.first + all.count, range.first + range.count);
    if (owner == optim.place() && from < to) parts.push_back(all.part(from - all.first, to - from));
  }
  return parts;
}

Status copy_out(const Optimizer& optim, Windows& windows, const StateTensor& tensor,
                const Segment& part, std::byte* out) {
  const DType dtype = param_of(optim, part.param).dtype;
  const auto count = static_cast<size_t>(part.count);
  const std::byte* const own = own_copy(optim, part);
  const auto widen = [&](DType from, const std::byte* values) {
    return windows.values.show_all(values, count * 2, [&](std::span<const std::byte> halves) {
      read_values(from, reinterpret_cast<float*>(out), halves.data(), halves.size() / 2);
      out += halves.size() * 2;
      return Status();
    });
  };
  if (tensor.slot == kParameterItself && size_of(dtype) == 2) return widen(dtype, own);
  if (tensor.slot == kParameterItself) return windows.values.read(out, own, count * size_of(dtype));
  if (keeps_remainders(optim, tensor.param, tensor.slot))
    return join_masters(optim, windows, part, [&](std::span<const float> masters) {
      std::memcpy(out, masters.data(), masters.size_bytes());
      out += masters.size_bytes();
      return Status();
    });
  const std::byte* const from = optim.slot(tensor.slot, part);
  if (is_stored_as_half(optim, tensor)) return widen(DType::bf16, from);
  return windows.values.read(out, from, count * size_of(sum_dtype(dtype)));
}

Status get_state(Optimizer& optim, const Range& range, const char* name, void* values) {
  ZERO_TRY(check_sealed(optim, range.param));
  const StateTensor tensor = ZERO_TRY(find_tensor(optim, range.param, name));
  ZERO_TRY(optim.check_loaded());
  ZERO_TRY(optim.check_ended());
  ZERO_TRY(check_range(optim, range, values));
  ZERO_TRY(check_live(optim, tensor));
  ZERO_TRY(check_owned(optim, range));
  Windows& windows = *ZERO_TRY(windows_of(optim));
  return for_each_owned(optim, range, static_cast<std::byte*>(values),
                        [&](const Segment& part, std::byte* out) {
                          return copy_out(optim, windows, tensor, part, out);
                        });
}

Status set_state(Optimizer& optim, const Range& range, const char* name, const void* values) {
  ZERO_TRY(check_sealed(optim, range.param));
  const StateTensor tensor = ZERO_TRY(find_tensor(optim, range.param, name));
  ZERO_TRY(check_settable(optim));
  ZERO_TRY(check_range(optim, range, values));
  ZERO_TRY(check_not_saved_elsewhere(optim, tensor));
  Windows& windows = *ZERO_TRY(windows_of(optim));
  const auto [sets, added] = optim.state_sets.try_emplace(range.param, 0);
  Status live = make_live(optim, tensor);
  if (!live.ok() && added) optim.state_sets.erase(sets);
  ZERO_TRY(std::move(live));
  if (tensor.slot != kParameterItself) sets->second |= 1u << tensor.slot;
  optim.addresses++;  // classes depend on which slots are live
  optim.keep_all();
  return for_each_owned(optim, range, static_cast<const std::byte*>(values),
                        [&](const Segment& part, const std::byte* in) {
                          return copy_in(optim, windows, tensor, part, in);
                        });
}

Result<double> get_scalar(const Optimizer& optim, int64_t param, std::string_view name) {
  const bool all = param == ZERO_ALL_PARAMS;
  if (!all) ZERO_TRY(check_sealed(optim, param));
  ZERO_TRY(optim.check_loaded());
  if (all && name == "step") return static_cast<double>(optim.state.steps);
  if (all)
    return bad_argument("'", name,
                        "' is a number per parameter: pass one parameter, not ZERO_ALL_PARAMS");
  const ParamProgress& progress = optim.progress[static_cast<size_t>(param)];
  if (name == "step") return static_cast<double>(progress.step);
  const Rule& rule = optim.rule_of(param_of(optim, param));
  if (name == "mu_product" && rule.next_product) return progress.product;
  return unknown_scalar(rule, name);
}

Status set_scalar(Optimizer& optim, int64_t param, std::string_view name, double value) {
  const bool all = param == ZERO_ALL_PARAMS, step = name == "step";
  if (!all) ZERO_TRY(check_sealed(optim, param));
  const auto has = [&](const Rule& rule) { return name == "mu_product" && rule.next_product; };
  const Rule& rule = all ? *optim.options.rule : optim.rule_of(param_of(optim, param));
  if (!step && !(all ? optim.any_rule(has) : has(rule))) return unknown_scalar(rule, name);
  ZERO_TRY(check_settable(optim));
  if (step &&
      !(value >= 0 && value <= static_cast<double>(kMostSteps) && value == std::floor(value)))
    return bad_argument("step is ", value, "; it must be a whole number from 0 to 2^53");
  if (!step && !(value >= 0 && value <= 1))
    return bad_argument("mu_product is ", value, "; it must be in [0, 1]");
  if (all && optim.sealed_params() < optim.params.size())
    return wrong_state("not every parameter is sealed yet: call zero_seal first");
  if (!all && !is_floating(param_of(optim, param).dtype))
    return bad_argument("parameter '", param_of(optim, param).name,
                        "' has an integer type and takes no steps");
  const auto end = all ? static_cast<int64_t>(optim.params.size()) : param + 1;
  for (int64_t i = all ? 0 : param; i < end; i++) {
    if (!is_floating(param_of(optim, i).dtype)) continue;
    if (!step && !has(optim.rule_of(param_of(optim, i)))) continue;
    optim.state_sets.try_emplace(i, 0);
    ParamProgress& progress = optim.progress[static_cast<size_t>(i)];
    step ? (void)(progress.step = static_cast<int64_t>(value)) : (void)(progress.product = value);
  }
  if (all && step) optim.comm->steps.done = optim.state.steps = static_cast<int64_t>(value);
  optim.addresses++;  // classes depend on steps
  return {};
}

}  // namespace zero
