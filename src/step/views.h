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

/// Derives views and runs from what the entry agreed on. Does nothing if nothing has changed.
/// Local.
Status make_views(Optimizer& optim, StepMemory& memory, Views what);

}  // namespace zero
