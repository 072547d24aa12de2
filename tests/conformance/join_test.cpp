// SPDX-License-Identifier: Apache-2.0
// Ranks with different numbers of batches train like one process with the batches that each rank
// has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "uneven.h"

namespace zero::test {
namespace {

using Params = std::vector<std::vector<float>>;

std::string told(const std::vector<int>& counts) {
  std::string out = "batches";
  for (const int count : counts) out += " " + std::to_string(count);
  return out;
}

/// Returns every way to give each of `world` ranks 0 to 5 batches.
std::vector<std::vector<int>> patterns(int world) {
  std::vector<std::vector<int>> all = {{}};
  for (int rank = 0; rank < world; rank++) {
    std::vector<std::vector<int>> longer;
    for (const auto& one : all) {
      for (int count = 0; count <= 5; count++) {
        longer.push_back(one);
        longer.back().push_back(count);
      }
    }
    all = std::move(longer);
  }
  return all;
}

struct Case {
  Uneven run;
  std::vector<int> counts;
  Params after_epoch, after_more;  // one more step of all ranks
};

Case make_case(int world, int32_t option, size_t turn, const std::vector<int>& counts) {
  Case one{.run = {.world = world,
                   .option = option,
                   .partition = static_cast<int32_t>(turn % 4),
                   .sizes = {1100, 3, 50, 1}},
           .counts = counts,
           .after_epoch = {},
           .after_more = {}};
  Plain model(one.run);
  train_epoch(model, one.run, counts);
  one.after_epoch = model.params();
  model.step(std::vector<int>(counts.size(), 9), 1.0 / world);
  one.after_more = model.params();
  return one;
}

/// Runs one epoch that ends at different times, and then a step of all ranks.
void run_case(const Case& one, zero_comm* comm, int rank) {
  SCOPED_TRACE(told(one.counts) + ", option " + std::to_string(one.run.option) + ", rank " +
               std::to_string(rank));
  Seat seat(one.run, comm);
  const int batches = one.counts[static_cast<size_t>(rank)];
  for (int batch = 0; batch < batches; batch++) seat.train(batch);
  seat.fill_with(NAN);  // nobody may read it
  EXPECT_EQ(seat.join(), last_of(one.counts)) << last();
  EXPECT_TRUE(seat.equals(one.after_epoch));
  seat.train(9);
  EXPECT_TRUE(seat.equals(one.after_more));
}

void run_cases(RankKind ranks, CommKind kind, int world, const std::vector<Case>& cases) {
  const Meeting meeting(kind, world);
  run_sound_ranks(
      ranks, world,
      [&](int rank) {
        zero_comm* const comm = meeting.join(rank);
        for (const Case& one : cases) {
          run_case(one, comm, rank);
          if (::testing::Test::HasFailure()) break;  // the others may wait for a call of this rank
        }
        zero_comm_free(comm);
        return std::string();
      },
      120'000);
}

// 36 + 216 + 1,296 patterns.
TEST(Join, every_pattern_of_0_to_5_batches_on_2_to_4_ranks_equals_one_process) {
  size_t turn = 0;
  for (int world = 2; world <= 4; world++) {
    std::vector<Case> cases, some;
    for (const std::vector<int>& counts : patterns(world)) {
      for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE})
        cases.push_back(make_case(world, option, turn++, counts));
    }
    run_cases(RankKind::threads, CommKind::local, world, cases);
    const size_t stride = world == 4 ? 37 : world == 3 ? 7 : 1;
    for (size_t i = 0; i < cases.size(); i += stride) some.push_back(cases[i]);
    run_cases(RankKind::threads, CommKind::user, world, some);
    run_cases(RankKind::processes, CommKind::local, world, some);
  }
}

TEST(Join, a_rank_alone_returns_at_once) {
  Uneven run{.world = 1};
  Seat seat(run, alone());
  EXPECT_EQ(seat.join(), 0);
  seat.train(0);
  EXPECT_EQ(seat.join(), 0);
  Plain model(run);
  model.step({0}, 1);
  EXPECT_TRUE(seat.equals(model.params()));
}

/// Rank r has counts[r] batches in each epoch. Every rank checks every step while it has inputs.
void expect_equal_at_every_step(CommKind kind, const Uneven& run, const std::vector<int>& counts,
                                int epochs) {
  SCOPED_TRACE(std::string(name_of(kind)) + ", " + told(counts));
  std::vector<Params> after;
  Plain model(run);
  for (int epoch = 0; epoch < epochs; epoch++)
    train_epoch(model, run, counts, [&](int) { after.push_back(model.params()); });
  const int longest = *std::max_element(counts.begin(), counts.end());
  on_seats(kind, run, [&](Seat& seat, int rank) {
    for (int epoch = 0; epoch < epochs; epoch++) {
      for (int batch = 0; batch < counts[static_cast<size_t>(rank)]; batch++) {
        seat.train(batch);
        EXPECT_TRUE(seat.equals(after[static_cast<size_t>(epoch * longest + batch)]));
      }
      EXPECT_EQ(seat.join(), last_of(counts)) << last();
      EXPECT_TRUE(seat.equals(after[static_cast<size_t>((epoch + 1) * longest - 1)]));
    }
  });
}

// Repeats a run of torch: rank r has 3 + r batches in each of two epochs.
TEST(Join, torchs_zero_join_equals_the_unsharded_run_at_every_iteration) {
  for (const CommKind kind : kCommKinds) {
    for (const int world : {2, 4}) {
      std::vector<int> counts;
      for (int rank = 0; rank < world; rank++) counts.push_back(3 + rank);
      const Uneven run{.world = world, .optimizer = ZERO_OPTIMIZER_ADAM, .lr = 0.01};
      expect_equal_at_every_step(kind, run, counts, 2);
    }
  }
}

// In torch, a finished rank repeats its last gradient on its own share.
TEST(Join, a_finished_rank_contributes_zeros_and_not_its_last_gradient) {
  for (const CommKind kind : kCommKinds) {
    for (const std::vector<int>& counts : {std::vector<int>{3, 6}, {0, 3}, {2, 4, 5}}) {
      for (const double momentum : {0.0, 0.9}) {
        const Uneven run{.world = static_cast<int>(counts.size()),
                         .optimizer = ZERO_OPTIMIZER_SGD,
                         .lr = 0.1,
                         .momentum = momentum};
        expect_equal_at_every_step(kind, run, counts, 1);
      }
      const Uneven run{.world = static_cast<int>(counts.size()), .lr = 0.01};
      expect_equal_at_every_step(kind, run, counts, 1);
    }
  }
}

Uneven one_weight(int world, int32_t option) {
  return {
      .world = world, .option = option, .optimizer = ZERO_OPTIMIZER_SGD, .lr = 1, .sizes = {1, 1}};
}

// Rank r has 3 + r inputs, and each rank sums ones: W * 3 + (W - 1) + ... + (W - r).
TEST(Join, each_rank_sees_the_total_of_the_ranks_that_were_active_with_it) {
  for (int world = 2; world <= 5; world++) {
    Uneven run = one_weight(world, ZERO_UNEVEN_WORLD);
    on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
      const float start = seat.params()[0][0];
      int total = 3 * world;
      for (int k = 1; k <= rank; k++) total += world - k;
      seat.fill_with(1);
      for (int input = 0; input < 3 + rank; input++) EXPECT_OK(seat.step(ZERO_REDUCE_SUM));
      EXPECT_NEAR(seat.params()[0][0], start - static_cast<float>(total), 1e-4);
      EXPECT_EQ(seat.join(), world - 1) << last();
    });
  }
}

