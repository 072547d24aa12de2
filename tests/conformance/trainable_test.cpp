// SPDX-License-Identifier: Apache-2.0
// Properties of single parameters: whether they are trained, their factor of lr, and their weight
// decay. equivalence_test.cpp compares runs that use all of these with one process.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/optim.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

constexpr size_t kParams = 4;
constexpr int64_t kSize = 3000;
constexpr std::array<const char*, kParams> kNames = {"a", "b", "c", "d"};

/// A change of the model before it is registered.
using Change = std::function<void(std::array<zero_param, kParams>&)>;

/// One rank's model with four parameters, all 1, with gradients of 1.
class Model : public Optim {
 public:
  template <class Seat>
  Model(Seat seat, int32_t optimizer, const Change& change = {},
        int32_t partition = ZERO_PARTITION_EVEN, int32_t nonfinite = ZERO_NONFINITE_IGNORE)
      : Model(seat, options_with([&](zero_options& o) {
                o.optimizer = optimizer;
                o.partition = partition;
                o.nonfinite = nonfinite;
                o.bucket_bytes = 4096;
              }),
              change) {}
  ~Model() { free(); }

  void fill_grads(float value) { std::fill_n(grads_->floats(), elements_, value); }
  void fill_grad(size_t param, float value) { std::fill_n(grad_of(param), kSize, value); }
  float* grad_of(size_t param) const { return grads_->floats() + offsets_[param]; }
  float* data_of(size_t param) const { return data_->floats() + offsets_[param]; }
  float value(size_t param) const { return data_of(param)[kSize - 1]; }

  zero_status registered = ZERO_OK;

 private:
  template <class Seat>
  Model(Seat seat, const zero_options& options, const Change& change) : Optim(seat, options) {
    std::array<zero_param, kParams> params;
    for (size_t i = 0; i < kParams; i++) {
      params[i] = parameter(kNames[i], kSize, nullptr);
      params[i].flags = ZERO_PARAM_PADDED;
      params[i].owner = world() - 1;
    }
    std::array<int64_t, kParams> at;
    auto plan = initialized<zero_plan>();
    plan.offsets = at.data();
    EXPECT_OK(zero_partition_plan(params.data(), kParams, world(), &options, &plan));
    elements_ = static_cast<size_t>(plan.arena_bytes) / sizeof(float);
    for (std::optional<Arena>* const arena : {&data_, &grads_}) {
      arena->emplace(comm(), static_cast<size_t>(plan.arena_bytes));
      std::fill_n((*arena)->floats(), elements_, 1.0f);
    }
    for (size_t i = 0; i < kParams; i++) {
      offsets_[i] = static_cast<size_t>(at[i]) / sizeof(float);
      params[i].data = data_of(i);
      params[i].grad = grad_of(i);
    }
    if (change) change(params);
    registered = zero_register_params(optim(), nullptr, params.data(), kParams, nullptr);
  }
  size_t elements_ = 0;
  std::array<size_t, kParams> offsets_;
  std::optional<Arena> data_, grads_;
};

void flag(zero_param& param, int32_t flag) { param.flags |= flag; }

TEST(Trainable, what_a_frozen_gradient_holds_is_neither_counted_nor_in_the_norm) {
  Model model(alone(), ZERO_OPTIMIZER_SGD, {}, ZERO_PARTITION_EVEN, ZERO_NONFINITE_SKIP);
  model.freeze(1);
  model.fill_grad(1, NAN);
  EXPECT_OK(model.step());
  EXPECT_EQ(model.found().nonfinite, 0);
  model.fill_grad(1, INFINITY);
  model.fill_grads(2);
  EXPECT_NEAR(model.clip(INFINITY, 2), 2 * std::sqrt(3.0 * kSize), 1e-9);
  EXPECT_OK(model.step());
  EXPECT_EQ(model.value(1), 1);
  EXPECT_LT(model.value(0), 1);

  model.freeze(1, false);
  model.fill_grad(1, NAN);
  EXPECT_EQ(model.step(), ZERO_SKIPPED);
  EXPECT_EQ(model.found().nonfinite, kSize);
}

