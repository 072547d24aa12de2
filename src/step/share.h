// SPDX-License-Identifier: Apache-2.0
// This rank's share, dealt over its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "device/thread_pool.h"

namespace zero {

/// Let thread t of the pool walk its part of `total` elements, cut at multiples of `step`.
void deal_out(ThreadPool& pool, int64_t total, int64_t step,
              const std::function<void(int thread, int64_t begin, int64_t end)>& walk);

/// Elements: a tile of every stream fits the first-level cache, for what is read a second time.
inline constexpr int64_t kTile = 2048;

/// Stands for a gradient that a rank does not have.
alignas(64) inline constexpr std::byte kZeros[kTile * sizeof(double)] = {};

}  // namespace zero
