// SPDX-License-Identifier: Apache-2.0
#include "step/progress.h"

namespace zero {

void count_updates(Optimizer& optim, const StepMemory& memory) {
  int64_t i = 0;
  for (size_t group = 0; group < optim.groups.size(); group++) {
    const Rule& rule = *optim.options.rule;
    const std::span<const double> settings = optim.groups[group].settings;
    const uint32_t used = rule.slots_used(settings);
    for (; i < optim.group_end(group); i++) {
      const auto param = static_cast<size_t>(i);
      if (!memory.present.empty() && !memory.present[param]) continue;
      ParamProgress& progress = optim.progress[param];
      progress.step++;
      if (rule.next_product != nullptr) {
        progress.product = rule.next_product({.settings = settings.data(),
                                              .step = progress.step,
                                              .live_slots = progress.live_slots,
                                              .factor = 1,
                                              .product = progress.product});
      }
      progress.live_slots |= used;
    }
  }
  // Views stay, but a class is found by its steps: a first update also changes which slots are
  // live.
}

}  // namespace zero
