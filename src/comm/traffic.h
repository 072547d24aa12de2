// SPDX-License-Identifier: Apache-2.0
// Counts the data that a rank exchanges with ranks of other hosts. Headers of the transport,
// progress messages and failure messages are not counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace zero {

struct Traffic {
  struct Count {
    std::atomic<int64_t> bytes{0}, messages{0};

    void add(size_t of_one, int64_t of_them = 1) {
      bytes.fetch_add(static_cast<int64_t>(of_one) * of_them, std::memory_order_relaxed);
      messages.fetch_add(of_them, std::memory_order_relaxed);
    }
  };
  struct Flow {
    Count sent, received;
  };
  Flow data;     // gradients and parameters
  Flow control;  // control messages and broadcasts
};

}  // namespace zero
