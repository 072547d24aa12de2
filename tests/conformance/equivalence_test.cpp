// SPDX-License-Identifier: Apache-2.0
// N ranks equal one process, bit for bit: every rule, partition, kind of memory and comm.
#include "equivalence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "support/comms.h"
#include "support/expect.h"

namespace zero::test {
namespace {

TEST(Equivalence, ranks_as_threads_equal_one_process) {
  size_t turn = 0;
  for (int world = 1; world <= max_world(); world++) {
    for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
      for (const Optimizer& optimizer : kOptimizers) {
        turn++;
        for (const Where where :
             {Where::arenas, Where::foreign, Where::mixed, Where::per_rank_arenas}) {
          const size_t place = turn + static_cast<size_t>(partition) + static_cast<size_t>(where);
          if (!nightly_run() && place % 2 != 0) continue;
          Training training = base(world);
          training.partition = partition;
          training.optimizer = optimizer.number;
          training.names = optimizer.names;
          training.values = optimizer.values;
          training.where = where;
          training.padded = where != Where::foreign && partition % 2 == 0;
          training.max_grad_norm = (world + partition) % 2 == 0 ? 0.5 : 0;
          const std::string what = std::string(optimizer.name) + ", " + kPartitions[partition] +
                                   ", " + kWheres[static_cast<int>(where)];
          expect_equals_reference(training, as_threads(training), what);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Whose loops differ, but nothing around them: they take turns with worlds, partitions, kinds of
/// memory and comms, so that every two of these meet some rule.
TEST(Equivalence, ranks_with_any_other_rule_equal_one_process) {
  for (size_t number = 0; number < kMoreOptimizers.size(); number++) {
    const Optimizer& optimizer = kMoreOptimizers[number];
    for (int world = 1; world <= max_world(); world++) {
      const size_t turn = number + static_cast<size_t>(world);
      Training training = base(world);
      training.optimizer = optimizer.number;
      training.names = optimizer.names;
      training.values = optimizer.values;
      training.partition = static_cast<int32_t>(turn % 4);
      training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn % 3];
      training.padded = turn % 2 == 0;
      training.missing = turn % 5 < 2;
      training.max_grad_norm = turn % 7 < 3 ? 0.5 : 0;
      const CommKind comm = turn % 6 == 1 ? CommKind::user : CommKind::local;
      const std::string what = std::string(optimizer.name) + ", " +
                               kPartitions[training.partition] + ", " +
                               kWheres[static_cast<int>(training.where)];
      expect_equals_reference(training, run(training, RankKind::threads, comm), what);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

/// What differs from run to run beside dtypes and rule.
Training varied(size_t turn, int world, int32_t partition) {
  Training training = base(world);
  training.partition = partition;
  training.where =
      std::array{Where::arenas, Where::foreign, Where::mixed, Where::per_rank_arenas}[turn / 3 % 4];
  training.padded = turn % 2 == 0;
  training.missing = turn % 5 < 2;
  training.max_grad_norm = turn % 3 == 0 ? 0.5 : 0;
  training.explicit_reduce = turn % 7 == 0;
  training.threads = turn % 11 == 0 ? 3 : 1;
  return training;
}

/// The worlds and partitions of one turn: all of them, or one where time is short.
std::vector<std::pair<int, int32_t>> places(size_t turn) {
  if (!nightly_run())
    return {{1 + static_cast<int>(turn % static_cast<size_t>(max_world())),
             static_cast<int32_t>(turn / 2 % 4)}};
  std::vector<std::pair<int, int32_t>> all;
  for (int world = 1; world <= 5; world++) {
    for (int32_t partition = 0; partition < 4; partition++) all.emplace_back(world, partition);
  }
  return all;
}

/// Every dtype meets every rule and every comm; in full runs all three meet, on every world and
/// partition, too.
TEST(Equivalence, ranks_with_any_dtypes_equal_one_process) {
  std::vector<Optimizer> optimizers = kOptimizers;
  optimizers.insert(optimizers.end(), kMoreOptimizers.begin(), kMoreOptimizers.end());
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (const Optimizer& optimizer : optimizers) {
      for (const CommKind comm : comms_of(turn / 8)) {
        turn++;
        for (const auto& [world, partition] : places(turn)) {
          Training training = varied(turn, world, partition);
          set_kind(training, kind);
          training.optimizer = optimizer.number;
          training.names = optimizer.names;
          training.values = optimizer.values;
          const std::string what = std::string(kind.name) + ", " + optimizer.name + ", " +
                                   kPartitions[training.partition] + ", " +
                                   kWheres[static_cast<int>(training.where)];
          expect_equals_reference(training, run(training, RankKind::threads, comm), what);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Equivalence, scaled_clipped_and_already_reduced_gradients_equal_one_process) {
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (const double value : {0.0, 0.05}) {
      for (const double norm : {0.0, 0.5}) {
        for (const CommKind comm : kCommKinds) {
          for (const bool reduced : {false, true}) {
            turn++;
            Training training = base(1 + static_cast<int>(turn % 4));
            set_kind(training, kind);
            training.partition = static_cast<int32_t>(turn % 4);
            training.where = std::array{Where::arenas, Where::foreign, Where::mixed}[turn % 3];
            training.padded = turn % 2 == 0;
            training.missing = turn % 5 == 0 && !reduced;
            training.explicit_reduce = turn % 7 < 2;
            training.reduced = reduced;
            training.loss_scale = turn % 3 == 0 ? 1 : 12.5;
            training.wire_dtype =
                std::array<int32_t, 3>{0, ZERO_BFLOAT16, ZERO_FLOAT16}[turn / 2 % 3];
            training.predivide_factor = turn % 5 < 2 ? 8 : 1;
            training.clip_value = value;
            training.max_grad_norm = norm;
            training.explicit_clip = norm > 0 && turn / 2 % 2 == 0;
            training.steps = 8;
            const std::string what =
                std::string(kind.name) + ", value " + std::to_string(value) + ", norm " +
                std::to_string(norm) + ", " + kPartitions[training.partition] + ", " +
                kWheres[static_cast<int>(training.where)] + (reduced ? ", reduced" : "");
            expect_equals_reference(training, run(training, RankKind::threads, comm), what);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Equivalence, ranks_as_processes_equal_one_process) {
  for (int world = 2; world <= max_world(); world++) {
    for (const Where where : {Where::arenas, Where::foreign}) {
      for (const bool clips : {false, true}) {
        Training training = base(world);
        training.where = where;
        training.partition = world % 4;
        training.max_grad_norm = clips ? 0.25 : 0;
        expect_equals_reference(training, as_processes(training), "processes");
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Equivalence, ranks_on_the_engines_own_collectives_equal_one_process) {
  for (int world = 1; world <= max_world(); world++) {
    for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
      for (const Optimizer& optimizer : kOptimizers) {
        for (const Where where : {Where::arenas, Where::foreign}) {
          Training training = base(world);
          training.partition = partition;
          training.optimizer = optimizer.number;
          training.names = optimizer.names;
          training.values = optimizer.values;
          training.where = where;
          training.padded = where == Where::arenas;
          training.missing = world == 3;
          training.max_grad_norm = partition % 2 == 0 ? 0.5 : 0;
          expect_equals_reference(training, run(training, RankKind::threads, CommKind::user),
                                  optimizer.name);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

struct Denormal {
  const char* what;
  int32_t optimizer;
  std::vector<std::string> names;
  std::vector<double> values;
  float param_scale, grad_scale;
  double max_grad_norm = 0;
};

/// Runs in which something matters that is a denormal.
const std::vector<Denormal> kDenormals = {
    {"parameters and gradients", ZERO_OPTIMIZER_SGD, {"lr"}, {1}, 1e-39f, 1e-39f},
    {"momentum", ZERO_OPTIMIZER_SGD, {"lr", "momentum"}, {1, 0.9}, 1e-39f, 1e-39f},
    {"lr", ZERO_OPTIMIZER_SGD, {"lr"}, {1e-39}, 1e-38f, 1},
    {"eps and exp_avg", ZERO_OPTIMIZER_ADAM, {"eps"}, {1e-39}, 1, 1e-39f},
    {"clip factor", ZERO_OPTIMIZER_SGD, {"lr"}, {1}, 1e-39f, 1, 1e-37},
};

TEST(Equivalence, flushed_denormals_of_the_caller_change_nothing) {
  for (const Denormal& denormal : kDenormals) {
    for (const Flushes flushes : {Flushes::last_rank, Flushes::all_ranks}) {
      for (const int threads : {1, 2}) {
        for (const CommKind kind : kCommKinds) {
          Training training = base(2);
          training.flushes = flushes;
          training.threads = threads;
          training.optimizer = denormal.optimizer;
          training.names = denormal.names;
          training.values = denormal.values;
          training.param_scale = denormal.param_scale;
          training.grad_scale = denormal.grad_scale;
          training.max_grad_norm = denormal.max_grad_norm;
          training.steps = 5;
          training.where = threads == 1 ? Where::arenas : Where::foreign;
          const Outcome still = reference([&] {
            Training none = training;
            none.steps = 0;
            return none;
          }());
          EXPECT_NE(still.params, reference(training).params) << denormal.what;
          const auto ranks = kind == CommKind::local ? RankKind::processes : RankKind::threads;
          expect_equals_reference(training, run(training, ranks, kind),
                                  std::string(denormal.what) + ", threads " +
                                      std::to_string(threads) + ", flushed on " +
                                      (flushes == Flushes::all_ranks ? "all ranks" : "one rank"));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Equivalence, norms_have_the_same_bits_for_every_world_and_rule) {
  for (const double p : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)}) {
    std::vector<double> first;
    for (int world = 1; world <= max_world(); world++) {
      for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL;
           partition++) {
        // One rank has the gradient of all, so that the sum does not depend on the world.
        Training training = base(world);
        training.partition = partition;
        training.norm_type = p;
        training.max_grad_norm = 0.5;
        training.steps = 3;
        training.sum = true;
        training.seed = 5;
        training.only_rank_0 = true;
        training.threads = world == 1 ? 3 : 1;
        const std::vector<Rank> ranks = as_threads(training);
        ASSERT_EQ(ranks[0].error, "");
        if (first.empty()) first = ranks[0].outcome.norms;
        EXPECT_EQ(ranks[0].outcome.norms, first)
            << "p " << p << ", world " << world << ", " << kPartitions[partition];
      }
    }
  }
}

TEST(Equivalence, explicit_calls_equal_the_step_that_does_all) {
  for (const bool missing : {false, true}) {
    for (const Where where : {Where::arenas, Where::foreign}) {
      Training training = base(3);
      training.where = where;
      training.missing = missing;
      training.explicit_reduce = true;
      expect_equals_reference(training, as_threads(training), "reduce, step");
      training.max_grad_norm = 0.2;
      training.explicit_clip = true;
      expect_equals_reference(training, as_threads(training), "reduce, clip, step");
      training.explicit_reduce = false;
      expect_equals_reference(training, as_threads(training), "clip, step");
    }
  }
}

TEST(Equivalence, missing_gradients_count_as_zeros_or_not_at_all) {
  for (int world = 1; world <= 4; world++) {
    for (const Optimizer& optimizer : kOptimizers) {
      for (const double clip : {0.0, 0.1}) {
        Training training = base(world);
        training.optimizer = optimizer.number;
        training.names = optimizer.names;
        training.values = optimizer.values;
        training.missing = true;
        training.max_grad_norm = clip;
        training.where = world % 2 == 0 ? Where::mixed : Where::arenas;
        expect_equals_reference(training, as_threads(training),
                                std::string("missing, ") + optimizer.name);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// Frozen parameters and settings of their own meet every rule, partition and comm; worlds, memory
/// and dtypes take turns.
TEST(Equivalence, frozen_parameters_and_settings_of_their_own_equal_one_process) {
  std::vector<Optimizer> optimizers = kOptimizers;
  optimizers.insert(optimizers.end(), kMoreOptimizers.begin(), kMoreOptimizers.end());
  size_t turn = 0;
  for (Optimizer& optimizer : optimizers) {
    if (std::find(optimizer.names.begin(), optimizer.names.end(), "lr") == optimizer.names.end()) {
      optimizer.names.push_back("lr");
      optimizer.values.push_back(0.01);
    }
    for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
      for (const CommKind comm : kCommKinds) {
        turn++;
        Training training = base(1 + static_cast<int>(turn * 7 / 2 % 5));
        training.optimizer = optimizer.number;
        training.names = optimizer.names;
        training.values = optimizer.values;
        training.partition = partition;
        training.toggled = turn % 5 != 0;
        training.own_settings = turn % 3 != 0;
        training.where = std::array{Where::arenas, Where::foreign, Where::mixed,
                                    Where::per_rank_arenas}[turn / 3 % 4];
        training.padded = turn / 2 % 2 == 0;
        training.missing = turn % 7 < 3;
        training.max_grad_norm = turn % 4 == 1 ? 0.5 : 0;
        training.explicit_reduce = turn % 9 == 0;
        if (turn % 5 == 2) training.dtypes = kKinds[turn % kKinds.size()].dtypes;
        training.threads = turn % 11 == 0 ? 3 : 1;
        const std::string what = std::string(optimizer.name) + ", " + kPartitions[partition] +
                                 ", " + kWheres[static_cast<int>(training.where)] + ", turn " +
                                 std::to_string(turn);
        expect_equals_reference(training, run(training, RankKind::threads, comm), what);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// NAdam on parameters of one element, all 1, in one group: the rule that keeps most of the past.
struct Lone {
  explicit Lone(size_t count) : data(count, 1.0f), grad(count) {
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_NADAM;
    zero_create(&optim, comm, &options);
    std::vector<std::string> names;
    for (size_t i = 0; i < count; i++) names.push_back("p" + std::to_string(i));
    std::vector<zero_param> params(count);
    for (size_t i = 0; i < count; i++) {
      ZERO_INIT(params[i]);
      params[i].name = names[i].c_str();
      params[i].data = &data[i];
    }
    EXPECT_EQ(zero_register_params(optim, nullptr, params.data(), count, nullptr), ZERO_OK);
  }
  ~Lone() {
    zero_free(optim);
    zero_comm_free(comm);
  }
  Lone(const Lone&) = delete;
  Lone& operator=(const Lone&) = delete;

  void step(double beta1, const std::vector<bool>& present) {
    EXPECT_EQ(zero_group_set(optim, ZERO_ALL_GROUPS, "beta1", beta1), ZERO_OK);
    std::vector<void*> grads;
    for (size_t i = 0; i < grad.size(); i++) {
      grad[i] = 0.25f;
      grads.push_back(present[i] ? &grad[i] : nullptr);
    }
    auto options = initialized<zero_step_options>();
    options.grads = grads.data();
    options.grad_count = grads.size();
    EXPECT_EQ(zero_step(optim, &options), ZERO_OK) << zero_last_error();
  }

  std::vector<float> data, grad;
  zero_comm* const comm = solo();
  zero_optim* optim = nullptr;
};

TEST(Equivalence, parameters_with_as_many_steps_but_another_past_are_updated_apart) {
  Lone both(2), first(1), second(1);
  both.step(0.9, {true, false});
  first.step(0.9, {true});
  both.step(0.5, {false, true});
  second.step(0.5, {true});
  both.step(0.8, {true, true});
  first.step(0.8, {true});
  second.step(0.8, {true});
  EXPECT_EQ(both.data[0], first.data[0]);
  EXPECT_EQ(both.data[1], second.data[0]);
  EXPECT_NE(both.data[0], both.data[1]);
}

TEST(Equivalence, threads_of_a_rank_change_no_bit) {
  for (int threads = 1; threads <= 5; threads++) {
    Training training = base(2);
    training.threads = threads;
    training.sizes.push_back(70001);
    training.padded = true;
    expect_equals_reference(training, as_threads(training), "one pass");
    training.max_grad_norm = 0.5;
    expect_equals_reference(training, as_threads(training), "two passes");
  }
}

}  // namespace
}  // namespace zero::test
