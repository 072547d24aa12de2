// SPDX-License-Identifier: Apache-2.0
// Returns the memory that a launch is given, and which of it the launch may change.
#pragma once

#include <vector>

#include "kernels/launches.h"
#include "support/ptx/memory.h"

namespace zero::test::ptx {

std::vector<Span> reach_of(const Launch& launch);

}  // namespace zero::test::ptx
