// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Put the owned ranges of every rank's parameters, as they stand in its own memory, on all ranks.
Status share_params(Call& call, Optimizer& optim);

}  // namespace zero
