// SPDX-License-Identifier: Apache-2.0
// The order that a step keeps between its streams: right in a thousand legal schedules, and each of
// its rules is missed by one of them when it is forgotten.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "step/queued/queue.h"

namespace zero::test {
namespace {

/// Short runs of every way that gradients and parameters go.
Training schedule(uint64_t seed) {
  Training training = base(2);
  training.sizes = {700, 3, 2100, 1, 1300};
  training.bucket_bytes = 4096;
  training.steps = 3;
  training.asks = seed % 5 == 0;
  training.where = seed % 2 == 0 ? Where::foreign : Where::per_rank_arenas;
  training.padded = training.where != Where::foreign;
  switch (seed % 9) {
    case 1:
      training.max_grad_norm = 0.1;
      break;
    case 2:
      training.overlaps = true;
      break;
    case 3:
      training.micro_batches = 2;
      break;
    case 4:
      training.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}};
      training.master = ZERO_MASTER_REMAINDER;
      break;
    case 5:
      training.missing = true;
      break;
    case 6:
      training.explicit_reduce = true;
      training.max_grad_norm = 0.1;
      break;
    case 7:
      training.alternates = true;
      break;
    case 8:
      training.announces = 4;
      break;
    default:
      break;
  }
  return training;
}

/// What came out of a run, in few words; the same for the same schedule in any legal order.
std::string outcome(const Training& training, const NcclRanks& ranks) {
  std::string all;
  for (const Rank& rank : run_together(training, ranks)) {
    all += rank.error;
    all.append(reinterpret_cast<const char*>(rank.outcome.params.data()),
               rank.outcome.params.size() * sizeof(double));
  }
  if (ranks.knobs().met > 0) all += "reductions and gathers could run at once";
  return all;
}

/// The right outcome of each schedule: it depends on what it trains, not on the seed.
class Right {
 public:
  const std::string& of(uint64_t seed) {
    std::string& known = known_[seed % 90];
    if (!known.empty()) return known;
    Training training = schedule(seed);
    const Outcome expected = reference(training);
    for (int rank = 0; rank < training.world; rank++)
      known.append(reinterpret_cast<const char*>(expected.params.data()),
                   expected.params.size() * sizeof(double));
    return known;
  }

 private:
  std::map<uint64_t, std::string> known_;
};

const std::vector<const char*> kRules = {
    queued::order::kGiven,    queued::order::kSummed,  queued::order::kMeasured,
    queued::order::kDecided,  queued::order::kReduced, queued::order::kUpdated,
    queued::order::kGathered, queued::order::kArrived, queued::order::kShared,
    queued::order::kEnded,    queued::order::kLooked,  queued::order::kAnnounced,
};

TEST(DeviceOrder, a_thousand_schedules_end_with_the_bits_of_one_process) {
  Right right;
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    const NcclRanks ranks(2, seed);
    ASSERT_TRUE(outcome(schedule(seed), ranks) == right.of(seed)) << "seed " << seed;
    seen.merge(ranks.chaos().rules());
  }
  for (const char* const rule : kRules) EXPECT_EQ(seen.count(rule), 1u) << rule;
}

TEST(DeviceOrder, each_rule_that_is_forgotten_is_missed_by_a_schedule) {
  Right right;
  // In a process of its own: what reads tables that are not there yet may end it.
  const auto goes_wrong = [&](uint64_t seed, const char* forgotten) {
    const std::string expected = right.of(seed);
    const auto run = [&](int) -> std::string {
      const NcclRanks ranks(2, seed);
      ranks.chaos().forget(forgotten);
      return outcome(schedule(seed), ranks) == expected ? "right" : "wrong";
    };
    return run_ranks(RankKind::processes, 1, run)[0].result != "right";
  };
  for (uint64_t seed = 1; seed <= 8; seed++) EXPECT_FALSE(goes_wrong(seed, "no rule")) << seed;
  for (const char* const rule : kRules) {
    std::optional<uint64_t> found;
    for (uint64_t seed = 1; seed <= 1000 && !found; seed++)
      if (goes_wrong(seed, rule)) found = seed;
    EXPECT_TRUE(found.has_value()) << "nothing depends on: " << rule;
  }
}

/// Two optimizers of each rank that step in turn, each on a stream of its own, with parameters that
/// travel behind the steps. How many transfers could have run at once.
int64_t transfers_that_meet(uint64_t seed, const char* forgotten) {
  const NcclRanks ranks(2, seed);
  ranks.chaos().forget(forgotten);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    constexpr int64_t kCount = 3000;
    const std::shared_ptr<Device> device = ranks.device(rank);
    zero_comm* const comm = api::add_handle(ranks.join(rank).value());
    struct Model {
      zero_optim* optim = nullptr;
      DeviceMemory data, grad;
      Stream stream;
    } models[2];
    for (Model& model : models) {
      for (DeviceMemory* const memory : {&model.data, &model.grad})
        *memory = DeviceMemory::allocate_zeroed(device, kCount * sizeof(float), "a tensor").value();
      model.stream = make_stream(device).value();
      zero_options options;
      zero_options_init(&options, sizeof options);
      options.overlap_gather = 1;
      EXPECT_EQ(zero_create(&model.optim, comm, &options), ZERO_OK) << zero_last_error();
      zero_param param;
      zero_param_init(&param, sizeof param);
      param.name = "w";
      param.shape = &kCount;
      param.ndim = 1;
      param.data = model.data.data();
      param.grad = model.grad.data();
      EXPECT_EQ(zero_register_params(model.optim, nullptr, &param, 1, nullptr), ZERO_OK);
    }
    for (int step = 0; step < 4; step++) {
      Model& model = models[step % 2];
      zero_step_options options;
      zero_step_options_init(&options, sizeof options);
      options.stream = model.stream.handle();
      EXPECT_EQ(zero_step(model.optim, &options), ZERO_OK) << zero_last_error();
    }
    for (Model& model : models) zero_free(model.optim);
    zero_comm_free(comm);
    return {};
  });
  return ranks.knobs().met;
}

TEST(DeviceOrder, transfers_of_all_optimizers_of_a_comm_are_kept_apart) {
  bool missed = false;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    EXPECT_EQ(transfers_that_meet(seed, "no rule"), 0) << seed;
    missed = missed || transfers_that_meet(seed, queued::order::kApart) > 0;
  }
  EXPECT_TRUE(missed) << "nothing depends on: " << queued::order::kApart;
}

}  // namespace
}  // namespace zero::test
