// SPDX-License-Identifier: Apache-2.0
#include "step/share.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/float_environment.h"

namespace zero {

void deal_out(ThreadPool& pool, int64_t total, int64_t step,
              const std::function<void(int thread, int64_t begin, int64_t end)>& walk) {
  const int threads = pool.threads();
  const FloatEnvironment environment;  // an engine's collective may have left another
  if (threads == 1) return walk(0, 0, total);
  const int64_t part = round_up(total / threads + 1, step);
  pool.run([&](int thread) {
    const int64_t begin = std::min(total, part * thread);
    const int64_t end = std::min(total, begin + part);
    if (begin < end) walk(thread, begin, end);
  });
}

}  // namespace zero
