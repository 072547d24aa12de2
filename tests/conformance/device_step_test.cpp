// SPDX-License-Identifier: Apache-2.0
// Steps on a device end with the bits of a process on the host, in whatever legal order their work
// is done.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "device_training.h"
#include "support/gpu_wanted.h"

namespace zero::test {
namespace {

Training with(const Optimizer& optimizer) {
  Training training = base(1);
  training.optimizer = optimizer.number;
  training.names = optimizer.names;
  training.values = optimizer.values;
  training.steps = 8;
  return training;
}

std::vector<Optimizer> element_wise() {
  std::vector<Optimizer> all = kOptimizers;
  for (const Optimizer& one : kMoreOptimizers) {
    if (one.number != ZERO_OPTIMIZER_LAMB && one.number != ZERO_OPTIMIZER_LARS) all.push_back(one);
  }
  return all;
}

void expect_right(const Training& training, uint64_t seed, const std::string& what) {
  const auto world = chaos(seed);
  const std::vector<Rank> ranks = {run_alone(training, world->make_device())};
  expect_equals_reference(training, ranks, what + ", seed " + std::to_string(seed));
  EXPECT_EQ(world->living(), 0) << what << ": memory, streams or events were not given back";
}

struct Feature {
  const char* name;
  std::function<void(Training&)> set;
};

const std::vector<Feature> kFeatures = {
    {"plain", [](Training&) {}},
    {"clip", [](Training& run) { run.max_grad_norm = 0.5; }},
    {"clip by the largest",
     [](Training& run) { run.max_grad_norm = 0.05, run.norm_type = INFINITY; }},
    {"clip by p = 1", [](Training& run) { run.max_grad_norm = 20, run.norm_type = 1; }},
    {"clip by hand", [](Training& run) { run.max_grad_norm = 0.5, run.explicit_clip = true; }},
    {"reduce by hand", [](Training& run) { run.max_grad_norm = 0.5, run.explicit_reduce = true; }},
    {"clip by value", [](Training& run) { run.clip_value = 0.05, run.max_grad_norm = 0.5; }},
    {"loss scale", [](Training& run) { run.loss_scale = 3, run.max_grad_norm = 0.5; }},
    {"accumulation", [](Training& run) { run.micro_batches = 3; }},
    {"missing gradients", [](Training& run) { run.missing = true; }},
    {"frozen", [](Training& run) { run.toggled = true; }},
    {"reduced already", [](Training& run) { run.reduced = true; }},
    {"sum", [](Training& run) { run.sum = true; }},
    {"bf16 wire", [](Training& run) { run.wire_dtype = ZERO_BFLOAT16; }},
    {"settings of its own", [](Training& run) { run.own_settings = true; }},
    {"bf16 remainders clipped",
     [](Training& run) {
       run.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}};
       run.master = ZERO_MASTER_REMAINDER;
       run.max_grad_norm = 0.5;
     }},
};

using Expect = std::function<void(const Training&, const std::string& what)>;

void try_rules(const Expect& expect) {
  for (const Optimizer& optimizer : element_wise()) expect(with(optimizer), optimizer.name);
}

void try_dtypes(const Expect& expect) {
  bool padded = false;
  for (const Kind& kind : kKinds) {
    for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY}) {
      for (const Where where : {Where::arenas, Where::foreign}) {
        Training training = with(kOptimizers[partition == ZERO_PARTITION_EVEN ? 1 : 5]);
        set_kind(training, kind);
        training.partition = partition;
        training.where = where;
        training.padded = padded = !padded;
        expect(training, kind.name);
      }
    }
  }
}

void try_features(const Expect& expect) {
  for (const Feature& feature : kFeatures) {
    for (const bool asks : {true, false}) {
      Training training = with(kOptimizers[0]);
      feature.set(training);
      training.asks = asks;
      expect(training, feature.name);
    }
  }
}

Expect in_any_order(uint64_t first_seed) {
  return [seed = first_seed](const Training& training, const std::string& what) mutable {
    expect_right(training, seed++, what);
  };
}

TEST(DeviceStep, every_rule_ends_with_the_bits_of_the_host) { try_rules(in_any_order(1)); }

