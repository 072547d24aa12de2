// SPDX-License-Identifier: Apache-2.0
#include "step/progress.h"

#include "kernels/launch_state.h"

namespace zero {
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

void decide(Optimizer& optim, launch::Decide by) {
  by.world = 1;  // the records of all ranks have been combined into one
  by.state = &optim.state;
  launch::decide(by);
}

void advance(Optimizer& optim) {
  const OptimizerOptions& options = optim.options;
  launch::advance_state({.growth_factor = options.growth_factor,
                         .backoff_factor = options.backoff_factor,
                         .growth_interval = options.scales_loss() ? options.growth_interval : 0,
                         .state = &optim.state});
  optim.last_step = code_of(optim.state);
  optim.phase = Phase::open;
}

void count_updates(Optimizer& optim, const StepMemory& memory) {
  int64_t param = 0;
  for (size_t group = 0; group < optim.groups.size(); group++) {
    const Group& of = optim.groups[group];
    const uint32_t used = of.slots_used();
    for (; param < optim.group_end(group); param++) {
      if (memory.is_present(param))
        launch::advance(optim.progress[static_cast<size_t>(param)], of.rule->number,
                        of.settings.data(), used);
    }
  }
  // Views stay valid, because all parameters of a class advance in the same way.
}

}  // namespace zero
