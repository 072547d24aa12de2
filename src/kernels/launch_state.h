// SPDX-License-Identifier: Apache-2.0
// Does the work of threads in launch::Decide, ::Fetch, ::Prepare and ::Advance, which decide on a
// step without the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/launch_sums.h"
#include "rules/list.h"

namespace zero::launch {

/// Returns the norm from the records of all ranks: the p-th root of their sum, or their maximum if
/// p is infinite. On a device p is 1, 2 or infinite.
ZERO_HOST_DEVICE inline double norm_of_records(const NormSums* records, uint32_t world, double p) {
  NormSums all;
  for (uint32_t i = 0; i < world; i++) all.add(records[i]);
  if (is_nonfinite(p)) return all.max;
  const double sum = all.sum.value();
  if (p == 2) return rules::root(sum);
#ifndef __CUDA_ARCH__
  if (p != 1) return std::pow(sum, 1 / p);
#endif
  return sum;
}

ZERO_ELEMENT uint64_t nonfinite_of(const NormSums* records, uint32_t world) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < world; i++) total += records[i].nonfinite;
  return total;
}

/// Reads a word that a host may write at the same time.
ZERO_HOST_DEVICE inline uint32_t word_now(const uint32_t* word) {
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile uint32_t*>(word);
#else
  return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

ZERO_ELEMENT Refusal refusal_of(const Decide& launch) {
  const StepState& state = *launch.state;
  if (launch.broken != nullptr && word_now(launch.broken) != 0) return Refusal::broken;
  if (launch.layout != 0 && launch.layout != state.layout) return Refusal::outdated;
  if (launch.loss_scale != nullptr && !loss_scale_allowed(state.loss_scale))
    return Refusal::setting;
  return launch.refuses && state.nonfinite > 0 ? Refusal::nonfinite : Refusal::none;
}

ZERO_ELEMENT double value_at(const void* from, DType dtype) {
  return dtype == DType::f64 ? *static_cast<const double*>(from)
                             : static_cast<double>(*static_cast<const float*>(from));
}

/// Returns the factor that brings a norm within the limit, or 1 if it is within it or not finite.
ZERO_ELEMENT double clip_factor(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 && !is_nonfinite(norm) ? factor : 1;
}

/// Runs in one thread.
ZERO_HOST_DEVICE inline void decide(const Decide& launch) {
  StepState& state = *launch.state;
  if (!launch.again) {
    if (launch.loss_scale != nullptr)
      state.loss_scale = value_at(launch.loss_scale, launch.loss_scale_dtype);
    state.factor = launch.factor / state.loss_scale;
    state.clip_factor = 1;
    state.raw_norm = 0;
    state.grad_norm = -1;
    state.nonfinite = launch.records != nullptr ? nonfinite_of(launch.records, launch.world) : 0;
  }
  if (launch.gradients) state.factor = 1;
  state.refusal = refusal_of(launch);
  const bool refused = state.refusal != Refusal::none;
  state.skip = !refused && launch.skips && state.nonfinite > 0;
  if (launch.records == nullptr || launch.p == 0 || refused) return;
  state.raw_norm = norm_of_records(launch.records, launch.world, launch.p);
  state.grad_norm = state.raw_norm * state.factor;
  if (state.skip || launch.max_grad_norm == 0) return;
  const double factor = clip_factor(launch.max_grad_norm, state.grad_norm);
  state.factor *= factor;
  state.clip_factor *= factor;
}

/// Refuses the step. Many threads may call this, but all of them must give the same reason.
ZERO_ELEMENT void refuse(StepState& state, Refusal why) {
#ifdef __CUDA_ARCH__
  atomicExch(reinterpret_cast<int32_t*>(&state.refusal), static_cast<int32_t>(why));
#else
  state.refusal = why;
#endif
}

/// Runs in one thread per value.
ZERO_HOST_DEVICE inline void fetch_given(const Fetch& launch, uint32_t number) {
  const Given& given = launch.given[number];
  const double value = value_at(given.from, given.dtype);
  *given.to = value * given.factor;
  if (!given.range.allows(value)) refuse(*launch.state, Refusal::setting);
}

/// Runs in one thread per class.
ZERO_HOST_DEVICE inline void prepare_class(const Prepare& launch, uint32_t cls) {
  const ParamProgress& progress = launch.progress[launch.params[cls]];
  const double* const settings = launch.settings + static_cast<size_t>(cls) * kMaxSettings;
  launch.out[cls] = prepare_scalars(launch.optimizers[cls],
                                    {.settings = settings,
                                     .step = progress.step + 1,
                                     .live_slots = progress.live_slots,
                                     .factor = launch.state->factor,
                                     .product = progress.product},
                                    AllRules());
}

ZERO_ELEMENT bool is_made(const StepState& state) {
  return state.skip == 0 && state.refusal == Refusal::none;
}

/// Counts one more update of a parameter. `used` has the slots that it used, as bits.
ZERO_HOST_DEVICE inline void advance(ParamProgress& progress, int32_t optimizer,
                                     const double* settings, uint32_t used) {
  progress.step++;
  progress.product = next_product(optimizer,
                                  {.settings = settings,
                                   .step = progress.step,
                                   .live_slots = progress.live_slots,
                                   .product = progress.product},
                                  AllRules());
  progress.live_slots |= used;
}

/// Runs in one thread per parameter.
ZERO_HOST_DEVICE inline void advance_param(const Advance& launch, uint32_t param) {
  if (!is_made(*launch.state)) return;
  if (launch.present != nullptr && launch.present[param] == 0) return;
  const auto group = static_cast<size_t>(launch.groups[param]);
  advance(launch.progress[param], launch.optimizers[group], launch.settings + group * kMaxSettings,
          launch.used[group]);
}

/// Runs in one thread. Does not change state that advance_param() reads.
ZERO_HOST_DEVICE inline void advance_state(const Advance& launch) {
  StepState& state = *launch.state;
  if (launch.records != nullptr) state.nonfinite = nonfinite_of(launch.records, launch.world);
  const bool refused = state.refusal != Refusal::none;
  state.last_refusal = state.refusal;
  state.last_ending = refused ? Ending::refused : state.skip != 0 ? Ending::skipped : Ending::made;
  if (refused) return;
  state.last_norm = state.grad_norm;
  state.last_clip_factor = state.clip_factor;
  state.last_nonfinite = state.nonfinite;
  state.all_nonfinite += state.nonfinite;
  (state.skip != 0 ? state.skipped : state.steps)++;
  if (launch.growth_interval == 0) return;
  follow_loss_scale(state.loss_scale, state.good_steps, state.nonfinite > 0,
                    {launch.growth_factor, launch.backoff_factor, launch.growth_interval});
}

}  // namespace zero::launch
