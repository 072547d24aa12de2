// SPDX-License-Identifier: Apache-2.0
#include "step/progress.h"

#include "kernels/launch_state.h"

namespace zero {
namespace {

/// As zero_step_result tells it.
Code code_of(const StepState& state) {
  if (state.last_ending != Ending::refused)
    return state.last_ending == Ending::skipped ? ZERO_SKIPPED : ZERO_OK;
  switch (state.last_refusal) {
    case Refusal::broken:
      return ZERO_ERR_COMM;
    case Refusal::outdated:
      return ZERO_ERR_STATE;
    case Refusal::setting:
      return ZERO_ERR_ARGUMENT;
    default:
      return ZERO_ERR_NONFINITE;
  }
}

}  // namespace

StepState state_of(const Optimizer& optim, const StepState& before) {
  StepState state = before;
  state.loss_scale = optim.loss_scale.scale;
  state.good_steps = optim.loss_scale.good_steps;
  state.steps = optim.step;
  state.skipped = optim.skipped;
  return state;
}

void adopt(Optimizer& optim, const StepState& state) {
  optim.step = state.steps;
  optim.skipped = state.skipped;
  optim.loss_scale.scale = state.loss_scale;
  optim.loss_scale.good_steps = state.good_steps;
  optim.counters.nonfinite_elements = static_cast<int64_t>(state.all_nonfinite);
  optim.outcome = {.nonfinite = static_cast<int64_t>(state.last_nonfinite),
                   .grad_norm = state.last_norm,
                   .clip_factor = state.last_clip_factor,
                   .status = code_of(state)};
}

void decide(const Optimizer& optim, StepMemory& memory, launch::Decide by) {
  if (!by.again) memory.state = state_of(optim, memory.state);
  by.world = static_cast<uint32_t>(optim.world());
  by.state = &memory.state;
  launch::decide(by);
}

void advance(Optimizer& optim, StepMemory& memory) {
  const LossScaleOptions& scale = optim.options.loss_scale;
  memory.state = state_of(optim, memory.state);
  launch::advance_state({.growth_factor = scale.growth_factor,
                         .backoff_factor = scale.backoff_factor,
                         .growth_interval = scale.dynamic() ? scale.growth_interval : 0,
                         .state = &memory.state});
  adopt(optim, memory.state);
  optim.phase = Phase::open;
}

void count_updates(Optimizer& optim, const StepMemory& memory) {
  int64_t param = 0;
  for (size_t group = 0; group < optim.groups.size(); group++) {
    const std::span<const double> settings = optim.groups[group].settings;
    const uint32_t used = optim.options.rule->slots_used(settings);
    for (; param < optim.group_end(group); param++) {
      const auto index = static_cast<size_t>(param);
      if (!memory.present.empty() && !memory.present[index]) continue;
      launch::advance(optim.progress[index], optim.options.optimizer, settings.data(), used);
    }
  }
  // Views stay, but a class is found by its steps: a first update also changes which slots are
  // live.
}

}  // namespace zero
