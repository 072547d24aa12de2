// SPDX-License-Identifier: Apache-2.0
// What a parameter has of its own: whether it is trained, its factor of lr, its weight decay. That
// runs with all of it equal one process is in equivalence_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

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
    auto options = initialized<zero_options>();
    options.optimizer = optimizer;
    options.partition = partition;
    options.nonfinite = nonfinite;
    options.bucket_bytes = 4096;
    ASSERT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
    std::array<zero_param, kParams> params;
    for (zero_param& param : params) ZERO_INIT(param);
    for (size_t i = 0; i < kParams; i++) {
      params[i].name = kNames[i];
      params[i].shape = &kSize;
      params[i].ndim = 1;
      params[i].flags = ZERO_PARAM_PADDED;
      params[i].owner = zero_comm_world(comm) - 1;
    }
    std::array<int64_t, kParams> at;
    auto plan = initialized<zero_plan>();
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
    auto out = initialized<zero_result>();
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

void flag(zero_param& param, int32_t flag) { param.flags |= flag; }

TEST(Trainable, what_a_frozen_gradient_holds_is_neither_counted_nor_in_the_norm) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD, {}, ZERO_PARTITION_EVEN, ZERO_NONFINITE_SKIP);
  ASSERT_EQ(zero_param_set_trainable(model.optim, 1, 0), ZERO_OK);
  std::fill(model.grad_of(1), model.grad_of(1) + kSize, NAN);
  EXPECT_EQ(model.step(), ZERO_OK) << last();
  EXPECT_EQ(model.result().nonfinite, 0);
  std::fill(model.grad_of(1), model.grad_of(1) + kSize, INFINITY);
  double norm = 0;
  model.fill_grads(2);
  EXPECT_EQ(zero_clip_grad_norm(model.optim, nullptr, 0, INFINITY, 2, &norm, nullptr), ZERO_OK);
  EXPECT_NEAR(norm, 2 * std::sqrt(3.0 * kSize), 1e-9);
  EXPECT_EQ(model.step(), ZERO_OK);
  EXPECT_EQ(model.value(1), 1);
  EXPECT_LT(model.value(0), 1);

  ASSERT_EQ(zero_param_set_trainable(model.optim, 1, 1), ZERO_OK);
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
  auto options = initialized<zero_step_options>();
  options.grads = grads.data();
  options.grad_count = kParams;
  for (int step = 0; step < 2; step++) EXPECT_EQ(zero_step(model.optim, &options), ZERO_OK);
  EXPECT_EQ(model.value(2), 1);
  ASSERT_EQ(zero_param_set_trainable(model.optim, 2, 1), ZERO_OK);
  EXPECT_TRUE(ends(zero_step(model.optim, &options), ZERO_ERR_ARGUMENT, "'c'"));
}

TEST(Trainable, nothing_to_train_is_an_error_and_not_a_silent_step) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_ADAMW, [](auto& params) {
    for (auto& param : params) flag(param, ZERO_PARAM_FROZEN);
  });
  EXPECT_EQ(zero_broadcast_params(model.optim, 0, nullptr), ZERO_OK);
  EXPECT_TRUE(ends(model.step(), ZERO_ERR_STATE, "frozen"));
  EXPECT_EQ(model.result().step, 0);
  ASSERT_EQ(zero_param_set_trainable(model.optim, 3, 1), ZERO_OK);
  EXPECT_EQ(model.step(), ZERO_OK) << last();
  EXPECT_LT(model.value(3), 1);
  EXPECT_EQ(model.value(0), 1);
}

TEST(Trainable, wrong_numbers_and_moments_are_refused_without_effect) {
  Model model;
  model.build(solo(), ZERO_OPTIMIZER_SGD);
  for (const int64_t param : {int64_t{-1}, int64_t{4}, INT64_MAX})
    EXPECT_EQ(zero_param_set_trainable(model.optim, param, 0), ZERO_ERR_ARGUMENT) << param;
  for (const int32_t trainable : {-1, 2})
    EXPECT_EQ(zero_param_set_trainable(model.optim, 0, trainable), ZERO_ERR_ARGUMENT) << trainable;
  EXPECT_EQ(zero_param_set_trainable(nullptr, 0, 0), ZERO_ERR_ARGUMENT);
  ASSERT_EQ(zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, nullptr), ZERO_OK);
  EXPECT_TRUE(ends(zero_param_set_trainable(model.optim, 0, 0), ZERO_ERR_STATE, "reduced"));
  EXPECT_EQ(model.step(), ZERO_OK);
  for (size_t i = 0; i < kParams; i++) EXPECT_LT(model.value(i), 1) << i;
}

