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
