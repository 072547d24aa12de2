// SPDX-License-Identifier: Apache-2.0
// Runs launches on host memory, one thread after the other, with the code that devices run.
#pragma once

#include "kernels/launches.h"

namespace zero::test {

/// Does nothing if no launch updates with the rule.
void emulate(const Launch& launch);

}  // namespace zero::test
