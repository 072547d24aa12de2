// SPDX-License-Identifier: Apache-2.0
// From placements to addresses: what this rank owns, as runs to walk.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// What views are for.
enum class Views {
  of_params,  // only those move
  of_sums,    // of gradients, which are used when the call has returned
  of_update   // gradients outside arenas may be overwritten too, as the call uses them
};

/// Derive views and runs from what the entry agreed on; nothing to do when nothing has changed.
/// Local.
Status make_views(Optimizer& optim, StepMemory& memory, Views what);

/// Forget what make_views derived.
void drop_views(StepMemory& memory);

}  // namespace zero
