// SPDX-License-Identifier: Apache-2.0
// The two ways to walk a step. Both leave reduced gradients where views say, and new parameters
// everywhere.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"
#include "step/norm.h"

namespace zero::direct {

/// Owners read every rank's gradients and write every rank's parameters.
NormSums sum(Call& call, Optimizer& optim, StepMemory& memory, double p);
/// Owners have stored their parameters: ranks whose own are in no arena fetch theirs; then all are
/// done. `nonfinite` is summed over ranks.
Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite);

}  // namespace zero::direct

namespace zero::collective {

/// Reduce-scatter, transfer by transfer, packing what does not lie as the plan lays it out.
Result<NormSums> sum(Call& call, Optimizer& optim, StepMemory& memory, double p);
/// All-gather of the owned parameters.
Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite);

}  // namespace zero::collective