TEST(Trainable, pointers_given_for_frozen_parameters_are_not_looked_at) {
  Model model(alone(), ZERO_OPTIMIZER_SGD,
              [](auto& params) { flag(params[2], ZERO_PARAM_FROZEN); });
  std::vector<void*> grads;
  for (size_t i = 0; i < kParams; i++) grads.push_back(model.grad_of(i));
  grads[2] = reinterpret_cast<char*>(model.data_of(0)) + 1;  // misaligned, over a parameter
  for (int step = 0; step < 2; step++) EXPECT_OK(model.step_with(grads));
  EXPECT_EQ(model.value(2), 1);
  model.freeze(2, false);
  EXPECT_TRUE(ends(model.step_with(grads), ZERO_ERR_ARGUMENT, "'c'"));
}

TEST(Trainable, nothing_to_train_is_an_error_and_not_a_silent_step) {
  Model model(alone(), ZERO_OPTIMIZER_ADAMW, [](auto& params) {
    for (auto& param : params) flag(param, ZERO_PARAM_FROZEN);
  });
  EXPECT_OK(zero_broadcast_params(model.optim(), 0, nullptr));
  EXPECT_TRUE(ends(model.step(), ZERO_ERR_STATE, "frozen"));
  EXPECT_EQ(model.found().step, 0);
  model.freeze(3, false);
  EXPECT_OK(model.step());
  EXPECT_LT(model.value(3), 1);
  EXPECT_EQ(model.value(0), 1);
}

TEST(Trainable, wrong_numbers_and_moments_are_refused_without_effect) {
  Model model(alone(), ZERO_OPTIMIZER_SGD);
  for (const int64_t param : {int64_t{-1}, int64_t{4}, INT64_MAX})
    EXPECT_EQ(zero_param_set_trainable(model.optim(), param, 0), ZERO_ERR_ARGUMENT) << param;
  for (const int32_t trainable : {-1, 2})
    EXPECT_EQ(zero_param_set_trainable(model.optim(), 0, trainable), ZERO_ERR_ARGUMENT)
        << trainable;
  EXPECT_EQ(zero_param_set_trainable(nullptr, 0, 0), ZERO_ERR_ARGUMENT);
  EXPECT_OK(model.reduce());
  EXPECT_TRUE(ends(zero_param_set_trainable(model.optim(), 0, 0), ZERO_ERR_STATE, "reduced"));
  EXPECT_OK(model.step());
  for (size_t i = 0; i < kParams; i++) EXPECT_LT(model.value(i), 1) << i;
}