TEST(Trainable, freezing_never_moves_an_owner) {
  for (int32_t partition = ZERO_PARTITION_EVEN; partition <= ZERO_PARTITION_MANUAL; partition++) {
    std::array<std::vector<std::string>, 2> owners;
    for (const bool freezes : {false, true}) {
      const Meeting meeting(CommKind::local, 3);
      owners[freezes] = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
        Model model;
        model.build(
            meeting.join(rank), ZERO_OPTIMIZER_SGD,
            [&](auto& params) {
              if (freezes) flag(params[3], ZERO_PARAM_FROZEN);
            },
            partition);
        EXPECT_EQ(model.step(), ZERO_OK) << last();
        if (freezes) {
          EXPECT_EQ(zero_param_set_trainable(model.optim, 0, 0), ZERO_OK);
        }
        float more = 1, grad = 1;
        auto late = initialized<zero_param>();
        late.name = "late";
        late.data = &more;
        late.grad = &grad;
        EXPECT_EQ(zero_register_params(model.optim, nullptr, &late, 1, nullptr), ZERO_OK);
        if (freezes) {
          EXPECT_EQ(zero_param_set_trainable(model.optim, 4, 0), ZERO_OK);
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
  const Meeting meeting(CommKind::local, 3);
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Model model;
    model.build(meeting.join(rank), ZERO_OPTIMIZER_SGD);
    EXPECT_EQ(model.step(), ZERO_OK) << last();
    const float before = model.value(2);
    const std::function<zero_status()> calls[] = {
        [&] { return model.step(); },
        [&] { return zero_broadcast_params(model.optim, 0, nullptr); },
        [&] { return zero_state_save(model.optim, "/nonexistent/of/libzero-tests", nullptr); }};
    for (const auto& call : calls) {
      if (rank == 1) {
        EXPECT_EQ(zero_param_set_trainable(model.optim, 2, 0), ZERO_OK);
      }
      EXPECT_TRUE(ends(call(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "'c' is frozen"));
      EXPECT_TRUE(says("'c' is trained"));
      EXPECT_EQ(model.value(2), before);
      if (rank == 1) {
        EXPECT_EQ(zero_param_set_trainable(model.optim, 2, 1), ZERO_OK);
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
    const Meeting meeting(CommKind::local, 2);
    run_sound_ranks(RankKind::threads, 2, [&, words = words, &change = change](int rank) {
      Model model;
      model.build(meeting.join(rank), ZERO_OPTIMIZER_SGD, [&](auto& params) {
        params[0].lr_scale = 0.5;
        params[0].weight_decay = 0.125;
        flag(params[0], ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY);
        if (rank == 1) change(params);
      });
      EXPECT_TRUE(ends(model.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
      return std::string();
    });
  }
}

TEST(Trainable, a_steady_step_with_frozen_parameters_costs_no_call_more) {
  // Of the engine's functions, calls in one steady step: all trained, one frozen, three of them.
  std::array<std::map<std::string, int>, 3> calls;
  const Meeting meeting(CommKind::user, 2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    std::map<std::string, int> counted;
    Model model;
    model.build(meeting.join(rank,
                             [&](const char* function) {
                               counted[function]++;
                               return ZERO_OK;
                             }),
                ZERO_OPTIMIZER_ADAMW);
    for (size_t frozen = 0; frozen < 3; frozen++) {
      if (frozen == 1) {
        EXPECT_EQ(zero_param_set_trainable(model.optim, 1, 0), ZERO_OK);
      }
      if (frozen == 2) {
        EXPECT_EQ(zero_param_set_trainable(model.optim, 2, 0), ZERO_OK);
        EXPECT_EQ(zero_param_set_trainable(model.optim, 3, 0), ZERO_OK);
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
    ASSERT_EQ(zero_param_set_trainable(model.optim, 1, 0), ZERO_OK);
    EXPECT_EQ(model.step(), ZERO_OK);
    ASSERT_EQ(zero_state_save(model.optim, (scratch / "c").c_str(), nullptr), ZERO_OK) << last();
    ASSERT_EQ(zero_param_set_trainable(model.optim, 1, 1), ZERO_OK);
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
    EXPECT_TRUE(ends(model.registered, ZERO_ERR_ARGUMENT, one.words)) << one.words;
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
