// SPDX-License-Identifier: Apache-2.0
// What a parameter has of its own: whether it is trained, its factor of lr, its weight decay. That
// runs with all of it equal one process is in equivalence_test.cpp.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "support/ranks.h"
#include "support/scratch.h"
#include "support/user_comm.h"
#include "zero.h"

namespace zero::test {
namespace {

std::string last() { return zero_last_error(); }

::testing::AssertionResult says(const std::string& words) {
  if (last().find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << last() << "' does not say '" << words << "'";
}

std::string fresh_name() {
  static int next = 0;
  return "trainable-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

constexpr size_t kParams = 4;
constexpr int64_t kSize = 3000;
constexpr std::array<const char*, kParams> kNames = {"a", "b", "c", "d"};

/// What a test changes of the model before it is registered.
using Change = std::function<void(std::array<zero_param, kParams>&)>;

/// One rank's model of four parameters, all 1, with gradients of 1.
struct Model {
  ~Model() {
    zero_free(optim);
    for (float* arena : {data, grad}) zero_arena_free(arena);
    zero_comm_free(comm);
  }

  void build(zero_comm* seat, int32_t optimizer, const Change& change = {},
             int32_t partition = ZERO_PARTITION_EVEN, int32_t nonfinite = ZERO_NONFINITE_IGNORE) {
    comm = seat;
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.optimizer = optimizer;
    options.partition = partition;
    options.nonfinite = nonfinite;
    options.bucket_bytes = 4096;
    ASSERT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
    std::array<zero_param, kParams> params;
    for (zero_param& param : params) zero_param_init(&param, sizeof param);
    for (size_t i = 0; i < kParams; i++) {
      params[i].name = kNames[i];
      params[i].shape = &kSize;
      params[i].ndim = 1;
      params[i].flags = ZERO_PARAM_PADDED;
      params[i].owner = zero_comm_world(comm) - 1;
    }
    std::array<int64_t, kParams> at;
    zero_plan plan;
    zero_plan_init(&plan, sizeof plan);
    plan.offsets = at.data();
    ASSERT_EQ(zero_partition_plan(params.data(), kParams, zero_comm_world(comm), &options, &plan),
              ZERO_OK);
    elements = static_cast<size_t>(plan.arena_bytes) / sizeof(float);
    for (float** arena : {&data, &grad}) {
      ASSERT_EQ(zero_arena_alloc(comm, static_cast<size_t>(plan.arena_bytes), ZERO_MEMORY_PER_RANK,
                                 reinterpret_cast<void**>(arena)),
                ZERO_OK);
      std::fill(*arena, *arena + elements, 1.0f);
    }
    for (size_t i = 0; i < kParams; i++) {
      offsets[i] = static_cast<size_t>(at[i]) / sizeof(float);
      params[i].data = data + offsets[i];
      params[i].grad = grad + offsets[i];
    }
    if (change) change(params);
    registered = zero_register_params(optim, nullptr, params.data(), kParams, nullptr);
  }

  void fill_grads(float value) { std::fill(grad, grad + elements, value); }
  float* grad_of(size_t param) { return grad + offsets[param]; }
  float value(size_t param) const { return data[offsets[param] + kSize - 1]; }
  zero_status step() { return zero_step(optim, nullptr); }
  zero_result result() const {
    zero_result out;
    zero_result_init(&out, sizeof out);
    zero_step_result(optim, &out);
    return out;
  }
  std::vector<int64_t> owned(int rank) const {
    size_t count = 0;
    EXPECT_EQ(zero_owned_ranges(optim, rank, nullptr, 0, &count), ZERO_OK);
    std::vector<int64_t> triples(3 * count);
    EXPECT_EQ(zero_owned_ranges(optim, rank, triples.data(), count, &count), ZERO_OK);
    return triples;
  }

  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  zero_status registered = ZERO_OK;
  float *data = nullptr, *grad = nullptr;
  size_t elements = 0;
  std::array<size_t, kParams> offsets;
};

zero_comm* solo() {
  zero_comm* comm = nullptr;
  EXPECT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
  return comm;
}

zero_comm* local(const std::string& name, int rank, int world) {
  zero_comm_options options;
  zero_comm_options_init(&options, sizeof options);
  options.timeout_ms = options.late_ms = options.rendezvous_ms = 30'000;
  zero_comm* comm = nullptr;
  EXPECT_EQ(zero_comm_create_local(&comm, name.c_str(), rank, world, &options), ZERO_OK) << last();
  return comm;
}

void flag(zero_param& param, int32_t flag) { param.flags |= flag; }

TEST(Trainable, what_a_frozen_gradient_holds_is_neither_counted_nor_in_the_norm) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD, {}, ZERO_PARTITION_EVEN, ZERO_NONFINITE_SKIP);
  ASSERT_EQ(zero_set_trainable(model.optim, 1, 0), ZERO_OK);
  std::fill(model.grad_of(1), model.grad_of(1) + kSize, NAN);
  EXPECT_EQ(model.step(), ZERO_OK) << last();
  EXPECT_EQ(model.result().nonfinite, 0);
  std::fill(model.grad_of(1), model.grad_of(1) + kSize, INFINITY);
  double norm = 0;
  model.fill_grads(2);
  EXPECT_EQ(zero_clip_grad_norm(model.optim, INFINITY, 2, &norm, nullptr), ZERO_OK);
  EXPECT_NEAR(norm, 2 * std::sqrt(3.0 * kSize), 1e-9);
  EXPECT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(1), 1);
  EXPECT_LT(model.value(0), 1);

