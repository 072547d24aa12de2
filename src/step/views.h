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

/// True if this rank has made for the last step all that a step with the same placements and the
/// same presence of gradients needs, so that nothing of it can fail behind the entry. Local.
bool is_ready(const Optimizer& optim, const StepMemory& memory);

/// Derives views and runs from what the entry agreed on. Does nothing if nothing has changed.
/// Local.
Status make_views(Optimizer& optim, StepMemory& memory, Views what);

}  // namespace zero
