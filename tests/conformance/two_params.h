// SPDX-License-Identifier: Apache-2.0
// Ranks with two parameters and plain SGD, whose steps are easy to compute.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "support/optim.h"

namespace zero::test {

inline constexpr size_t kElements = 5000;

/// Two parameters, and plain SGD with lr 1, on a comm of its own.
class Rank2 : public Optim {
 public:
  using Change = std::function<void(zero_options&)>;
  explicit Rank2(zero_comm* comm, bool arenas = true, const Change& change = {})
      : Optim(comm, plain_sgd(kLr1, change)) {
    if (arenas) arena_.emplace(comm, 2 * kElements * sizeof(float));
    static constexpr int64_t kShape = kElements;
    std::vector<zero_param> params;
    for (size_t i = 0; i < 2; i++) {
      data[i].assign(kElements, 0);
      own_[i].assign(kElements, 0);
      params.push_back(parameter(i == 0 ? "a" : "b", kShape, data[i].data(), grad(i)));
    }
    add(params);
    seal();
  }
  ~Rank2() { free(); }

  float* grad(size_t i) { return arena_ ? arena_->floats() + i * kElements : own_[i].data(); }
  void fill(size_t i, float value) { std::fill_n(grad(i), kElements, value); }
  void fill_all(float value) {
    for (const size_t i : {0, 1}) fill(i, value);
  }
  /// Takes a step with gradients of this value.
  void train(float value) {
    fill_all(value);
    EXPECT_OK(step());
  }
  zero_status ready(int64_t i) {
    return zero_grad_ready(optim(), i, grad(static_cast<size_t>(i)), nullptr);
  }
  void announce_all() {
    for (const int64_t i : {0, 1}) EXPECT_OK(ready(i));
  }
  void barrier() { EXPECT_OK(zero_comm_barrier(comm())); }

  /// Returns true once libzero's thread has summed all that this rank owns, in `steps` steps so
  /// far.
  bool sums_all(int64_t steps) { return comes_true(&zero_statistics::early_elements, steps); }
  /// Does the same for updates.
  bool updates_all(int64_t steps) { return comes_true(&zero_statistics::early_updates, steps); }

  std::array<std::vector<float>, 2> data;

 private:
  bool comes_true(int64_t zero_statistics::*early, int64_t steps) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      const zero_statistics now = statistics();
      if (now.*early == steps * now.owned_elements) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  std::optional<Arena> arena_;
  std::array<std::vector<float>, 2> own_;
};

/// Gradients are in arenas unless `foreign`.
struct Two {
  Rank2::Change change = {};
  bool foreign = false;
};
inline void on_two(CommKind kind, const Two& how, const std::function<void(Rank2&, int)>& body) {
  on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
    Rank2 self(comm, !how.foreign, how.change);
    body(self, rank);
  });
}
inline void on_two(CommKind kind, const std::function<void(Rank2&, int)>& body) {
  on_two(kind, {}, body);
}

/// Runs on each kind of host comm.
inline void on_each_two(const std::function<void(Rank2&, int)>& body, const Two& how = {}) {
  for (const CommKind kind : kCommKinds) on_two(kind, how, body);
}

/// Gradients that are announced one by one, the last first, are summed before the call that needs
/// them. After zero_step_begin, they have also updated parameters by then.
inline bool is_done_early(Rank2& self, int steps, bool begins) {
  return begins ? self.updates_all(steps) : self.sums_all(steps);
}
inline void expect_done_early(bool begins) {
  on_two(CommKind::local, [&](Rank2& self, int rank) {
    for (int step = 1; step <= 3; step++) {
      if (begins) {
        EXPECT_OK(self.begin());
      }
      for (const size_t i : {size_t{1}, size_t{0}}) {
        self.fill(i, static_cast<float>(rank + 1));
        EXPECT_OK(self.ready(static_cast<int64_t>(i)));
      }
      EXPECT_TRUE(is_done_early(self, step, begins)) << "step " << step;
      EXPECT_OK(self.step());
      EXPECT_EQ(self.data[0][kElements - 1], -1.5f * static_cast<float>(step));
      EXPECT_EQ(self.data[1][0], -1.5f * static_cast<float>(step));
    }
  });
}
/// Does the same in groups of two of four ranks.
inline void expect_done_early_by_groups(bool begins) {
  on_ranks(CommKind::local, 4, [&](zero_comm* comm, int rank) {
    zero_comm* half = nullptr;
    ASSERT_OK(zero_comm_split(&half, comm, rank % 2, 0));
    {
      Rank2 self(half);
      for (int step = 1; step <= 2; step++) {
        if (begins) {
          EXPECT_OK(self.begin());
        }
        self.fill(0, static_cast<float>(rank));
        self.fill(1, 1);
        self.announce_all();
        EXPECT_TRUE(is_done_early(self, step, begins));
        EXPECT_OK(self.step());
      }
      EXPECT_EQ(self.data[0][7], rank % 2 == 0 ? -2.0f : -4.0f);
      EXPECT_EQ(self.data[1][7], -2.0f);
    }
    zero_comm_free(half);
  });
}

}  // namespace zero::test
