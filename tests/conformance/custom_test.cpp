// SPDX-License-Identifier: Apache-2.0
// An update rule of the caller's own: the bits of the same rule compiled in, wherever parameters
// lie, whoever owns them, while they freeze, owners move and ranks join.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "equivalence.h"

namespace zero::test {
namespace {

TEST(OwnRule, an_adamw_of_the_caller_has_the_bits_of_the_one_compiled_in) {
  for (int world = 1; world <= 3; world++) {
    Training training = base(world);
    training.dtypes = kKinds.back().dtypes;
    training.max_grad_norm = 0.3;
    const std::vector<Rank> compiled_in = as_threads(training);
    training.own_rule = true;
    const std::vector<Rank> own = as_threads(training);
    ASSERT_EQ(own[0].error, "");
    expect_same_bits(own[0].outcome.params, compiled_in[0].outcome.params, 0, "own");
    expect_same_bits(own[0].outcome.norms, compiled_in[0].outcome.norms, 0, "own");
  }
}

TEST(OwnRule, ranks_as_processes_equal_one_process) {
  for (const Where where : {Where::arenas, Where::foreign}) {
    Training training = base(3);
    training.own_rule = true;
    training.where = where;
    expect_equals_reference(training, as_processes(training), "processes");
  }
}

}  // namespace
}  // namespace zero::test
