// SPDX-License-Identifier: Apache-2.0
// That ranks start from the same parameters, which a forgotten broadcast would be the end of.
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// The vote "ready" of a call that uses gradients, or will. The first one behind a seal compares
/// what was sealed, unless parameters were broadcast or loaded since: ZERO_ERR_MISMATCH where they
/// differ. Nothing is compared in a call that is captured.
Status vote_ready(Call& call, Optimizer& optim, Status ready);

}  // namespace zero
