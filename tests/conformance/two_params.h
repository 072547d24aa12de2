// SPDX-License-Identifier: Apache-2.0
// Ranks with two parameters and plain SGD, whose steps can be worked out by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"

namespace zero::test {

inline constexpr size_t kElements = 5000;

/// Two parameters, plain SGD with lr 1, on a comm of its own.
class Rank2 {
 public:
  using Change = std::function<void(zero_options&)>;
  explicit Rank2(zero_comm* comm, bool arenas = true, const Change& change = {}) : comm_(comm) {
    zero_options options = plain_sgd(kLr1);
    if (change) change(options);
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << last();
    if (arenas) {
      void* memory = nullptr;
      EXPECT_EQ(
          zero_arena_alloc(comm, 2 * kElements * sizeof(float), ZERO_MEMORY_PER_RANK, &memory),
          ZERO_OK);
      arena_ = static_cast<float*>(memory);
    }
    std::array<zero_param, 2> params;
    const int64_t shape = kElements;
    for (size_t i = 0; i < 2; i++) {
      ZERO_INIT(params[i]);
      data[i].assign(kElements, 0);
      own_[i].assign(kElements, 0);
      params[i].name = i == 0 ? "a" : "b";
      params[i].data = data[i].data();
      params[i].grad = grad(i);
      params[i].shape = &shape;
      params[i].ndim = 1;
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), 2, nullptr), ZERO_OK) << last();
    EXPECT_EQ(zero_seal(optim_), ZERO_OK) << last();
  }
  ~Rank2() {
    zero_free(optim_);
    if (arena_ != nullptr) zero_arena_free(arena_);
  }
  Rank2(const Rank2&) = delete;
  Rank2& operator=(const Rank2&) = delete;

  float* grad(size_t i) { return arena_ == nullptr ? own_[i].data() : arena_ + i * kElements; }
  void fill(size_t i, float value) { std::fill_n(grad(i), kElements, value); }
  zero_status ready(int64_t i) {
    return zero_grad_ready(optim_, i, grad(static_cast<size_t>(i)), nullptr);
  }
  zero_status step() { return zero_step(optim_, nullptr); }
  zero_status begin() { return zero_step_begin(optim_, nullptr); }
  zero_optim* optim() { return optim_; }
  void barrier() { EXPECT_EQ(zero_comm_barrier(comm_), ZERO_OK) << last(); }

  zero_statistics statistics() {
    auto statistics = initialized<zero_statistics>();
    EXPECT_EQ(zero_stats(optim_, &statistics), ZERO_OK);
    return statistics;
  }
  /// True once libzero's thread has summed all that this rank owns, of `steps` steps so far.
  bool sums_all(int64_t steps) {
    return comes_true([&](const zero_statistics& now) {
      return now.early_elements == steps * now.owned_elements;
    });
  }
  /// The same of updates.
  bool updates_all(int64_t steps) {
    return comes_true([&](const zero_statistics& now) {
      return now.early_updates == steps * now.owned_elements;
    });
  }

  std::array<std::vector<float>, 2> data;

 private:
  bool comes_true(const std::function<bool(const zero_statistics&)>& what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      if (what(statistics())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  zero_comm* const comm_;
  zero_optim* optim_ = nullptr;
  float* arena_ = nullptr;
  std::array<std::vector<float>, 2> own_;
};

inline void on_two(CommKind kind, const std::function<void(Rank2&, int)>& body, bool arenas = true,
                   const Rank2::Change& change = {}) {
  on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
    Rank2 self(comm, arenas, change);
    body(self, rank);
  });
}

}  // namespace zero::test
