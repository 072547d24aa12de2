// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks have different numbers of batches: one rank of them, through the public header,
// and the same by one process in plain loops.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/comms.h"
#include "training.h"
#include "unsharded.h"
#include "zero.h"

namespace zero::test {

struct Uneven {
  int world = 2;
  int32_t option = ZERO_UNEVEN_WORLD;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  double lr = 0.01;
  double momentum = 0;  // of SGD
  int32_t partition = ZERO_PARTITION_EVEN;
  std::vector<size_t> sizes = {1500, 3, 700, 1};
  double loss_scale = 0;  // at the start; 0: off
  int64_t growth_interval = 0;
  bool overlaps = false;  // steps end in the background

  /// As the plain loops take it.
  Training rule() const;
};

/// The gradient of one batch.
std::vector<float> batch_gradient(const Uneven& run, size_t param, int rank, int batch);

/// The model of one process.
class Plain {
 public:
  explicit Plain(const Uneven& run);
  /// Sums over ranks in rank order, where `batches` has no number for a rank: zeros.
  void step(const std::vector<int>& batches, double factor);
  /// The same of sums that were added up otherwise, one for each parameter.
  void update(const std::vector<std::vector<float>>& sums, double factor);
  const std::vector<std::vector<float>>& params() const { return params_; }

 private:
  const Uneven run_;
  const Training rule_;
  std::vector<std::vector<float>> params_;
  std::vector<Unsharded<float>> states_;
};

/// What a mean multiplies with while `active` ranks have inputs.
double factor_of(const Uneven& run, int active);

/// A whole epoch in which rank r has counts[r] batches. `after` each step.
void train_epoch(Plain& model, const Uneven& run, const std::vector<int>& counts,
                 const std::function<void(int step)>& after = {});
/// The highest of the ranks with the most batches.
int last_of(const std::vector<int>& counts);

/// One rank.
class Seat {
 public:
  Seat(const Uneven& run, zero_comm* comm);
  ~Seat() { zero_free(optim_); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// Put the gradient of a batch where it is registered.
  void fill(int batch);
  /// Instead of it.
  void fill_with(float value);
  zero_status reduce(int32_t flags);
  zero_status step(int32_t flags = ZERO_REDUCE_MEAN);
  /// The rank that came last, or the failed status.
  int32_t join(bool with_grads = false);
  /// Bit for bit.
  ::testing::AssertionResult equals(const std::vector<std::vector<float>>& params) const;

  zero_optim* optim() const { return optim_; }
  const std::vector<std::vector<float>>& params() const { return params_; }
  std::vector<void*> grads();

 private:
  const Uneven run_;
  const int rank_;
  zero_optim* optim_ = nullptr;
  std::vector<std::vector<float>> params_, grads_;
};

/// body(seat, rank) on threads.
void on_seats(CommKind kind, const Uneven& run, const std::function<void(Seat&, int rank)>& body);

}  // namespace zero::test
