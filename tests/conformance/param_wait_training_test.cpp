// SPDX-License-Identifier: Apache-2.0
// zero_options.overlap_gather: training whose steps end in the background computes what it would
// have computed, and every parameter is new once it was waited for.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "equivalence.h"
#include "support/watched.h"

namespace zero::test {
namespace {

TEST(ParamWaitTraining, steps_that_end_in_the_background_equal_one_process) {
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (int world = 1; world <= max_world(); world++) {
      for (const CommKind comm : comms_of(turn / 2)) {
        for (const bool announces : {false, true}) {
          turn++;
          Training training = base(world);
          training.overlaps = true;
          training.announces = announces ? 1000 : 0;
          training.begins = announces && turn % 4 < 2;
          set_kind(training, kind);
          training.partition = static_cast<int32_t>(turn / 2 % 4);
          training.where = std::array{Where::arenas, Where::foreign, Where::mixed,
                                      Where::per_rank_arenas}[turn / 3 % 4];
          training.padded = turn % 2 == 0;
          training.missing = turn % 3 == 0;
          training.toggled = turn % 5 == 0;
          training.reduced = turn % 11 == 0 && !training.missing;
          training.wire_dtype = turn % 5 == 1 ? ZERO_BFLOAT16 : 0;
          training.threads = turn % 9 == 0 ? 3 : 1;
          if (turn % 4 < 2) training.deals = {0, 3, 4};
          training.steps = 6;
          if (!training.begins) {
            training.micro_batches = turn % 8 == 1 ? 2 : 1;
            training.explicit_reduce = turn % 7 == 0;
            training.max_grad_norm = turn / 2 % 2 == 0 ? 0.5 : 0;
            training.explicit_clip = training.max_grad_norm > 0 && turn % 10 < 3;
          }
          expect_equals_reference(training, run(training, RankKind::threads, comm),
                                  std::string(kind.name) + ", turn " + std::to_string(turn));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Every rule, LAMB's two walks and exchange of norms among them.
TEST(ParamWaitTraining, every_rule_may_end_in_the_background) {
  for (const std::vector<Optimizer>& optimizers : {kOptimizers, kMoreOptimizers}) {
    for (const Optimizer& optimizer : optimizers) {
      Training training = base(3);
      training.overlaps = true;
      training.optimizer = optimizer.number;
      training.names = optimizer.names;
      training.values = optimizer.values;
      training.steps = 4;
      expect_equals_reference(training, as_threads(training), optimizer.name);
    }
  }
}

void fall_behind(const char* point) {
  if (std::string_view(point) == "apply.told")
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// What LAMB steps in its first walk is among what its owner tells of later.
TEST(ParamWaitTraining, tensors_that_are_stepped_early_are_told_of_in_their_turn) {
  const Watched falling(fall_behind);
  Training training = base(2);
  training.overlaps = true;
  training.optimizer = ZERO_OPTIMIZER_LAMB;
  training.names = {};
  training.values = {};
  training.partition = ZERO_PARTITION_GREEDY;
  training.threads = 2;
  training.sizes = {5, 600'049, 64, 400'000, 7000, 1'010'000};  // longer than what is told at once
  training.bucket_bytes = 4'000'000;
  training.steps = 3;
  expect_equals_reference(training, as_threads(training), "LAMB");
}

TEST(ParamWaitTraining, no_order_of_waits_and_no_delay_shows_an_old_parameter) {
  const Watched dawdling(dawdle);
  Training training = base(3);
  training.overlaps = true;
  training.steps = 3;
  for (uint64_t seed = 0; seed < (nightly_run() ? 2000 : 150); seed++) {
    // Now and then longer than what owners tell at once.
    training.sizes = seed % 40 == 0 ? std::vector<int64_t>{5, 400'000, 64, 600'049}
                                    : std::vector<int64_t>{5, 1100, 64, 2049, 0, 700};
    training.bucket_bytes = seed % 80 == 0 ? 4'000'000 : 8192;
    training.world = 1 + static_cast<int>(seed % 4);
    training.where = std::array{Where::arenas, Where::mixed, Where::per_rank_arenas,
                                Where::foreign}[seed / 4 % 4];
    training.partition = static_cast<int32_t>(seed / 2 % 4);
    training.announces = std::array{0, 1000, 3}[seed % 3];
    training.begins = seed % 2 == 0;
    training.delays = seed % 3 == 1;
    training.missing = seed % 5 == 0;
    training.seed = seed;
    expect_equals_reference(training, as_threads(training), "seed " + std::to_string(seed));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace zero::test
