// SPDX-License-Identifier: Apache-2.0
// Training gives the same results with any timing of announcements and waits, while owners change
// and ranks join.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "equivalence.h"
#include "support/nightly.h"
#include "support/watched.h"
#include "uneven.h"

namespace zero::test {
namespace {

// ---- Timing

struct Rhythm {
  const char* name;
  uint64_t runs, nightly_runs;
  bool begins = false, overlaps = false;
};

class Rhythms : public ::testing::TestWithParam<Rhythm> {};

INSTANTIATE_TEST_SUITE_P(, Rhythms,
                         ::testing::Values(Rhythm{"announced", 300, 1000},
                                           Rhythm{"begun", 150, 2000, true},
                                           Rhythm{"overlapped", 150, 2000, false, true}),
                         [](const auto& info) { return info.param.name; });

/// Returns a training with random properties from a seed that announcements can be combined with.
Training drawn(const Rhythm& rhythm, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto first, auto... others) {
    const decltype(first) all[] = {first, others...};
    return all[random() % std::size(all)];
  };
  Training training = base(one_of(1, 2, 3, 4));
  training.seed = seed;
  training.steps = 3;
  training.delays = true;
  training.overlaps = rhythm.overlaps;
  training.begins = rhythm.begins || (rhythm.overlaps && one_of(false, true));
  training.announces = rhythm.overlaps ? one_of(0, 1000, 3) : one_of(1000, 3);
  training.where = one_of(Where::arenas, Where::mixed, Where::per_rank_arenas, Where::foreign);
  training.partition = one_of(ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                              ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL);
  training.missing = one_of(true, false, false, false, false);
  training.max_grad_norm = training.begins ? 0 : one_of(0.0, 0.5);
  training.sizes = {5, 1100, 64, 2049, 0, 700};
  // Occasionally longer than what owners publish at once.
  if (rhythm.overlaps && seed % 40 == 0) training.sizes = {5, 400'000, 64, 600'049};
  if (rhythm.overlaps && seed % 80 == 0) training.bucket_bytes = 4'000'000;
  return training;
}

/// Hundreds of orders and timings of legal announcements and waits change no bit, although
/// parameters may change meanwhile. Every parameter is new after a wait for it.
TEST_P(Rhythms, no_order_of_calls_and_no_delay_changes_a_bit) {
  const Watched dawdling(dawdle);
  for (uint64_t seed = 0; seed < (nightly_run() ? GetParam().nightly_runs : GetParam().runs);
       seed++) {
    expect_equals_reference(drawn(GetParam(), seed), "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

void fall_behind(const char* point) {
  if (std::string_view(point) == "apply.told")
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// Tensors that LAMB updates in its first walk are published together with later ones.
TEST(Rhythm, tensors_that_are_stepped_early_are_told_of_in_their_turn) {
  const Watched falling(fall_behind);
  Training training = base(2);
  training.overlaps = true;
  training.optimizer = ZERO_OPTIMIZER_LAMB;
  training.partition = ZERO_PARTITION_GREEDY;
  training.threads = 2;
  training.sizes = {5, 600'049, 64, 400'000, 7000, 1'010'000};  // more than is published at once
  training.bucket_bytes = 4'000'000;
  training.steps = 3;
  expect_equals_reference(training, "LAMB");
}

// ---- Owners change

// Norms are rounded sums of pieces, which must not change with the owners.
TEST(RebalanceTraining, changes_no_bit_of_a_norm) {
  for (const CommKind comm : kCommKinds) {
    for (const int32_t partition : kPartitions) {
      for (const int32_t rule : {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_LAMB}) {
        Training training = base(3);
        training.partition = partition;
        training.dtypes = {{ZERO_FLOAT64, ZERO_FLOAT64}};
        training.padded = true;
        training.toggled = true;  // so that each deal changes owners
        training.steps = 16;
        training.deals = {0, 3, 6, 7, 12};
        training.optimizer = rule;
        training.max_grad_norm = 0.5;
        const std::vector<Outcome> moved = run(training, comm);
        training.deals.clear();
        const std::vector<Outcome> still = run(training, comm);
        ASSERT_EQ(moved[0].error, "");
        expect_same_bits(moved[0].norms, still[0].norms, 0, "norms");
        expect_same_bits(moved[0].params, still[0].params, 0, "parameters");
      }
    }
  }
}

// ---- Ranks join

// Joined ranks agree to skip, and have the same scale when all continue.
TEST(JoinTraining, a_dynamic_loss_scale_backs_off_and_grows_on_ranks_that_joined_too) {
  for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE}) {
    const Uneven run{.world = 3, .option = option, .loss_scale = 8, .growth_interval = 2};
    Plain model(run);
    model.step({0, 0, 0}, 1.0 / 3 / 8);
    model.step({-1, 2, 2}, factor_of(run, 2) / 4);
    model.step({-1, 3, 3}, factor_of(run, 2) / 4);
    const std::vector<std::vector<float>> epoch = model.params();
    model.step({4, 4, 4}, 1.0 / 3 / 8);
    on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
      seat.train(0);
      if (rank != 0) {
        seat.fill(1);
        if (rank == 2) static_cast<float*>(seat.grads()[0])[1] = INFINITY;
        EXPECT_EQ(seat.step(), ZERO_SKIPPED) << last();
        for (const int batch : {2, 3}) {
          seat.train(batch);
        }
      } else {
        seat.fill_with(NAN);
      }
      EXPECT_EQ(seat.join(), 2) << last();
      EXPECT_TRUE(seat.equals(epoch));
      const zero_result result = seat.result();
      EXPECT_EQ(result.step, 3);
      EXPECT_EQ(result.skipped, 1);
      EXPECT_EQ(result.loss_scale, 8);
      seat.train(4);
      EXPECT_TRUE(seat.equals(model.params()));
    });
  }
}

TEST(JoinTraining, buffers_come_from_a_rank_with_inputs_and_in_the_end_from_the_last) {
  const Uneven run{.world = 4};
  on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
    int64_t seen = 100 + rank;
    const std::vector<int64_t> scalar;
    EXPECT_OK(seat.add_buffer(buffer("seen", scalar, &seen, ZERO_INT64)));
    seat.train(0);
    if (rank == 1 || rank == 2) {
      EXPECT_OK(zero_broadcast_buffers(seat.optim(), 0, nullptr));
      EXPECT_EQ(seen, 102) << "0 and 3 have joined";
      EXPECT_OK(zero_broadcast_buffers(seat.optim(), 1, nullptr));
      EXPECT_EQ(seen, 102);
      seen = 200 + rank;
      EXPECT_OK(zero_broadcast_buffers(seat.optim(), 1, nullptr));
      EXPECT_EQ(seen, 201);
      EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 4, nullptr), ZERO_ERR_ARGUMENT);
      seen = 300 + rank;
      seat.fill(1);
      if (rank == 1) {
        EXPECT_OK(seat.step());
      }
    }
    EXPECT_EQ(seat.join(), 1) << last();
    EXPECT_EQ(seen, 301) << rank;
  });
}

// ---- Steps like the one before, which need shorter messages

TEST(SteadyTraining, all_ranks_follow_the_gradients_of_one_to_another_arena) {
  on_ranks(CommKind::local, 3, [](zero_comm* comm, int rank) {
    constexpr int64_t kSize = 5000;
    const Arena data(comm, sizeof(float) * kSize), here(comm, sizeof(float) * kSize),
        there(comm, sizeof(float) * kSize);
    std::fill_n(here.floats(), kSize, 1.0f);
    std::fill_n(there.floats(), kSize, 4.0f);
    Optim optim(comm, options_with([](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_SGD; }),
                {{"lr", 1}});
    optim.add(parameter("w", kSize, data.floats(), here.floats()));
    float at = 0;
    for (const bool elsewhere : {false, false, false, true, true, true, false, true}) {
      EXPECT_OK(optim.step_with({elsewhere && rank == 1 ? there.floats() : here.floats()}));
      at -= elsewhere ? 2 : 1;  // the mean of 1, 4 and 1
      EXPECT_EQ(data.floats()[0], at);
      EXPECT_EQ(data.floats()[kSize - 1], at);
    }
    optim.free();
  });
}

}  // namespace
}  // namespace zero::test