TEST(DeviceStep, every_kind_of_dtypes_ends_with_the_bits_of_the_host) {
  try_dtypes(in_any_order(100));
}

TEST(DeviceStep, every_feature_ends_with_the_bits_of_the_host) { try_features(in_any_order(200)); }

TEST(DeviceStep, a_gpu_ends_with_the_bits_of_the_host) {
  const Result<std::shared_ptr<Device>> gpu = open_cuda(0);
  if (!gpu.ok()) {
    ASSERT_FALSE(gpu_is_wanted()) << gpu.failure().text();
    GTEST_SKIP() << gpu.failure().text();
  }
  const auto expect = [&](const Training& training, const std::string& what) {
    const std::vector<Rank> ranks = {run_alone(training, *gpu)};
    expect_equals_reference(training, ranks, what);
  };
  try_rules(expect);
  try_dtypes(expect);
  try_features(expect);
}

TEST(DeviceStep, a_gpu_alone_over_nccl_ends_with_the_bits_of_the_host) {
  const Result<std::shared_ptr<Device>> gpu = open_cuda(0);
  if (!gpu.ok()) {
    ASSERT_FALSE(gpu_is_wanted()) << gpu.failure().text();
    GTEST_SKIP() << gpu.failure().text();
  }
  try_features([&](const Training& training, const std::string& what) {
    Rank rank;
    Result<NcclId> id = nccl_unique_id();
    ASSERT_TRUE(id.ok()) << id.failure().text();
    Result<std::shared_ptr<Comm>> seat = create_nccl(*gpu, *id, 0, 1, {});
    ASSERT_TRUE(seat.ok()) << seat.failure().text();
    expect_equals_reference(training, {run_on(training, std::move(seat).value())}, what);
  });
}

TEST(DeviceStep, ranks_over_nccl_end_with_the_bits_of_one_process) {
  uint64_t seed = 300;
  for (const int world : {2, 3}) {
    for (const Feature& feature : kFeatures) {
      for (const Where where : {Where::per_rank_arenas, Where::foreign}) {
        Training training = with(kOptimizers[0]);
        training.world = world;
        training.partition = seed % 3 == 0 ? ZERO_PARTITION_GREEDY : ZERO_PARTITION_EVEN;
        training.where = where;
        training.padded = where != Where::foreign && seed % 2 == 0;
        feature.set(training);
        training.others_sum = true;
        const NcclRanks ranks(world, seed++);
        expect_equals_reference(training, run_together(training, ranks), feature.name);
      }
    }
  }
}

/// Every feature, of tensors in every kind of memory, over a local comm: of two ranks and of three
/// in turns, or of both where there is time.
void try_local_ranks(const Abilities& abilities, uint64_t seed) {
  for (const int world : {2, 3}) {
    int turn = world;
    for (const Feature& feature : kFeatures) {
      turn++;
      for (const Where where :
           {Where::arenas, Where::per_rank_arenas, Where::foreign, Where::mixed}) {
        if (!nightly_run() && turn++ % 2 == 0) continue;
        Training training = with(kOptimizers[0]);
        training.world = world;
        training.partition = seed % 3 == 0 ? ZERO_PARTITION_GREEDY : ZERO_PARTITION_EVEN;
        training.where = where;
        training.padded = !abilities.reaches && where != Where::foreign && seed % 2 == 0;
        feature.set(training);
        const auto devices = chaos(seed, abilities);
        const std::string what = std::string(feature.name) + ", seed " + std::to_string(seed++);
        expect_equals_reference(training, run_locally(training, devices), what);
        EXPECT_EQ(devices->living(), 0) << what << ": something was not given back";
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(DeviceStep, ranks_that_reach_each_others_memory_end_with_the_bits_of_one_process) {
  try_local_ranks({}, 500);
}

TEST(DeviceStep, ranks_whose_hosts_wait_for_each_other_end_with_the_bits_of_one_process) {
  try_local_ranks({.words = false}, 700);
}

TEST(DeviceStep, ranks_whose_data_goes_through_the_host_end_with_the_bits_of_one_process) {
  try_local_ranks({.reaches = false}, 900);
}

}  // namespace
}  // namespace zero::test