  ASSERT_EQ(zero_set_trainable(model.optim, 1, 1), ZERO_OK);
  std::fill(model.grad_of(1), model.grad_of(1) + kSize, NAN);
  EXPECT_EQ(model.step(), ZERO_SKIPPED);
  EXPECT_EQ(model.result().nonfinite, kSize);
}

TEST(Trainable, pointers_given_for_frozen_parameters_are_not_looked_at) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD, [](auto& params) { flag(params[2], ZERO_PARAM_FROZEN); });
  std::array<void*, kParams> grads;
  for (size_t i = 0; i < kParams; i++) grads[i] = model.grad_of(i);
  grads[2] = reinterpret_cast<char*>(model.data) + 1;  // misaligned, over a parameter
  zero_step_options options;
  zero_step_options_init(&options, sizeof options);
  options.grads = grads.data();
  options.grad_count = kParams;
  for (int step = 0; step < 2; step++) EXPECT_EQ(zero_step(model.optim, &options), ZERO_OK);
  EXPECT_EQ(model.value(2), 1);
  ASSERT_EQ(zero_set_trainable(model.optim, 2, 1), ZERO_OK);
  EXPECT_EQ(zero_step(model.optim, &options), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("'c'"));
}

TEST(Trainable, nothing_to_train_is_an_error_and_not_a_silent_step) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_ADAMW, [](auto& params) {
    for (auto& param : params) flag(param, ZERO_PARAM_FROZEN);
  });
  EXPECT_EQ(zero_broadcast_params(model.optim, 0, nullptr), ZERO_OK);
  EXPECT_EQ(model.step(), ZERO_ERR_STATE);
  EXPECT_TRUE(says("frozen"));
  EXPECT_EQ(model.result().step, 0);
  ASSERT_EQ(zero_set_trainable(model.optim, 3, 1), ZERO_OK);
  EXPECT_EQ(model.step(), ZERO_OK) << last();
  EXPECT_LT(model.value(3), 1);
  EXPECT_EQ(model.value(0), 1);
}

