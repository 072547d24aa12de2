// SPDX-License-Identifier: Apache-2.0
// The one range of step counts: what a program sets, a checkpoint holds and a load takes.
#pragma once

#include <cstdint>

namespace zero {

/// 2^53: up to there a double is exact.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

}  // namespace zero
