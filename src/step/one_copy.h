// SPDX-License-Identifier: Apache-2.0
// What ranks put into memory of which there is one copy for all: a parameter lies at one place, a
// gradient where nobody else has anything.
#pragma once

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// Inside a seal: whether what is registered lies there as it must, on all ranks together.
Status check_one_copy(Call& call, const Optimizer& optim);

/// This rank's gradients of the call at hand against those of the others, whose tables are read.
Status check_grads_apart(const Optimizer& optim, const StepMemory& memory);

/// A parameter's place on this rank against that on another.
Status check_same_place(const Optimizer& optim, int64_t param, const Location& own, int32_t rank,
                        const Location& theirs);

}  // namespace zero
