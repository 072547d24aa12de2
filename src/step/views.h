// SPDX-License-Identifier: Apache-2.0
// Turns placements into views and runs, which have the addresses of what this rank owns.
#pragma once

#include "step/memory.h"

namespace zero {

/// The purpose of views.
enum class Views {
  of_params,  // only parameters are copied
  of_sums,    // gradients are summed, and the sums are used after the call
  of_update   // sums are used within the call, so they may also overwrite gradients outside arenas
};

/// Returns true if the previous step has left everything that a step with the same placements and
/// the same present gradients needs, so that nothing can fail on this rank after the entry. Local.
bool is_ready(const Optimizer& optim, const StepMemory& memory);

/// Makes views and runs from the results of the entry. Does nothing if they are up to date. Local.
Status make_views(Optimizer& optim, StepMemory& memory, Views what);

}  // namespace zero