TEST(Trainable, wrong_numbers_and_moments_are_refused_without_effect) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD);
  for (const int64_t param : {int64_t{-1}, int64_t{4}, INT64_MAX})
    EXPECT_EQ(zero_set_trainable(model.optim, param, 0), ZERO_ERR_ARGUMENT) << param;
  for (const int32_t trainable : {-1, 2})
    EXPECT_EQ(zero_set_trainable(model.optim, 0, trainable), ZERO_ERR_ARGUMENT) << trainable;
  EXPECT_EQ(zero_set_trainable(nullptr, 0, 0), ZERO_ERR_ARGUMENT);
  ASSERT_EQ(zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, nullptr), ZERO_OK);
  EXPECT_EQ(zero_set_trainable(model.optim, 0, 0), ZERO_ERR_STATE);
  EXPECT_TRUE(says("reduced"));
  EXPECT_EQ(model.step(), ZERO_OK);
  for (size_t i = 0; i < kParams; i++) EXPECT_LT(model.value(i), 1) << i;
}

TEST(Trainable, freezing_never_moves_an_owner) {
  for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
    std::array<std::vector<std::string>, 2> owners;
    for (const bool freezes : {false, true}) {
      const std::string name = fresh_name();
      owners[freezes] = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
        Model model;
        model.build(
            local(name, rank, 3), ZERO_OPTIMIZER_SGD,
            [&](auto& params) {
              if (freezes) flag(params[3], ZERO_PARAM_FROZEN);
            },
            partition);
        EXPECT_EQ(model.step(), ZERO_OK) << last();
        if (freezes) {
          EXPECT_EQ(zero_set_trainable(model.optim, 0, 0), ZERO_OK);
        }
        float more = 1, grad = 1;
        zero_param late;
        zero_param_init(&late, sizeof late);
        late.name = "late";
        late.data = &more;
        late.grad = &grad;
        EXPECT_EQ(zero_register_params(model.optim, nullptr, &late, 1, nullptr), ZERO_OK);
        if (freezes) {
          EXPECT_EQ(zero_set_trainable(model.optim, 4, 0), ZERO_OK);
        }
        EXPECT_EQ(model.step(), ZERO_OK) << last();
        EXPECT_EQ(more == 1, freezes);
        std::string all;
        for (int of = 0; of < 3; of++) {
          for (const int64_t number : model.owned(of)) all += std::to_string(number) + " ";
        }
        return all;
      });
    }
    EXPECT_EQ(owners[0], owners[1]) << partition;
    EXPECT_NE(owners[0][0], "");
  }
}

TEST(Trainable, ranks_that_freeze_differently_are_told_the_parameter) {
  const std::string name = fresh_name();
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Model model;
    model.build(local(name, rank, 3), ZERO_OPTIMIZER_SGD);
    EXPECT_EQ(model.step(), ZERO_OK) << last();
    const float before = model.value(2);
    const std::function<zero_status()> calls[] = {
        [&] { return model.step(); },
        [&] { return zero_broadcast_params(model.optim, 0, nullptr); },
        [&] { return zero_state_save(model.optim, "/nonexistent/of/libzero-tests", nullptr); }};
    for (const auto& call : calls) {
      if (rank == 1) {
        EXPECT_EQ(zero_set_trainable(model.optim, 2, 0), ZERO_OK);
      }
      EXPECT_EQ(call(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
      EXPECT_TRUE(says("'c' is frozen"));
      EXPECT_TRUE(says("'c' is trained"));
      EXPECT_EQ(model.value(2), before);
      if (rank == 1) {
        EXPECT_EQ(zero_set_trainable(model.optim, 2, 1), ZERO_OK);
      }
    }
    EXPECT_EQ(model.step(), ZERO_OK) << last();
    EXPECT_LT(model.value(2), before);
    return std::string();
  });
}

