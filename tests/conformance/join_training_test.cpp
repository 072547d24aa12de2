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
