// SPDX-License-Identifier: Apache-2.0
// From placements to addresses: what this rank owns, as runs to walk.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Derive views and runs from what the entry agreed on; nothing to do when nothing has changed.
/// `in_place`: gradients outside arenas may be overwritten too, because the call does not return
/// before they are used. `sources`: false when only parameters move. Local.
Status make_views(Optimizer& optim, StepMemory& memory, bool in_place, bool sources);

/// Forget what make_views derived.
void drop_views(StepMemory& memory);

}  // namespace zero
