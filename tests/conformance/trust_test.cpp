// SPDX-License-Identifier: Apache-2.0
// LAMB and LARS: the norms behind their trust ratios are those of whole tensors, whoever owns the
// parts.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <limits>

#include "equivalence.h"
#include "support/expect.h"

namespace zero::test {
namespace {

constexpr int32_t kRules[] = {ZERO_OPTIMIZER_LAMB, ZERO_OPTIMIZER_LARS};
constexpr const char* kNames[] = {"lamb", "lars"};

/// Most of these are cut by the 2,048 elements of a bucket; one has no elements.
Training cut_tensors(int32_t rule, int world) {
  Training training;
  training.optimizer = rule;
  training.world = world;
  training.sizes = {1, 4097, 7, 0, 12'000, 1024, 33, 2500, 1, 5000, 16, 999};
  training.names = {"lr", "weight_decay"};
  training.values = {0.02, 0.1};
  if (rule == ZERO_OPTIMIZER_LARS) {
    training.names.insert(training.names.end(), {"momentum", "trust_coefficient"});
    training.values.insert(training.values.end(), {0.9, 0.5});
  }
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
      for (int turn = 0; turn < 20; turn++) {
        // One rank has the gradient of all, so that the sum does not depend on the world.
        Training training = cut_tensors(rule, 1 + turn % 5);
        training.partition = turn / 5;
        training.dtypes = dtypes;
        training.sum = true;
        training.only_rank_0 = true;
        training.threads = 1 + turn % 3;
        training.padded = turn % 2 == 0;
        training.max_grad_norm = 0.5;
        const CommKind kind = turn % 4 == 3 ? CommKind::user : CommKind::local;
        const std::vector<Rank> ranks = run(training, RankKind::threads, kind);
        ASSERT_EQ(ranks[0].error, "");
        if (first.empty()) first = ranks[0].outcome.params;
        expect_same_bits(
            ranks[0].outcome.params, first, 0,
            std::string(kNames[rule - ZERO_OPTIMIZER_LAMB]) + ", turn " + std::to_string(turn));
        if (HasFatalFailure()) return;
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
        expect_equals_reference(training, as_threads(training),
                                params ? "zero parameters" : "zero gradients");
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
      expect_equals_reference(training, run(training, RankKind::threads, kind), "60 cut tensors");
    }
  }
}

/// A walk looks at whether the comm was aborted 32 blocks apart.
TEST(Trust, tensors_longer_than_what_is_walked_at_once_equal_one_process) {
  int turn = 0;
  for (const int32_t rule : kRules) {
    for (const int32_t dtype : {ZERO_FLOAT32, ZERO_FLOAT64, ZERO_BFLOAT16}) {
      for (int world = 1; world <= 3; world++, turn++) {
        Training training = cut_tensors(rule, world);
        training.sizes = {33, 150'001, 1000, 40'000};
        training.bucket_bytes = turn % 2 == 0 ? 1 << 20 : 8192;
        training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn / 2 % 3];
        training.dtypes = {{dtype, dtype}};
        training.reduced = turn % 5 == 3;
        training.max_grad_norm = turn % 4 == 1 ? 0.5 : 0;
        training.missing = turn % 7 == 2;
        training.threads = 1 + turn % 3;
        training.steps = 3;
        expect_equals_reference(training, as_threads(training), "turn " + std::to_string(turn));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Trust, processes_and_callers_that_flush_denormals_equal_one_process) {
  for (const int32_t rule : kRules) {
    for (const Flushes flushes : {Flushes::none, Flushes::last_rank}) {
      Training training = cut_tensors(rule, 3);
      training.flushes = flushes;
      // Norms and ratios that are denormals in fp32, but not in the fp64 of their own.
      if (flushes != Flushes::none) training.param_scale = 1e-38f;
      expect_equals_reference(training, as_processes(training), "processes");
    }
  }
}

/// One rank's tensor of 5,000 elements, all 1, which two ranks share.
class Pair {
 public:
  Pair(zero_comm* comm, int32_t rule, int32_t nonfinite) : data_(kSize, 1.0f) {
    auto options = initialized<zero_options>();
    options.optimizer = rule;
    options.nonfinite = nonfinite;
    options.bucket_bytes = 8192;
    const char* names[] = {"always_adapt", "weight_decay"};
    const double values[] = {1, 0};
    options.names = names;
    options.values = values;
    options.setting_count = 2;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
    auto param = initialized<zero_param>();
    param.name = "cut";
    param.data = data_.data();
    param.shape = &kSize;
    param.ndim = 1;
    EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
  }
  ~Pair() { zero_free(optim); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  zero_status step(float first) {
    std::vector<float> grad(kSize, 0.5f);
    grad[0] = first;
    void* const pointer = grad.data();
    auto options = initialized<zero_step_options>();
    options.grads = &pointer;
    options.grad_count = 1;
    return zero_step(optim, &options);
  }
  zero_result result() {
    auto made = initialized<zero_result>();
    zero_step_result(optim, &made);
    return made;
  }
  const std::vector<float>& data() const { return data_; }

  zero_optim* optim = nullptr;

 private:
  static constexpr int64_t kSize = 5000;
  std::vector<float> data_;
};

TEST(Trust, a_step_that_is_skipped_changes_no_parameter_and_no_moment) {
  for (const int32_t rule : kRules) {
    for (const CommKind kind : kCommKinds) {
      on_ranks(kind, 2, [rule](zero_comm* comm, int rank) {
        Pair pair(comm, rule, ZERO_NONFINITE_SKIP), other(comm, rule, ZERO_NONFINITE_SKIP);
        ASSERT_EQ(pair.step(0.25f), ZERO_OK);
        const std::vector<float> before = pair.data();
        ASSERT_EQ(pair.step(rank == 1 ? std::numeric_limits<float>::infinity() : 0), ZERO_SKIPPED);
        EXPECT_EQ(pair.data(), before);
        ASSERT_EQ(pair.step(1), ZERO_OK);
        ASSERT_EQ(other.step(0.25f), ZERO_OK);
        ASSERT_EQ(other.step(1), ZERO_OK);
        EXPECT_EQ(pair.data(), other.data());
      });
    }
  }
}

/// One step, one pass: only then are they counted by the walk that updates moments.
TEST(Trust, infinities_that_are_not_skipped_are_counted_and_reach_the_whole_tensor) {
  for (const int32_t rule : kRules) {
    on_ranks(CommKind::local, 2, [rule](zero_comm* comm, int) {
      Pair pair(comm, rule, ZERO_NONFINITE_IGNORE);
      ASSERT_EQ(pair.step(std::numeric_limits<float>::quiet_NaN()), ZERO_OK);
      EXPECT_EQ(pair.result().nonfinite, 1);
      for (const float value : pair.data()) ASSERT_TRUE(std::isnan(value));
    });
  }
}

TEST(Trust, planned_state_is_that_of_the_rules_without_norms) {
  const int64_t size = 5000;
  const auto planned = [&](int32_t rule, double momentum) {
    auto param = initialized<zero_param>();
    param.name = "p";
    param.shape = &size;
    param.ndim = 1;
    auto options = initialized<zero_options>();
    options.optimizer = rule;
    const char* const name = "momentum";
    options.names = &name;
    options.values = &momentum;
    options.setting_count = momentum < 0 ? 0 : 1;
    auto plan = initialized<zero_plan>();
    EXPECT_EQ(zero_partition_plan(&param, 1, 2, &options, &plan), ZERO_OK) << zero_last_error();
    return plan.state_bytes;
  };
  EXPECT_EQ(planned(ZERO_OPTIMIZER_LAMB, -1), planned(ZERO_OPTIMIZER_ADAMW, -1));
  for (const double momentum : {0.0, 0.9})
    EXPECT_EQ(planned(ZERO_OPTIMIZER_LARS, momentum), planned(ZERO_OPTIMIZER_SGD, momentum));
  EXPECT_GT(planned(ZERO_OPTIMIZER_LARS, 0.9), planned(ZERO_OPTIMIZER_LARS, 0));
}

/// Ratios, clip factors and scalars are formed behind an exchange.
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
        std::string error;
        const Outcome outcome = train(training, comm, &error);
        zero_comm_free(comm);
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(error, "");
        return std::string(reinterpret_cast<const char*>(outcome.params.data()),
                           outcome.params.size() * sizeof(double));
      });
    }
    EXPECT_FALSE(ends[0][0].empty());
    EXPECT_TRUE(ends[0] == ends[1]) << kNames[rule - ZERO_OPTIMIZER_LAMB];
  }
}

