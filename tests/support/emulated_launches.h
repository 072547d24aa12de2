// SPDX-License-Identifier: Apache-2.0
// Launches on the host's memory, one thread after the other, by the lines that devices run.
#pragma once

#include "kernels/launches.h"

namespace zero::test {

/// Nothing happens where no launch updates by the rule.
void emulate(const Launch& launch);

}  // namespace zero::test