TEST(Trainable, freezing_never_moves_an_owner) {
  for (const int32_t partition : kPartitions) {
    std::array<std::vector<std::string>, 2> owners;
    for (const bool freezes : {false, true}) {
      owners[freezes] = results_of(Meeting(CommKind::local, 3), [&](zero_comm* comm, int) {
        float more = 1, grad = 1;
        Model model(
            comm, ZERO_OPTIMIZER_SGD,
            [&](auto& params) {
              if (freezes) flag(params[3], ZERO_PARAM_FROZEN);
            },
            partition);
        EXPECT_OK(model.step());
        if (freezes) model.freeze(0);
        model.add(parameter("late", kOne, &more, &grad));
        if (freezes) model.freeze(4);
        EXPECT_OK(model.step());
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
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
    Model model(comm, ZERO_OPTIMIZER_SGD);
    EXPECT_OK(model.step());
    const float before = model.value(2);
    const std::function<zero_status()> calls[] = {
        [&] { return model.step(); },
        [&] { return zero_broadcast_params(model.optim(), 0, nullptr); },
        [&] { return zero_state_save(model.optim(), "/nonexistent/of/libzero-tests", nullptr); }};
    for (const auto& call : calls) {
      if (rank == 1) model.freeze(2);
      EXPECT_TRUE(ends(call(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "'c' is frozen"));
      EXPECT_TRUE(says("'c' is trained"));
      EXPECT_EQ(model.value(2), before);
      if (rank == 1) model.freeze(2, false);
    }
    EXPECT_OK(model.step());
    EXPECT_LT(model.value(2), before);
  });
}

TEST(Trainable, registrations_that_differ_in_what_is_the_parameters_own_are_named) {
  const std::pair<const char*, Change> cases[] = {
      {"'b'", [](auto& params) { flag(params[1], ZERO_PARAM_FROZEN); }},
      {"lr_scale", [](auto& params) { params[0].lr_scale = std::nextafter(0.5, 1); }},
      {"weight_decay", [](auto& params) { params[0].weight_decay = 0.25; }}};
  for (const auto& [words, change] : cases) {
    on_ranks(CommKind::local, 2, [&, words = words, &change = change](zero_comm* comm, int rank) {
      Model model(comm, ZERO_OPTIMIZER_SGD, [&](auto& params) {
        params[0].lr_scale = 0.5;
        params[0].weight_decay = 0.125;
        flag(params[0], ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY);
        if (rank == 1) change(params);
      });
      EXPECT_TRUE(ends(model.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
    });
  }
}

TEST(Trainable, a_steady_step_with_frozen_parameters_costs_no_call_more) {
  // Calls of the engine's functions in one steady step, with all trained, one frozen, and three
  // frozen.
  std::array<std::map<std::string, int>, 3> calls;
  const Meeting meeting(CommKind::user, 2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    std::map<std::string, int> counted;
    const auto count = [&](const char* function) {
      counted[function]++;
      return ZERO_OK;
    };
    Model model(std::shared_ptr<zero_comm>(meeting.join(rank, count), zero_comm_free),
                ZERO_OPTIMIZER_ADAMW);
    for (size_t frozen = 0; frozen < 3; frozen++) {
      if (frozen == 1) model.freeze(1);
      if (frozen == 2) {
        model.freeze(2);
        model.freeze(3);
      }
      for (int step = 0; step < 2; step++) EXPECT_OK(model.step());
      counted.clear();
      EXPECT_OK(model.step());
      if (rank == 0) calls[frozen] = counted;
    }
    return std::string();
  });
  EXPECT_GT(calls[0]["exchange"], 0);
  EXPECT_EQ(calls[1]["exchange"], calls[0]["exchange"]);
  EXPECT_EQ(calls[2]["exchange"], calls[0]["exchange"]);
  // Three quarters of the model do not travel, because their buckets are left out.
  for (const char* moves : {"all_to_all", "all_gather"}) {
    EXPECT_LE(calls[2][moves], calls[0][moves] / 2) << moves;
    EXPECT_GT(calls[2][moves], 0) << moves;
  }
}

TEST(Trainable, checkpoints_hold_frozen_parameters_and_leave_frozen_what_is) {
  const Scratch scratch;
  float expected = 0;
  {
    Model model(alone(), ZERO_OPTIMIZER_ADAMW,
                [](auto& params) { flag(params[0], ZERO_PARAM_FROZEN); });
    model.data_of(0)[kSize - 1] = 7;
    EXPECT_OK(model.step());
    model.freeze(1);
    EXPECT_OK(model.step());
    model.save(scratch / "c");
    model.freeze(1, false);
    model.fill_grads(-3);
    EXPECT_OK(model.step());
    expected = model.value(1);
  }
  Model model(alone(), ZERO_OPTIMIZER_ADAMW,
              [](auto& params) { flag(params[0], ZERO_PARAM_FROZEN); });
  model.load(scratch / "c");
  model.fill_grads(-3);
  EXPECT_OK(model.step());
  EXPECT_EQ(model.value(0), 7);
  EXPECT_EQ(model.value(1), expected);  // its second update, from the state after the first
}

TEST(Trainable, own_settings_scale_the_groups_lr_and_replace_its_weight_decay) {
  Model model(alone(), ZERO_OPTIMIZER_SGD, [](auto& params) {
    params[0].lr_scale = params[0].weight_decay = 9;  // ignored without flags
    params[1].lr_scale = 0.5;
    params[2].weight_decay = 0.5;
    params[3].lr_scale = 0;
    flag(params[1], ZERO_PARAM_LR_SCALE);
    flag(params[2], ZERO_PARAM_WEIGHT_DECAY);
    flag(params[3], ZERO_PARAM_LR_SCALE);
  });
  ASSERT_OK(model.registered);
  model.set("lr", 0.5, 0);
  ASSERT_OK(model.step());
  EXPECT_EQ(model.value(0), 0.5f);
  EXPECT_EQ(model.value(1), 0.75f);
  EXPECT_EQ(model.value(2), 0.25f);  // 1 - 0.5 * (1 + 0.5 * 1)
  EXPECT_EQ(model.value(3), 1);
  model.set("weight_decay", 1, 0);
  model.set("lr", 0.25, 0);
  model.fill_grads(0);
  ASSERT_OK(model.step());
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
    Model model(alone(), one.optimizer, [&](auto& params) {
      flag(params[1], ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY);
      one.change(params);
    });
    EXPECT_TRUE(ends(model.registered, ZERO_ERR_ARGUMENT, one.words)) << one.words;
    EXPECT_TRUE(says("'b'"));
  }
}

TEST(Trainable, rprop_scales_its_first_step_size_alone) {
  Model model(alone(), ZERO_OPTIMIZER_RPROP, [](auto& params) {
    params[1].lr_scale = 0.5;
    flag(params[1], ZERO_PARAM_LR_SCALE);
  });
  ASSERT_OK(model.step());
  EXPECT_EQ(model.value(0), 1 - 0.01f);
  EXPECT_EQ(model.value(1), 1 - 0.005f);
  model.set("lr", 1, 0);
  ASSERT_OK(model.step());
  EXPECT_EQ(model.value(1), 1 - 0.005f - 0.005f * 1.2f);
}

// ---- Parameters that no rule can train are registered as frozen.

/// Two integer parameters and one trained parameter between them, in the rank's own memory.
class Mixed : public Optim {
 public:
  Mixed(zero_comm* comm, int32_t partition)
      : Optim(comm, options_with([&](zero_options& o) {
                o.optimizer = ZERO_OPTIMIZER_ADAM;
                o.partition = partition;
              })) {
    std::array params = {parameter("ids", kSize, ids.data(), nullptr, ZERO_INT64),
                         parameter("w", kSize, w.data(), grad_.data()),
                         parameter("count", kOne, &count, nullptr, ZERO_INT32)};
    params[0].flags = params[2].flags = ZERO_PARAM_FROZEN;
    add(params);
  }
  ~Mixed() { free(); }

  static int64_t id(size_t i, int rank) {
    return (int64_t{1} << 60) + static_cast<int64_t>(i) * (rank + 1);
  }
  void fill(int rank) {
    for (size_t i = 0; i < ids.size(); i++) ids[i] = id(i, rank);
    count = INT32_MAX - rank;
  }
  bool holds(int rank) const {
    for (size_t i = 0; i < ids.size(); i++) {
      if (ids[i] != id(i, rank)) return false;
    }
    return count == INT32_MAX - rank;
  }

  std::vector<int64_t> ids = std::vector<int64_t>(kSize);
  std::vector<float> w = std::vector<float>(kSize, 1);
  int32_t count = 0;

 private:
  std::vector<float> grad_ = std::vector<float>(kSize, 1);
};

TEST(Trainable, integers_are_broadcast_saved_and_loaded_but_never_trained) {
  for (const int32_t partition : kPartitions) {
    const Scratch scratch;
    std::vector<float> trained;
    for (const int world : {3, 2}) {  // the first saves; the second loads and continues
      on_ranks(
          world == 3 ? CommKind::local : CommKind::user, world, [&](zero_comm* comm, int rank) {
            Mixed model(comm, partition);
            model.fill(rank);
            EXPECT_TRUE(ends(zero_param_set_trainable(model.optim(), 0, 1), ZERO_ERR_UNSUPPORTED,
                             "'ids' is int64"));
            model.freeze(0);
            if (world == 3) {
              model.broadcast(1);
            } else {
              model.load(scratch / "c");
            }
            EXPECT_TRUE(model.holds(1));
            const int32_t count = std::exchange(model.count, 100 + rank);
            EXPECT_OK(model.step());
            EXPECT_EQ(model.count, 100 + rank);  // a step writes nothing that is frozen
            model.count = count;
            EXPECT_TRUE(model.holds(1));
            const auto gathered = model.gathered<int64_t>(0, nullptr, kSize);
            EXPECT_EQ(gathered, model.ids);
            EXPECT_EQ(zero_state_set(model.optim(), 0, "exp_avg", 0, kSize, gathered.data()),
                      ZERO_ERR_ARGUMENT);
            EXPECT_EQ(model.set_scalar(0, "step", 5), ZERO_ERR_ARGUMENT);
            EXPECT_OK(model.set_scalar(ZERO_ALL_PARAMS, "step", world == 3 ? 1 : 2));
            if (world == 3) {
              model.save(scratch / "c");
              EXPECT_OK(model.step());
              if (rank == 0) trained = model.w;
            } else {
              EXPECT_EQ(model.w, trained);
            }
            EXPECT_LE(model.statistics().state_bytes, (kSize + 1024) * 2 * int64_t{sizeof(float)});
          });
    }
  }
}

}  // namespace
}  // namespace zero::test