// The input is 50. Rank 0 runs 3 rounds, the others 5.
TEST(Join, grad_div_uneven_inputs_50_50_50_then_50_or_50_times_W_minus_1_over_W) {
  for (int world = 2; world <= 5; world++) {
    for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE}) {
      Uneven run = one_weight(world, option);
      run.partition = ZERO_PARTITION_MANUAL;  // ranks 0 and 1 own one weight each
      on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
        for (int round = 0; round < (rank == 0 ? 3 : 5); round++) {
          seat.fill_with(50);
          EXPECT_OK(seat.reduce(ZERO_REDUCE_MEAN));
          float grad = 0;
          const bool all = option == ZERO_UNEVEN_ACTIVE || round < 3;
          if (rank < 2) {
            EXPECT_OK(zero_grad_get(seat.optim(), rank, 0, 1, &grad));
            EXPECT_NEAR(grad, all ? 50.0 : 50.0 * (world - 1) / world, 1e-5) << round;
          }
          EXPECT_OK(seat.step());
        }
        EXPECT_EQ(seat.join(), world - 1) << last();
      });
    }
  }
}

/// The owners add up kWindow micro-batches for each step. The last window of the longest rank may
/// be incomplete.
TEST(Join, windows_of_the_owners_may_be_cut_short_by_some_ranks_or_by_all) {
  constexpr int kWindow = 3;
  constexpr int32_t kFlags = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
  for (const std::vector<int>& counts : {std::vector<int>{4, 6}, {0, 6}, {5, 7}, {7, 5, 1}}) {
    for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE}) {
      SCOPED_TRACE(told(counts));
      const Uneven run{.world = static_cast<int>(counts.size()), .option = option};
      Plain model(run);
      const int longest = *std::max_element(counts.begin(), counts.end());
      for (int begin = 0; begin < longest; begin += kWindow) {
        Params sums;
        int active = 0;
        for (const int count : counts) active += begin < count;
        for (size_t i = 0; i < run.sizes.size(); i++) {
          std::vector<float>& sum = sums.emplace_back(run.sizes[i], 0.0f);
          for (int batch = begin; batch < std::min(begin + kWindow, longest); batch++) {
            for (int rank = 0; rank < run.world; rank++) {
              if (batch >= counts[static_cast<size_t>(rank)]) continue;
              const std::vector<float> one = batch_gradient(run, i, rank, batch);
              for (size_t k = 0; k < one.size(); k++) sum[k] = sum[k] + one[k];
            }
          }
        }
        model.update(sums, factor_of(run, active));
      }
      on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
        const int mine = counts[static_cast<size_t>(rank)];
        for (int batch = 0; batch < mine; batch++) {
          seat.fill(batch);
          EXPECT_OK(seat.reduce(kFlags));
          if (batch % kWindow == kWindow - 1) {
            EXPECT_OK(seat.step());
          }
        }
        EXPECT_EQ(seat.join(), last_of(counts)) << last();
        if (longest % kWindow != 0) {
          EXPECT_OK(seat.step());
        }
        EXPECT_TRUE(seat.equals(model.params()));
      });
    }
  }
}