TEST(Trainable, registrations_that_differ_in_what_is_the_parameters_own_are_named) {
  const std::pair<const char*, Change> cases[] = {
      {"'b'", [](auto& params) { flag(params[1], ZERO_PARAM_FROZEN); }},
      {"lr_scale", [](auto& params) { params[0].lr_scale = std::nextafter(0.5, 1); }},
      {"weight_decay", [](auto& params) { params[0].weight_decay = 0.25; }}};
  for (const auto& [words, change] : cases) {
    const std::string name = fresh_name();
    run_sound_ranks(RankKind::threads, 2, [&, words = words, &change = change](int rank) {
      Model model;
      model.build(local(name, rank, 2), ZERO_OPTIMIZER_SGD, [&](auto& params) {
        params[0].lr_scale = 0.5;
        params[0].weight_decay = 0.125;
        flag(params[0], ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY);
        if (rank == 1) change(params);
      });
      EXPECT_EQ(model.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
      EXPECT_TRUE(says(words));
      return std::string();
    });
  }
}

TEST(Trainable, a_steady_step_with_frozen_parameters_costs_no_call_more) {
  // Of the engine's functions, calls in one steady step: all trained, one frozen, three of them.
  std::array<std::map<std::string, int>, 3> calls;
  Engine engine(2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    std::map<std::string, int> counted;
    EngineSeat* seat = engine.seat(rank);
    seat->before = [&](const char* function) {
      counted[function]++;
      return ZERO_OK;
    };
    zero_comm* comm = nullptr;
    const zero_comm_functions functions = as_public(Engine::functions());
    zero_comm_options options;
    zero_comm_options_init(&options, sizeof options);
    EXPECT_EQ(zero_comm_create_user(&comm, &functions, seat, rank, 2, &options), ZERO_OK);
    Model model;
    model.build(comm, ZERO_OPTIMIZER_ADAMW);
    for (size_t frozen = 0; frozen < 3; frozen++) {
      if (frozen == 1) {
        EXPECT_EQ(zero_set_trainable(model.optim, 1, 0), ZERO_OK);
      }
      if (frozen == 2) {
        EXPECT_EQ(zero_set_trainable(model.optim, 2, 0), ZERO_OK);
        EXPECT_EQ(zero_set_trainable(model.optim, 3, 0), ZERO_OK);
      }
      EXPECT_EQ(model.step(), ZERO_OK) << last();
      counted.clear();
      EXPECT_EQ(model.step(), ZERO_OK) << last();
      if (rank == 0) calls[frozen] = counted;
    }
    return std::string();
  });
  EXPECT_GT(calls[0]["exchange"], 0);
  EXPECT_EQ(calls[1]["exchange"], calls[0]["exchange"]);
  EXPECT_EQ(calls[2]["exchange"], calls[0]["exchange"]);
  // Three quarters of the model do not travel: their buckets are left out.
  for (const char* moves : {"all_to_all", "all_gather"}) {
    EXPECT_LE(calls[2][moves], calls[0][moves] / 2) << moves;
    EXPECT_GT(calls[2][moves], 0) << moves;
  }
}