/// As docs/design.md counts them, with one shared copy of the parameters.
TEST(Trust, steps_move_the_bytes_that_are_documented) {
  constexpr int64_t kSize = 65536, kWorld = 2;
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
      const char* const names[] = {"momentum"};
      const double values[] = {0.9};
      options.names = names;
      options.values = values;
      options.setting_count = row.rule == ZERO_OPTIMIZER_LARS ? 1 : 0;
      zero_optim* optim = nullptr;
      ASSERT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
      void *data = nullptr, *grad = nullptr;
      ASSERT_EQ(zero_arena_alloc(comm, kSize * 4, ZERO_MEMORY_SHARED, &data), ZERO_OK);
      ASSERT_EQ(zero_arena_alloc(comm, kSize * 4, ZERO_MEMORY_PER_RANK, &grad), ZERO_OK);
      auto param = initialized<zero_param>();
      param.name = "p";
      param.data = data;
      param.grad = grad;
      param.shape = &kSize;
      param.ndim = 1;
      ASSERT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
      zero_statistics before, after;
      ZERO_INIT(before);
      ZERO_INIT(after);
      ASSERT_EQ(zero_step(optim, nullptr), ZERO_OK);
      zero_stats(optim, &before);
      ASSERT_EQ(zero_step(optim, nullptr), ZERO_OK);
      zero_stats(optim, &after);
      moved[static_cast<size_t>(rank)] = after.moved_bytes - before.moved_bytes;
      zero_free(optim);
      zero_arena_free(data);
      zero_arena_free(grad);
    });
    EXPECT_EQ(moved[0] + moved[1], kSize * row.bytes) << row.rule << " clip " << row.clip;
  }
}

}  // namespace
}  // namespace zero::test
