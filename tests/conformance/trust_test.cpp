// SPDX-License-Identifier: Apache-2.0
// LAMB and LARS: trust ratios use the norms of whole tensors, whichever ranks own the parts.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/text.h"
#include "equivalence.h"
#include "support/expect.h"

namespace zero::test {
namespace {

constexpr int32_t kRules[] = {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS};

/// Buckets of 2,048 elements cut most of these. One has no elements.
Training cut_tensors(int32_t rule, int world) {
  Training training;
  training.optimizer = rule;
  training.world = world;
  training.sizes = {1, 4097, 7, 0, 12'000, 1024, 33, 2500, 1, 5000, 16, 999};
  training.settings = {{"lr", 0.02}, {"weight_decay", 0.1}};
  if (rule == ZERO_OPTIMIZER_LARS)
    training.settings.insert(training.settings.end(),
                             {{"momentum", 0.9}, {"trust_coefficient", 0.5}});
  training.steps = 6;
  training.seed = 77;
  return training;
}

TEST(Trust, ratios_have_the_same_bits_for_every_world_partition_comm_and_number_of_threads) {
  const std::vector<Dtypes> kKinds[] = {
      {{ZERO_FLOAT32, ZERO_FLOAT32}},
      {{ZERO_FLOAT64, ZERO_FLOAT64}},
      {{ZERO_BFLOAT16, ZERO_BFLOAT16}, {ZERO_FLOAT32, ZERO_FLOAT32}}};
  for (const int32_t rule : kRules) {
    for (const std::vector<Dtypes>& dtypes : kKinds) {
      std::vector<double> first;
      for (const CommKind kind : kCommKinds) {
        for (int world = 1; world <= 5; world++) {
          for (const int32_t partition : kPartitions) {
            // Only one rank has a gradient, so that the sum does not depend on the world.
            Training training = cut_tensors(rule, world);
            training.partition = partition;
            training.dtypes = dtypes;
            training.sum = true;
            training.only_rank_0 = true;
            training.threads = kind == CommKind::local ? 1 : 3;
            training.padded = world > 2;
            training.max_grad_norm = 0.5;
            const std::vector<Outcome> ranks = run(training, kind);
            ASSERT_EQ(ranks[0].error, "");
            if (first.empty()) first = ranks[0].params;
            expect_same_bits(ranks[0].params, first, 0,
                             text("rule ", rule, ", ", name_of(kind), ", world ", world, ", ",
                                  kPartitionNames[partition]));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Trust, tensors_without_length_step_as_if_there_were_no_ratio) {
  for (const int32_t rule : kRules) {
    for (int world = 1; world <= 3; world++) {
      for (const bool params : {true, false}) {
        Training training = cut_tensors(rule, world);
        (params ? training.param_scale : training.grad_scale) = 0;
        expect_equals_reference(training, params ? "zero parameters" : "zero gradients");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Trust, norms_of_more_tensors_than_a_record_holds_are_exchanged) {
  for (const int32_t rule : kRules) {
    for (const CommKind kind : kCommKinds) {
      Training training = cut_tensors(rule, 3);
      training.sizes.assign(60, 3001);
      training.steps = 3;
      expect_equals_reference(training, run(training, kind), "60 cut tensors");
    }
  }
}

/// A walk checks every 32 blocks whether the comm was aborted.
TEST(Trust, tensors_longer_than_what_is_walked_at_once_equal_one_process) {
  struct Way {
    const char* name;
    std::function<void(Training&)> set;
  };
  const Way ways[] = {
      {"large buckets", [](Training& run) { run.bucket_bytes = 1 << 20; }},
      {"foreign, clipped, 3 threads",
       [](Training& run) { run.where = Where::foreign, run.max_grad_norm = 0.5, run.threads = 3; }},
      {"mixed, missing, 2 threads",
       [](Training& run) { run.where = Where::mixed, run.missing = true, run.threads = 2; }},
      {"reduced already, large buckets",
       [](Training& run) { run.reduced = true, run.bucket_bytes = 1 << 20; }},
  };
  for (const int32_t rule : kRules) {
    for (const int32_t dtype : {ZERO_FLOAT32, ZERO_FLOAT64, ZERO_BFLOAT16}) {
      int world = 1;
      for (const Way& way : ways) {
        Training training = cut_tensors(rule, world++ % 3 + 1);
        training.sizes = {33, 150'001, 1000, 40'000};
        training.dtypes = {{dtype, dtype}};
        training.steps = 3;
        way.set(training);
        expect_equals_reference(training, text(way.name, ", world ", training.world));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// One rank of two with a tensor of 5,000 elements, all 1.
class Pair : public Optim {
 public:
  Pair(zero_comm* comm, int32_t rule, int32_t nonfinite)
      : Optim(comm, options_with([&](zero_options& o) {
                o.optimizer = rule;
                o.nonfinite = nonfinite;
                o.bucket_bytes = 8192;
              }),
              {{"always_adapt", 1}, {"weight_decay", 0}}) {
    add(parameter("cut", kSize, data_.data()));
  }
  ~Pair() { free(); }

  zero_status step(float first) {
    std::vector<float> grad(kSize, 0.5f);
    grad[0] = first;
    return step_with({grad.data()});
  }
  const std::vector<float>& data() const { return data_; }

 private:
  static constexpr int64_t kSize = 5000;

  std::vector<float> data_ = std::vector<float>(kSize, 1);
};

TEST(Trust, a_step_that_is_skipped_changes_no_parameter_and_no_moment) {
  for (const int32_t rule : kRules) {
    on_each_comm(2, [rule](zero_comm* comm, int rank) {
      Pair pair(comm, rule, ZERO_NONFINITE_SKIP), other(comm, rule, ZERO_NONFINITE_SKIP);
      ASSERT_OK(pair.step(0.25f));
      const std::vector<float> before = pair.data();
      ASSERT_EQ(pair.step(rank == 1 ? std::numeric_limits<float>::infinity() : 0), ZERO_SKIPPED);
      EXPECT_EQ(pair.data(), before);
      ASSERT_OK(pair.step(1));
      ASSERT_OK(other.step(0.25f));
      ASSERT_OK(other.step(1));
      EXPECT_EQ(pair.data(), other.data());
    });
  }
}

/// One step in one pass: only then does the walk that updates moments count them.
TEST(Trust, infinities_that_are_not_skipped_are_counted_and_reach_the_whole_tensor) {
  for (const int32_t rule : kRules) {
    on_ranks(CommKind::local, 2, [rule](zero_comm* comm, int) {
      Pair pair(comm, rule, ZERO_NONFINITE_IGNORE);
      ASSERT_OK(pair.step(std::numeric_limits<float>::quiet_NaN()));
      EXPECT_EQ(pair.result().nonfinite, 1);
      for (const float value : pair.data()) ASSERT_TRUE(std::isnan(value));
    });
  }
}

TEST(Trust, planned_state_is_that_of_the_rules_without_norms) {
  const int64_t size = 5000;
  const auto planned = [&](int32_t rule, double momentum) {
    const zero_param param = parameter("p", size, nullptr);
    auto options = initialized<zero_options>();
    options.optimizer = rule;
    const char* const name = "momentum";
    options.names = &name;
    options.values = &momentum;
    options.setting_count = momentum < 0 ? 0 : 1;
    auto plan = initialized<zero_plan>();
    EXPECT_OK(zero_partition_plan(&param, 1, 2, &options, &plan));
    return plan.state_bytes;
  };
  EXPECT_EQ(planned(ZERO_OPTIMIZER_LAMB, -1), planned(ZERO_OPTIMIZER_ADAMW, -1));
  for (const double momentum : {0.0, 0.9})
    EXPECT_EQ(planned(ZERO_OPTIMIZER_LARS, momentum), planned(ZERO_OPTIMIZER_SGD, momentum));
  EXPECT_GT(planned(ZERO_OPTIMIZER_LARS, 0.9), planned(ZERO_OPTIMIZER_LARS, 0));
}

/// Ratios, clip factors and scalars are computed after an exchange.
TEST(Trust, collectives_that_leave_another_rounding_mode_behind_change_no_bit) {
  for (const int32_t rule : kRules) {
    std::vector<std::string> ends[2];
    for (const bool chops : {false, true}) {
      Training training = cut_tensors(rule, 2);
      training.dtypes = {{ZERO_FLOAT64, ZERO_FLOAT64}};
      training.max_grad_norm = 0.5;
      const Meeting meeting(CommKind::user, training.world);
      ends[chops] = run_sound_ranks(RankKind::threads, training.world, [&](int rank) {
        zero_comm* const comm = meeting.join(rank, [chops](const char*) {
          std::fesetround(chops ? FE_TOWARDZERO : FE_TONEAREST);
          return ZERO_OK;
        });
        const Outcome outcome = train(training, comm);
        zero_comm_free(comm);
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(outcome.error, "");
        return packed(outcome);
      });
    }
    EXPECT_EQ(ends[0][0].substr(0, 6), "values");
    EXPECT_TRUE(ends[0] == ends[1]) << "rule " << rule;
  }
}

/// Compares with the counts in docs/design.md, with one shared copy of the parameters.
TEST(Trust, steps_move_the_bytes_that_are_documented) {
  static constexpr int64_t kSize = 65536;
  constexpr int kWorld = 2;
  struct Row {
    int32_t rule;
    double clip;
    int64_t bytes;
  };
  for (const Row& row :
       {Row{ZERO_OPTIMIZER_LAMB, 0, 4 * kWorld + 36}, Row{ZERO_OPTIMIZER_LAMB, 1, 4 * kWorld + 44},
        Row{ZERO_OPTIMIZER_LARS, 0, 4 * kWorld + 32},
        Row{ZERO_OPTIMIZER_ADAMW, 1, 4 * kWorld + 32}}) {
    std::array<int64_t, kWorld> moved{};
    on_ranks(CommKind::local, kWorld, [&](zero_comm* comm, int rank) {
      auto options = initialized<zero_options>();
      options.optimizer = row.rule;
      options.max_grad_norm = row.clip;
      Settings settings;
      if (row.rule == ZERO_OPTIMIZER_LARS) settings = {{"momentum", 0.9}};
      const Arena data(comm, kSize * 4, ZERO_MEMORY_SHARED), grad(comm, kSize * 4);
      Optim optim(comm, options, settings);
      optim.add(parameter("p", kSize, data.floats(), grad.floats()));
      ASSERT_OK(optim.step());
      const int64_t before = optim.statistics().moved_bytes;
      ASSERT_OK(optim.step());
      moved[static_cast<size_t>(rank)] = optim.statistics().moved_bytes - before;
    });
    EXPECT_EQ(moved[0] + moved[1], kSize * row.bytes) << row.rule << " clip " << row.clip;
  }
}

}  // namespace
}  // namespace zero::test