TEST(Trainable, checkpoints_hold_frozen_parameters_and_leave_frozen_what_is) {
  const Scratch scratch;
  float expected = 0;
  {
    Model model;
    model.build(solo(), ZERO_OPTIMIZER_ADAMW,
                [](auto& params) { flag(params[0], ZERO_PARAM_FROZEN); });
    model.data[model.offsets[0] + kSize - 1] = 7;
    EXPECT_EQ(model.step(), ZERO_OK);
    ASSERT_EQ(zero_set_trainable(model.optim, 1, 0), ZERO_OK);
    EXPECT_EQ(model.step(), ZERO_OK);
    ASSERT_EQ(zero_state_save(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK) << last();
    ASSERT_EQ(zero_set_trainable(model.optim, 1, 1), ZERO_OK);
    model.fill_grads(-3);
    EXPECT_EQ(model.step(), ZERO_OK);
    expected = model.value(1);
  }
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_ADAMW,
              [](auto& params) { flag(params[0], ZERO_PARAM_FROZEN); });
  ASSERT_EQ(zero_state_load(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK) << last();
  model.fill_grads(-3);
  EXPECT_EQ(model.step(), ZERO_OK) << last();
  EXPECT_EQ(model.value(0), 7);
  EXPECT_EQ(model.value(1), expected);  // its second update, of the state after its first
}

/// Two parameters of integers around one that is trained, in memory of the rank's own.
struct Mixed {
  explicit Mixed(zero_comm* seat, int32_t partition) : comm(seat) {
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.optimizer = ZERO_OPTIMIZER_ADAM;
    options.partition = partition;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
    const int64_t size = kSize, one = 1;
    std::array<zero_param, 3> params;
    for (zero_param& param : params) {
      zero_param_init(&param, sizeof param);
      param.shape = &size;
      param.ndim = 1;
      param.flags = ZERO_PARAM_FROZEN;
    }
    params[0].name = "ids";
    params[0].data = ids.data();
    params[0].dtype = ZERO_INT64;
    params[1].name = "w";
    params[1].data = w.data();
    params[1].grad = grad.data();
    params[1].flags = 0;
    params[2].name = "count";
    params[2].data = &count;
    params[2].shape = &one;
    params[2].dtype = ZERO_INT32;
    EXPECT_EQ(zero_register_params(optim, nullptr, params.data(), 3, nullptr), ZERO_OK) << last();
  }
  ~Mixed() {
    zero_free(optim);
    zero_comm_free(comm);
  }
  void fill(int rank) {
    for (size_t i = 0; i < ids.size(); i++)
      ids[i] = (int64_t{1} << 60) + static_cast<int64_t>(i) * (rank + 1);
    count = INT32_MAX - rank;
  }
  bool holds(int rank) {
    for (size_t i = 0; i < ids.size(); i++) {
      if (ids[i] != (int64_t{1} << 60) + static_cast<int64_t>(i) * (rank + 1)) return false;
    }
    return count == INT32_MAX - rank;
  }

  zero_comm* comm;
  zero_optim* optim = nullptr;
  std::vector<int64_t> ids = std::vector<int64_t>(kSize);
  std::vector<float> w = std::vector<float>(kSize, 1), grad = std::vector<float>(kSize, 1);
  int32_t count = 0;
};

TEST(Trainable, integers_are_broadcast_saved_and_loaded_but_never_trained) {
  for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
    const Scratch scratch;
    std::vector<float> trained;
    for (const int world : {3, 2}) {  // the first saves, the second loads and goes on
      Engine engine(world);
      const std::string name = fresh_name();
      run_sound_ranks(RankKind::threads, world, [&](int rank) {
        zero_comm* comm = nullptr;
        const zero_comm_functions functions = as_public(Engine::functions());
        if (world == 2) {
          EXPECT_EQ(zero_comm_create_user(&comm, &functions, engine.seat(rank), rank, 2, nullptr),
                    ZERO_OK);
        }
        Mixed model(world == 2 ? comm : local(name, rank, world), partition);
        model.fill(rank);
        EXPECT_EQ(zero_set_trainable(model.optim, 0, 1), ZERO_ERR_UNSUPPORTED);
        EXPECT_TRUE(says("'ids' is int64"));
        EXPECT_EQ(zero_set_trainable(model.optim, 0, 0), ZERO_OK);
        if (world == 3) {
          EXPECT_EQ(zero_broadcast_params(model.optim, 1, nullptr), ZERO_OK) << last();
        } else {
          EXPECT_EQ(zero_state_load(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK)
              << last();
        }
        EXPECT_TRUE(model.holds(1));
        const int32_t count = std::exchange(model.count, 100 + rank);
        EXPECT_EQ(zero_step(model.optim, nullptr), ZERO_OK) << last();
        EXPECT_EQ(model.count, 100 + rank);  // a step writes nothing that is frozen
        model.count = count;
        EXPECT_TRUE(model.holds(1));
        std::vector<int64_t> gathered(kSize);
        EXPECT_EQ(
            zero_state_gather(model.optim, 0, nullptr, ZERO_ALL_RANKS, gathered.data(), kSize),
            ZERO_OK)
            << last();
        EXPECT_EQ(gathered, model.ids);
        EXPECT_EQ(zero_state_set(model.optim, 0, "exp_avg", 0, kSize, gathered.data()),
                  ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_set_scalar(model.optim, 0, "step", 5), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_set_scalar(model.optim, ZERO_ALL_PARAMS, "step", world == 3 ? 1 : 2),
                  ZERO_OK)
            << last();
        if (world == 3) {
          EXPECT_EQ(zero_state_save(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK)
              << last();
          EXPECT_EQ(zero_step(model.optim, nullptr), ZERO_OK) << last();
          if (rank == 0) trained = model.w;
        } else {
          EXPECT_EQ(model.w, trained);
        }
        zero_statistics statistics;
        zero_statistics_init(&statistics, sizeof statistics);
        zero_stats(model.optim, &statistics);
        EXPECT_LE(statistics.state_bytes, (kSize + 1024) * 2 * int64_t{sizeof(float)});
        return std::string();
      });
    }
  }
}

TEST(Trainable, own_settings_scale_the_groups_lr_and_replace_its_weight_decay) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD, [](auto& params) {
    params[0].lr_scale = params[0].weight_decay = 9;  // without flags they say nothing
    params[1].lr_scale = 0.5;
    params[2].weight_decay = 0.5;
    params[3].lr_scale = 0;
    flag(params[1], ZERO_PARAM_LR_SCALE);
    flag(params[2], ZERO_PARAM_WEIGHT_DECAY);
    flag(params[3], ZERO_PARAM_LR_SCALE);
  });
  ASSERT_EQ(model.registered, ZERO_OK) << last();
  ASSERT_EQ(zero_group_set(model.optim, 0, "lr", 0.5), ZERO_OK);
  ASSERT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(0), 0.5f);
  EXPECT_EQ(model.value(1), 0.75f);
  EXPECT_EQ(model.value(2), 0.25f);  // 1 - 0.5 * (1 + 0.5 * 1)
  EXPECT_EQ(model.value(3), 1);
  ASSERT_EQ(zero_group_set(model.optim, 0, "weight_decay", 1), ZERO_OK);
  ASSERT_EQ(zero_group_set(model.optim, 0, "lr", 0.25), ZERO_OK);
  model.fill_grads(0);
  ASSERT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(0), 0.375f);
  EXPECT_EQ(model.value(1), 0.65625f);  // 0.75 * (1 - 0.125)
  EXPECT_EQ(model.value(2), 0.21875f);  // 0.25 * (1 - 0.25 * 0.5)
}

