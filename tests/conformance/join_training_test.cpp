// SPDX-License-Identifier: Apache-2.0
// Ranks that join in the middle of training of every kind: rules, dtypes, clipping, announced
// gradients, micro-batches, loss scaling.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "equivalence.h"
#include "support/expect.h"
#include "uneven.h"

namespace zero::test {
namespace {

/// `turn` chooses worlds and epochs: one rank or two leave before the others, or from the start.
Training uneven(size_t turn) {
  static const std::vector<std::vector<int>> kEpochs = {
      {3, 5}, {6, 2}, {5, 0, 3}, {1, 4, 4}, {2, 6, 1, 4}};
  const std::vector<int>& epoch = kEpochs[turn % kEpochs.size()];
  Training training = base(static_cast<int>(epoch.size()));
  training.epoch = epoch;
  training.steps = 8;
  training.uneven_inputs = turn % 2 == 0 ? ZERO_UNEVEN_WORLD : ZERO_UNEVEN_ACTIVE;
  training.partition = static_cast<int32_t>(turn / 2 % 4);
  training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn % 3];
  training.padded = turn / 3 % 2 == 0;
  return training;
}

TEST(JoinTraining, every_rule_equals_one_process) {
  std::vector<Optimizer> optimizers = kOptimizers;
  optimizers.insert(optimizers.end(), kMoreOptimizers.begin(), kMoreOptimizers.end());
  size_t turn = 0;
  for (const Optimizer& optimizer : optimizers) {
    for (int repeat = 0; repeat < 3; repeat++) {
      for (const CommKind comm : kCommKinds) {
        Training training = uneven(turn);
        training.optimizer = optimizer.number;
        training.names = optimizer.names;
        training.values = optimizer.values;
        training.max_grad_norm = turn % 3 == 0 ? 0.5 : 0;
        training.missing = turn % 4 == 1;
        training.toggled = turn % 4 == 2;
        turn++;
        expect_equals_reference(training, run(training, RankKind::threads, comm),
                                std::string(optimizer.name) + ", " + name_of(comm));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(JoinTraining, every_dtype_scaled_clipped_and_rounded_equals_one_process) {
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (int repeat = 0; repeat < 5; repeat++) {
      for (const CommKind comm : kCommKinds) {
        Training training = uneven(turn);
        set_kind(training, kind);
        training.loss_scale = turn % 3 == 0 ? 1 : 12.5;
        training.wire_dtype = std::array<int32_t, 3>{0, ZERO_BFLOAT16, ZERO_FLOAT16}[turn / 2 % 3];
        training.clip_value = turn % 4 == 0 ? 0.05 : 0;
        training.max_grad_norm = turn % 5 < 3 ? 0.5 : 0;
        training.explicit_clip = turn % 5 == 2;
        training.explicit_reduce = turn % 7 < 2;
        training.threads = turn % 6 == 0 ? 3 : 1;
        turn++;
        expect_equals_reference(training, run(training, RankKind::threads, comm),
                                std::string(kind.name) + ", " + name_of(comm));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A rank that has joined announces nothing: the others' announcements are summed in their call.
TEST(JoinTraining, announced_gradients_and_micro_batches_equal_one_process) {
  for (size_t turn = 0; turn < 20; turn++) {
    for (const CommKind comm : kCommKinds) {
      Training training = uneven(turn);
      training.announces = turn % 3 == 0 ? 0 : 4;
      training.delays = turn % 4 == 0;
      training.micro_batches = turn % 3 == 1 ? 1 : 3;
      training.max_grad_norm = turn % 5 == 0 ? 0.5 : 0;
      training.missing = turn % 7 == 0;
      training.toggled = turn % 7 == 1;
      training.optimizer = turn % 4 == 3 ? ZERO_OPTIMIZER_LAMB : ZERO_OPTIMIZER_ADAMW;
      expect_equals_reference(training, run(training, RankKind::threads, comm),
                              "turn " + std::to_string(turn) + ", " + name_of(comm));
      if (HasFatalFailure()) return;
    }
  }
}

// Without announcements of a rank that has joined nothing is updated before the step's end.
TEST(JoinTraining, steps_that_begin_before_the_backward_equal_one_process) {
  for (size_t turn = 0; turn < 30; turn++) {
    for (const CommKind comm : kCommKinds) {
      Training training = uneven(turn);
      training.begins = true;
      training.announces = turn % 3 == 0 ? 4 : 1000;
      training.delays = turn % 4 == 0;
      training.missing = turn % 7 == 0;
      training.toggled = turn % 7 == 1;
      training.loss_scale = turn % 5 == 0 ? 12.5 : 1;
      set_kind(training, kKinds[turn % kKinds.size()]);
      expect_equals_reference(training, run(training, RankKind::threads, comm),
                              "turn " + std::to_string(turn) + ", " + name_of(comm));
      if (HasFatalFailure()) return;
    }
  }
}

// A rank that has joined ends its steps in the background, too, and the epoch when they have ended.
TEST(JoinTraining, steps_that_end_in_the_background_equal_one_process) {
  for (size_t turn = 0; turn < 30; turn++) {
    for (const CommKind comm : kCommKinds) {
      Training training = uneven(turn);
      training.overlaps = true;
      training.begins = turn % 4 == 0;
      training.announces = turn % 2 == 0 ? 1000 : 0;
      training.micro_batches = turn % 4 == 1 ? 3 : 1;
      training.max_grad_norm = turn % 4 == 3 ? 0.5 : 0;
      training.toggled = turn % 7 == 1;
      set_kind(training, kKinds[turn % kKinds.size()]);
      expect_equals_reference(training, run(training, RankKind::threads, comm),
                              "turn " + std::to_string(turn) + ", " + name_of(comm));
      if (HasFatalFailure()) return;
    }
  }
}

// What has joined agrees on skipping, and has the same scale when all go on.
TEST(JoinTraining, a_dynamic_loss_scale_backs_off_and_grows_on_ranks_that_joined_too) {
  for (const CommKind kind : kCommKinds) {
    for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE}) {
      const Uneven run{.world = 3, .option = option, .loss_scale = 8, .growth_interval = 2};
      Plain model(run);
      model.step({0, 0, 0}, 1.0 / 3 / 8);
      model.step({-1, 2, 2}, factor_of(run, 2) / 4);
      model.step({-1, 3, 3}, factor_of(run, 2) / 4);
      const std::vector<std::vector<float>> epoch = model.params();
      model.step({4, 4, 4}, 1.0 / 3 / 8);
      on_seats(kind, run, [&](Seat& seat, int rank) {
        seat.fill(0);
        EXPECT_EQ(seat.step(), ZERO_OK) << last();
        if (rank != 0) {
          seat.fill(1);
          if (rank == 2) static_cast<float*>(seat.grads()[0])[1] = INFINITY;
          EXPECT_EQ(seat.step(), ZERO_SKIPPED) << last();
          for (const int batch : {2, 3}) {
            seat.fill(batch);
            EXPECT_EQ(seat.step(), ZERO_OK) << last();
          }
        } else {
          seat.fill_with(NAN);
        }
        EXPECT_EQ(seat.join(), 2) << last();
        EXPECT_TRUE(seat.equals(epoch));
        auto result = initialized<zero_result>();
        EXPECT_EQ(zero_step_result(seat.optim(), &result), ZERO_OK);
        EXPECT_EQ(result.step, 3);
        EXPECT_EQ(result.skipped, 1);
        EXPECT_EQ(result.loss_scale, 8);
        seat.fill(4);
        EXPECT_EQ(seat.step(), ZERO_OK) << last();
        EXPECT_TRUE(seat.equals(model.params()));
      });
    }
  }
}

TEST(JoinTraining, buffers_come_from_a_rank_with_inputs_and_in_the_end_from_the_last) {
  for (const CommKind kind : kCommKinds) {
    const Uneven run{.world = 4};
    on_seats(kind, run, [&](Seat& seat, int rank) {
      int64_t seen = 100 + rank;
      auto buffer = initialized<zero_buffer>();
      buffer.name = "seen";
      buffer.data = &seen;
      buffer.dtype = ZERO_INT64;
      EXPECT_EQ(zero_register_buffers(seat.optim(), &buffer, 1), ZERO_OK) << last();
      seat.fill(0);
      EXPECT_EQ(seat.step(), ZERO_OK) << last();
      if (rank == 1 || rank == 2) {
        EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 0, nullptr), ZERO_OK) << last();
        EXPECT_EQ(seen, 102) << "0 and 3 have joined";
        EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 1, nullptr), ZERO_OK) << last();
        EXPECT_EQ(seen, 102);
        seen = 200 + rank;
        EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 1, nullptr), ZERO_OK) << last();
        EXPECT_EQ(seen, 201);
        EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 4, nullptr), ZERO_ERR_ARGUMENT);
        seen = 300 + rank;
        seat.fill(1);
        if (rank == 1) {
          EXPECT_EQ(seat.step(), ZERO_OK) << last();
        }
      }
      EXPECT_EQ(seat.join(), 1) << last();
      EXPECT_EQ(seen, 301) << rank;
    });
  }
}

}  // namespace
}  // namespace zero::test
