// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks have different numbers of batches: one rank through the public header, and the
// same run by one process in plain loops.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
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
  double loss_scale = 0;  // initial value; 0: off
  int64_t growth_interval = 0;
  bool overlaps = false;  // steps end in the background

  zero_options options() const;
  /// Returns the same run for the plain loops.
  Training rule() const;
};

/// Returns the gradient of one batch.
std::vector<float> batch_gradient(const Uneven& run, size_t param, int rank, int batch);

/// The model of one process.
class Plain {
 public:
  explicit Plain(const Uneven& run);
  /// Sums over ranks in rank order. A rank without a batch in `batches` contributes zeros.
  void step(const std::vector<int>& batches, double factor);
  /// Does the same with given sums, one for each parameter.
  void update(const std::vector<std::vector<float>>& sums, double factor);
  const std::vector<std::vector<float>>& params() const { return params_; }

 private:
  const Uneven run_;
  const Training rule_;
  std::vector<std::vector<float>> params_;
  std::vector<Unsharded<float>> states_;
};

/// Returns the factor of a mean while `active` ranks have inputs.
double factor_of(const Uneven& run, int active);

/// Runs a whole epoch in which rank r has counts[r] batches. Calls `after` after each step.
void train_epoch(Plain& model, const Uneven& run, const std::vector<int>& counts,
                 const std::function<void(int step)>& after = {});
/// Returns the highest of the ranks with the most batches.
int last_of(const std::vector<int>& counts);

/// One rank.
class Seat : public Optim {
 public:
  template <class Joined>
  Seat(const Uneven& run, Joined comm)
      : Optim(comm, run.options(), run.rule().settings), run_(run) {
    register_all();
  }
  ~Seat() { free(); }

  /// Writes the gradient of a batch to the registered memory.
  void fill(int batch);
  /// Takes a step with it.
  void train(int batch) {
    fill(batch);
    EXPECT_OK(step());
  }
  /// Writes this value instead of the gradient of a batch.
  void fill_with(float value);
  /// Returns the rank that arrived last, or the failed status.
  int32_t join(bool with_grads = false);
  /// Compares bitwise.
  ::testing::AssertionResult equals(const std::vector<std::vector<float>>& params) const;

  const std::vector<std::vector<float>>& params() const { return params_; }
  std::vector<void*> grads();

 private:
  void register_all();

  const Uneven run_;
  std::vector<std::vector<float>> params_, grads_;
};

/// Runs body(seat, rank) on threads.
void on_seats(CommKind kind, const Uneven& run, const std::function<void(Seat&, int rank)>& body);
/// Does the same on each kind of host comm.
void on_seats_of_each_comm(const Uneven& run, const std::function<void(Seat&, int rank)>& body);

}  // namespace zero::test
