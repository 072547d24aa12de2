// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step/memory.h"

namespace zero {

/// Every parameter with a gradient has made one more update.
void count_updates(Optimizer& optim, const StepMemory& memory);

}  // namespace zero
