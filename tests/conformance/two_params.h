// SPDX-License-Identifier: Apache-2.0
// Ranks with two parameters and plain SGD, whose steps can be worked out by hand.
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

/// Two parameters, plain SGD with lr 1, on a comm of its own.
class Rank2 : public Optim {
 public:
  using Change = std::function<void(zero_options&)>;
  explicit Rank2(zero_comm* comm, bool arenas = true, const Change& change = {})
      : Optim(comm, options(change)) {
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
  /// A step by gradients of this value.
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

  /// True once libzero's thread has summed all that this rank owns, of `steps` steps so far.
  bool sums_all(int64_t steps) { return comes_true(&zero_statistics::early_elements, steps); }
  /// The same of updates.
  bool updates_all(int64_t steps) { return comes_true(&zero_statistics::early_updates, steps); }

  std::array<std::vector<float>, 2> data;

 private:
  static zero_options options(const Change& change) {
    zero_options options = plain_sgd(kLr1);
    if (change) change(options);
    return options;
  }
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

inline void on_two(CommKind kind, const std::function<void(Rank2&, int)>& body, bool arenas = true,
                   const Rank2::Change& change = {}) {
  on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
    Rank2 self(comm, arenas, change);
    body(self, rank);
  });
}

/// On each kind of comm of the host.
inline void on_each_two(const std::function<void(Rank2&, int)>& body,
                        const Rank2::Change& change = {}) {
  for (const CommKind kind : kCommKinds) on_two(kind, body, true, change);
}

}  // namespace zero::test