TEST(Trainable, own_settings_out_of_range_or_unknown_to_the_rule_are_named) {
  const struct {
    int32_t optimizer;
    const char* words;
    Change change;
  } cases[] = {
      {ZERO_OPTIMIZER_SGD, "lr_scale is -1", [](auto& p) { p[1].lr_scale = -1; }},
      {ZERO_OPTIMIZER_SGD, "lr_scale is", [](auto& p) { p[1].lr_scale = NAN; }},
      {ZERO_OPTIMIZER_SGD, "lr_scale is", [](auto& p) { p[1].lr_scale = INFINITY; }},
      {ZERO_OPTIMIZER_SGD, "weight_decay is -0.5", [](auto& p) { p[1].weight_decay = -0.5; }},
      {ZERO_OPTIMIZER_RPROP, "rprop", [](auto&) {}}};
  for (const auto& one : cases) {
    Model model;
    model.build(solo(), one.optimizer, [&](auto& params) {
      flag(params[1], ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY);
      one.change(params);
    });
    EXPECT_EQ(model.registered, ZERO_ERR_ARGUMENT) << one.words;
    EXPECT_TRUE(says(one.words));
    EXPECT_TRUE(says("'b'"));
  }
}

TEST(Trainable, rprop_scales_its_first_step_size_alone) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_RPROP, [](auto& params) {
    params[1].lr_scale = 0.5;
    flag(params[1], ZERO_PARAM_LR_SCALE);
  });
  ASSERT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(0), 1 - 0.01f);
  EXPECT_EQ(model.value(1), 1 - 0.005f);
  ASSERT_EQ(zero_group_set(model.optim, 0, "lr", 1), ZERO_OK);
  ASSERT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(1), 1 - 0.005f - 0.005f * 1.2f);
}

}  // namespace
}  // namespace zero::test
