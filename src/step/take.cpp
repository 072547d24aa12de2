// SPDX-License-Identifier: Apache-2.0
#include "step/take.h"

#include <algorithm>

#include "base/refusals.h"
#include "optim/tensor_checks.h"
#include "step/backward.h"

namespace zero {
namespace {

/// Checks gradients passed to a call in the same way as registered gradients. They must be aligned,
/// and must not overlap each other or another tensor.
Status check_memory(const Optimizer& optim, std::span<std::byte* const> given) {
  struct Interval {
    uintptr_t begin, end;
    TensorName what;
  };
  std::vector<Interval> intervals;
  intervals.reserve(2 * given.size() + optim.buffers.size());
  for (const Buffer& buffer : optim.buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
    if (buffer.count > 0)
      intervals.push_back({begin, begin + buffer.bytes(), {"buffer", buffer.name}});
  }
  for (size_t i = 0; i < given.size(); i++) {
    const Param& param = optim.params[i];
    const TensorName grad{kGradientOf, param.name};
    const auto begin = reinterpret_cast<uintptr_t>(given[i]);
    ZERO_TRY(check_aligned(given[i], param.grad_dtype, grad));
    if (param.count == 0) continue;
    if (begin != 0) intervals.push_back({begin, begin + param.grad_bytes(), grad});
    const auto data = reinterpret_cast<uintptr_t>(param.data);
    if (data != 0) intervals.push_back({data, data + param.bytes(), {"parameter", param.name}});
  }
  std::ranges::sort(intervals, {}, &Interval::begin);
  for (size_t k = 1; k < intervals.size(); k++) {
    const Interval& a = intervals[k - 1];
    const Interval& b = intervals[k];
    if (a.end <= b.begin) continue;
    return bad_argument("the memory of ", a.what, " overlaps that of ", b.what);
  }
  return Status();
}

Status check_count(const Optimizer& optim, void* const* given, size_t count) {
  const size_t params = optim.params.size();
  if (given == nullptr && count != 0)
    return bad_argument("the number of gradients is ", count, ", but grads is NULL");
  if (given != nullptr && count != params)
    return bad_argument(count, " gradient pointers given for ", params, " registered parameters");
  return Status();
}

/// Checks the memory of gradients passed to a call. Registered gradients were checked at
/// registration.
Status check_places(const Optimizer& optim, std::span<std::byte* const> given) {
  for (size_t i = 0; i < given.size(); i++) {
    const Param& param = optim.params[i];
    if (given[i] == param.grad) continue;
    ZERO_TRY(
        check_tensor_memory(*optim.comm, {kGradientOf, param.name}, given[i], param.grad_bytes()));
  }
  return Status();
}

/// Takes over the gradients `given` (one for each parameter), or the registered ones if it is null.
/// A failure has no effect.
Status take_grads(Optimizer& optim, StepMemory& memory, void* const* given, size_t count) {
  ZERO_TRY(check_count(optim, given, count));
  const bool reducing = optim.announces();
  if (!reducing && !memory.grads_announced && memory.grads_from_addresses == optim.addresses &&
      std::equal(given, given + count, memory.given.begin(), memory.given.end())) {
    return Status();
  }
  std::vector<std::byte*> grads(optim.params.size(), nullptr);
  bool all_present = true;
  for (size_t i = 0; i < grads.size(); i++) {
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
  static_cast<Gradients&>(memory) = {.grads = std::move(grads),
                                     .all_present = all_present,
                                     .given = std::vector<void*>(given, given + count),
                                     .grads_announced = reducing,
                                     .grads_from_addresses = optim.addresses,
                                     .grads_number = memory.grads_number + 1};
  return Status();
}

/// Checks that gradients may be added to the sums of earlier calls.
Status check_adding(const StepMemory& memory, const Grads& grads) {
  if (!memory.accumulates)
    return wrong_state(
        "gradients are already reduced, without ZERO_REDUCE_ACCUMULATE: step or drop them first");
  if (memory.flags != grads.flags)
    return wrong_state("reduce flags are ", grads.flags, "; the sums so far were ", "made with ",
                       memory.flags);
  if (memory.clipped)
    return wrong_state("the sums so far are already clipped: step or drop them first");
  return Status();
}

}  // namespace

Status check_given(const Optimizer& optim, void* const* given, size_t count) {
  ZERO_TRY(check_count(optim, given, count));
  std::vector<std::byte*> grads(count, nullptr);
  for (size_t i = 0; i < count; i++)
    if (optim.trains(i)) grads[i] = static_cast<std::byte*>(given[i]);
  return check_memory(optim, grads);
}

Status check_flags(int32_t flags) {
  const int32_t how = flags & ~ZERO_REDUCE_ACCUMULATE;
  if (how >= ZERO_REDUCE_MEAN && how <= ZERO_REDUCE_NONE) return Status();
  return bad_argument("reduce flags ", flags, " are unknown");
}

double mean_of(const Optimizer& optim, int32_t flags) {
  const bool averages = (flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_MEAN;
  return averages ? 1.0 / optim.contributors : 1.0;
}

double factor_of(const Optimizer& optim, int32_t flags) {
  return mean_of(optim, flags) / optim.state.loss_scale;
}

Status take(Optimizer& optim, StepMemory& memory, const Grads& grads, bool keeps) {
  ZERO_TRY(check_flags(grads.flags));
  const bool adds = optim.phase == Phase::reduced;
  if (adds) ZERO_TRY(check_adding(memory, grads));
  ZERO_TRY(take_grads(optim, memory, grads.pointers, grads.count));
  memory.none = (grads.flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_NONE;
  memory.adds = adds;
  memory.accumulates = grads.accumulate() && (adds || keeps);
  return Status();
}

void forget_grads(const Optimizer& optim, StepMemory& memory) {
  memory.grads.assign(optim.params.size(), nullptr);
  memory.grads_from_addresses = 0;
  memory.grads_number++;
}

}  // namespace zero
