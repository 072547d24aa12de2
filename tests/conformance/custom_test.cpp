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

/// Every dtype meets every world and partition; memory, comms and what is done to gradients take
/// turns.
TEST(OwnRule, an_adamw_of_the_caller_equals_one_process_bit_for_bit) {
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (int world = 1; world <= max_world(); world++) {
      for (int32_t partition = 0; partition <= ZERO_PARTITION_MANUAL; partition++) {
        turn++;
        Training training = base(world);
        training.own_rule = true;
        training.partition = partition;
        set_kind(training, kind);
        training.names = {"lr", "beta1", "weight_decay"};
        training.values = {0.01, 0.8, 0.1};
        training.where = std::array{Where::arenas, Where::foreign, Where::mixed,
                                    Where::per_rank_arenas}[turn / 3 % 4];
        training.padded = turn % 2 == 0;
        training.missing = turn % 5 < 2;
        training.toggled = turn % 7 < 2;
        training.own_settings = turn % 3 == 0;
        training.max_grad_norm = turn % 4 == 1 ? 0.5 : 0;
        training.explicit_reduce = turn % 6 == 0;
        training.threads = turn % 5 == 0 ? 3 : 1;
        training.steps = 8;
        const CommKind comm = turn % 2 == 1 ? CommKind::user : CommKind::local;
        expect_equals_reference(training, run(training, RankKind::threads, comm),
                                std::string(kind.name) + ", " + kPartitions[partition] + ", " +
                                    kWheres[static_cast<int>(training.where)]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

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

TEST(OwnRule, scaled_clipped_accumulated_announced_and_reduced_gradients_equal_one_process) {
  for (size_t turn = 0; turn < 48; turn++) {
    Training training = base(1 + static_cast<int>(turn % 4));
    training.own_rule = true;
    set_kind(training, kKinds[turn % kKinds.size()]);
    training.partition = static_cast<int32_t>(turn / 2 % 4);
    training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn % 3];
    training.loss_scale = turn % 3 == 0 ? 1 : 12.5;
    training.wire_dtype = std::array<int32_t, 3>{0, ZERO_BFLOAT16, ZERO_FLOAT16}[turn / 2 % 3];
    training.clip_value = turn % 5 < 2 ? 0.05 : 0;
    training.max_grad_norm = turn % 7 < 4 ? 0.5 : 0;
    training.explicit_clip = training.max_grad_norm > 0 && turn % 2 == 0;
    training.micro_batches = turn % 4 == 1 ? 3 : 1;
    training.announces = turn % 4 == 2 ? 3 : 0;
    training.reduced = turn % 8 == 3;
    training.sum = turn % 9 == 0;
    training.overlaps = turn % 7 < 3;
    training.steps = 6;
    const CommKind comm = turn / 3 % 2 == 0 ? CommKind::user : CommKind::local;
    expect_equals_reference(training, run(training, RankKind::threads, comm),
                            "turn " + std::to_string(turn));
    if (HasFatalFailure()) return;
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

/// LARS, which needs whole tensors, by a partition that does not cut them.
Training whole_tensors(int world, int32_t partition) {
  Training training = base(world);
  training.own_rule = true;
  training.optimizer = ZERO_OPTIMIZER_LARS;
  training.partition = partition;
  training.names = {"lr", "weight_decay", "momentum", "trust_coefficient"};
  training.values = {0.5, 0.1, 0.9, 0.2};
  return training;
}

constexpr std::array kUncut = {ZERO_PARTITION_GREEDY, ZERO_PARTITION_GREEDY_IN_ORDER,
                               ZERO_PARTITION_MANUAL};

TEST(OwnRule, a_rule_of_whole_tensors_equals_one_process) {
  for (int world = 1; world <= max_world(); world++) {
    for (const int32_t partition : kUncut) {
      for (const CommKind comm : kCommKinds) {
        Training training = whole_tensors(world, partition);
        const Kind& kind = kKinds[static_cast<size_t>(world) % kKinds.size()];
        set_kind(training, kind);
        training.missing = world % 2 == 0;
        training.steps = 6;
        expect_equals_reference(training, run(training, RankKind::threads, comm),
                                kPartitions[partition]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(OwnRule, its_state_moves_with_its_owners_and_training_equals_one_process) {
  for (size_t turn = 0; turn < 40; turn++) {
    const int world = 1 + static_cast<int>(turn % 5);
    const bool whole = turn % 3 == 0;
    Training training = whole ? whole_tensors(world, kUncut[turn / 3 % 3]) : base(world);
    training.own_rule = true;
    if (!whole) training.partition = static_cast<int32_t>(turn / 2 % 4);
    const Kind& kind = kKinds[turn / 2 % kKinds.size()];
    set_kind(training, kind);
    training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn / 4 % 3];
    training.toggled = true;
    training.deals = {0, 3, 6, 7, 12};
    training.steps = 16;
    const CommKind comm = turn % 2 == 0 ? CommKind::local : CommKind::user;
    expect_equals_reference(training, run(training, RankKind::threads, comm),
                            "turn " + std::to_string(turn));
    if (HasFatalFailure()) return;
  }
}

TEST(OwnRule, ranks_that_join_update_their_share_and_training_equals_one_process) {
  const std::vector<std::vector<int>> epochs = {{3, 5}, {5, 0, 3}, {1, 4, 4}, {2, 6, 1, 4}};
  for (size_t turn = 0; turn < 24; turn++) {
    const std::vector<int>& epoch = epochs[turn % epochs.size()];
    Training training = base(static_cast<int>(epoch.size()));
    training.own_rule = true;
    training.epoch = epoch;
    training.uneven_inputs = turn % 2 == 0 ? ZERO_UNEVEN_WORLD : ZERO_UNEVEN_ACTIVE;
    training.partition = static_cast<int32_t>(turn / 2 % 4);
    set_kind(training, kKinds[turn % kKinds.size()]);
    training.where = turn % 3 == 0 ? Where::foreign : Where::arenas;
    training.max_grad_norm = turn % 3 == 1 ? 0.5 : 0;
    training.micro_batches = turn % 4 == 3 ? 2 : 1;
    training.announces = turn % 5 == 4 ? 3 : 0;
    training.steps = 8;
    const CommKind comm = turn / 4 % 2 == 0 ? CommKind::local : CommKind::user;
    expect_equals_reference(training, run(training, RankKind::threads, comm),
                            "turn " + std::to_string(turn));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace zero::test