// Rank 1 has 5 batches, and two make a step. The fifth is in its own memory when its data ends.
TEST(Join, a_window_cut_short_in_the_engines_memory_is_part_of_the_next_reduction_and_of_no_other) {
  for (const int32_t option : {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE}) {
    const Uneven run{.world = 3, .option = option};
    Plain model(run);
    model.step({0, 0, 0}, factor_of(run, 3));
    model.step({1, 1, 1}, factor_of(run, 3));
    model.step({2, 2, -1}, factor_of(run, 2));  // 2: rank 1 passes it to zero_join
    model.step({3, -1, -1}, factor_of(run, 1));
    on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
      const int steps = rank == 0 ? 4 : 2;
      for (int step = 0; step < steps; step++) seat.train(step);
      seat.fill(2);
      EXPECT_EQ(seat.join(rank == 1), 0) << last();
      EXPECT_TRUE(seat.equals(model.params()));
    });
  }
}

TEST(Join, throw_mode_stops_every_rank_at_the_least_number_of_batches) {
  for (const std::vector<int>& counts : {std::vector<int>{2, 5}, {4, 3, 5}, {0, 1, 2}}) {
    const Uneven run{.world = static_cast<int>(counts.size()), .option = ZERO_UNEVEN_ERROR};
    const int least = *std::min_element(counts.begin(), counts.end());
    const auto first = std::min_element(counts.begin(), counts.end()) - counts.begin();
    Plain model(run);
    train_epoch(model, run, std::vector<int>(counts.size(), least));
    on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
      int made = 0;
      zero_status status = ZERO_OK;
      for (int batch = 0; batch < counts[static_cast<size_t>(rank)] && status == ZERO_OK; batch++) {
        seat.fill(batch);
        status = seat.step();
        if (status == ZERO_OK) made++;
      }
      if (status == ZERO_OK) status = seat.join();
      EXPECT_EQ(status, ZERO_ERR_STATE);
      EXPECT_TRUE(says("rank " + std::to_string(first) + " has run out of inputs"));
      EXPECT_EQ(made, least);
      EXPECT_TRUE(seat.equals(model.params()));
      EXPECT_EQ(seat.join(), run.world - 1) << last();  // returns at once, without an error
    });
  }
}

}  // namespace
}  // namespace zero::test
