// SPDX-License-Identifier: Apache-2.0
// Training in which owners move computes what it would have computed.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "equivalence.h"

namespace zero::test {
namespace {

/// Parameters freeze and thaw, so that each deal gives tensors other owners.
Training dealt(size_t turn) {
  Training training = base(1 + static_cast<int>(turn % 5));
  training.partition = static_cast<int32_t>(turn / 2 % 4);
  training.where =
      std::array{Where::arenas, Where::foreign, Where::mixed, Where::per_rank_arenas}[turn / 3 % 4];
  training.padded = turn % 2 == 0;
  training.toggled = true;
  training.steps = 16;
  training.deals = {0, 3, 6, 7, 12};
  return training;
}

TEST(RebalanceTraining, leaves_processes_equal_to_one) {
  for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
    Training training = dealt(2);
    training.partition = partition;
    training.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}, {ZERO_FLOAT32, ZERO_FLOAT32}};
    training.master = ZERO_MASTER_REMAINDER;
    expect_equals_reference(training, as_processes(training), kPartitions[partition]);
  }
}

// Norms are rounded sums of pieces, which may not change with what is dealt where.
TEST(RebalanceTraining, changes_no_bit_of_a_norm) {
  for (const CommKind comm : kCommKinds) {
    for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
      for (const int32_t rule : {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_LAMB}) {
        Training training = dealt(2);
        training.partition = partition;
        training.optimizer = rule;
        training.dtypes = {{ZERO_FLOAT64, ZERO_FLOAT64}};
        training.max_grad_norm = 0.5;
        const std::vector<Rank> moved = run(training, RankKind::threads, comm);
        training.deals.clear();
        const std::vector<Rank> still = run(training, RankKind::threads, comm);
        ASSERT_EQ(moved[0].error, "");
        expect_same_bits(moved[0].outcome.norms, still[0].outcome.norms, 0, "norms");
        expect_same_bits(moved[0].outcome.params, still[0].outcome.params, 0, "parameters");
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
