// SPDX-License-Identifier: Apache-2.0
// From placements to addresses: makes runs to walk of what this rank owns.
#pragma once

#include "step/memory.h"

namespace zero {

/// The use of views.
enum class Views {
  of_params,  // only parameters move
  of_sums,    // gradients are summed, and the sums used after the call
  of_update   // the call uses gradients, so it may overwrite those outside arenas, too
};

/// True if nothing can fail on this rank behind the entry of a step for which it has what the last
/// one had. What differs shows in the entry. Local.
bool is_ready(const Optimizer& optim, const StepMemory& memory);

/// Derives views and runs from what the entry agreed on. Does nothing if nothing has changed.
/// Local.
Status make_views(Optimizer& optim, StepMemory& memory, Views what);

}  // namespace zero
