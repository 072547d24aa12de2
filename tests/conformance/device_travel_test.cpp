// SPDX-License-Identifier: Apache-2.0
// How gradients and parameters travel over NCCL: in place by owner where owners have parts of very
// different sizes, and in as few launches as what waits for them allows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device_training.h"

namespace zero::test {
namespace {

Training whole_tensors(int world, std::vector<int64_t> sizes) {
  Training training = base(world);
  training.partition = ZERO_PARTITION_GREEDY;
  training.sizes = std::move(sizes);
  training.where = Where::per_rank_arenas;
  training.padded = true;
  training.steps = 4;
  training.others_sum = true;
  return training;
}

struct Seen {
  int64_t to_owners, launches;
};

/// Of the calls of a training that ends with the bits of one process.
Seen trained(const Training& training, uint64_t seed, const std::string& what) {
  const NcclRanks ranks(training.world, seed);
  expect_equals_reference(training, run_together(training, ranks),
                          what + ", seed " + std::to_string(seed));
  return {ranks.knobs().to_owners, ranks.knobs().launches};
}

TEST(DeviceTravel, whole_tensors_of_unlike_owners_go_to_each_by_itself_with_the_same_bits) {
  for (uint64_t seed = 1; seed <= 24; seed++) {
    Training training = whole_tensors(seed % 2 == 0 ? 2 : 3, {5000, 100, 3, 50, 1});
    if (seed % 3 == 0) training.max_grad_norm = 0.1;
    if (seed % 5 == 0) training.micro_batches = 2;
    if (seed % 4 == 0) training.overlaps = true;
    EXPECT_GT(trained(training, seed, "unlike").to_owners, 0) << seed;
  }
}

TEST(DeviceTravel, both_kinds_of_dtypes_go_to_owners_of_their_own_sizes) {
  Training training = whole_tensors(2, {3000, 5000, 100, 3, 50, 700});
  training.dtypes = {{ZERO_FLOAT32, ZERO_FLOAT32}, {ZERO_FLOAT64, ZERO_FLOAT64}};
  for (uint64_t seed = 1; seed <= 8; seed++) trained(training, seed, "two dtypes");
}

TEST(DeviceTravel, whole_tensors_of_like_owners_travel_together) {
  EXPECT_EQ(trained(whole_tensors(2, {500, 500, 100, 100}), 1, "like").to_owners, 0);
}

/// Of parameters that take so many transfers, in place.
int64_t launches(int transfers, double max_grad_norm = 0) {
  Training training = base(2);
  training.bucket_bytes = 4096;
  training.sizes = {2048 * transfers - 100};
  training.where = Where::per_rank_arenas;
  training.padded = true;
  training.steps = 4;
  training.max_grad_norm = max_grad_norm;
  return trained(training, 1, std::to_string(transfers)).launches;
}

TEST(DeviceTravel, eight_transfers_are_one_launch) {
  EXPECT_EQ(launches(8), launches(1));
  const int64_t ranks_and_steps = 2 * 4;
  EXPECT_EQ(launches(9) - launches(8), ranks_and_steps * 2);
  EXPECT_EQ(launches(20) - launches(8), ranks_and_steps * 4);
}

TEST(DeviceTravel, sums_that_are_all_waited_for_are_one_launch) {
  EXPECT_EQ(launches(20, 0.1) - launches(8, 0.1), 2 * 4 * 2) << "those of gathers";
}

}  // namespace
}  // namespace zero::test
