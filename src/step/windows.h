// SPDX-License-Identifier: Apache-2.0
// How calls that wait read and write an optimizer's tensors on the host.
#pragma once

#include "device/window.h"
#include "optim/optimizer.h"

namespace zero {

/// A master may stand in two places, which are seen beside each other.
struct Windows {
  Window values, remainders;
};

/// This optimizer's, made when they are asked for first: that alone can fail for lack of memory.
Result<Windows*> windows_of(Optimizer& optim);

}  // namespace zero
