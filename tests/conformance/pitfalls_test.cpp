// SPDX-License-Identifier: Apache-2.0
// Small runs in which other sharded optimizers train wrongly without a word: groups that come after
// a freeze, memory that moves, snapshots that live on, several ranks that overflow at once.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

/// Run `body` on `world` ranks of each kind of comm; all must end with the same bits.
void everywhere(int world, const Choices& choices,
                const std::function<std::vector<float>(Rank&, int rank)>& body) {
  for (const CommKind kind : kCommKinds) {
    const Meeting meeting(kind, world);
    const auto ends = run_sound_ranks(RankKind::threads, world, [&](int rank) {
      Rank self(meeting.join(rank), choices);
      const std::vector<float> values = body(self, rank);
      return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    });
    for (const std::string& end : ends) EXPECT_EQ(end, ends[0]) << name_of(kind);
  }
}

std::vector<Tensor> tensors(const std::vector<size_t>& sizes) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < sizes.size(); i++) {
    out.push_back({.name = std::to_string(i), .data = std::vector<float>(sizes[i], 1)});
    out.back().grad.assign(sizes[i], 1);
  }
  return out;
}

int32_t owner_of(Rank& self, int64_t param) {
  for (int32_t rank = 0; rank < 2; rank++) {
    int64_t ranges[3 * 8];
    size_t count = 0;
    EXPECT_EQ(zero_owned_ranges(self.optim(), rank, ranges, 8, &count), ZERO_OK) << last();
    for (size_t i = 0; i < count; i++)
      if (ranges[3 * i] == param) return rank;
  }
  return -1;
}

/// The values of all tensors, which must each be the same throughout.
std::vector<float> firsts(const std::vector<Tensor>& model) {
  std::vector<float> out;
  for (const Tensor& tensor : model) {
    EXPECT_EQ(tensor.data, std::vector<float>(tensor.data.size(), tensor.data[0])) << tensor.name;
    out.push_back(tensor.data[0]);
  }
  return out;
}

// Weighed again when the group comes, with the frozen one as 1, tensor 2 would move to rank 0,
// which has no state of it; and what came late would be left out of a freeze.
TEST(Pitfalls, a_group_that_comes_after_a_freeze_moves_no_owner_and_stops_no_training) {
  const Choices choices{.partition = ZERO_PARTITION_GREEDY_IN_ORDER, .lr = 0.25, .momentum = 0.5};
  everywhere(2, choices, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({10, 6, 5, 4}), late = tensors({3});
    late[0].name = "late";
    self.add(model);
    self.reduce(model);
    self.step();
    const auto owners = [&] {
      std::vector<int32_t> out;
      for (int64_t i = 0; i < 4; i++) out.push_back(owner_of(self, i));
      return out;
    };
    EXPECT_EQ(owners(), (std::vector<int32_t>{0, 1, 1, 0}));
    EXPECT_EQ(zero_param_set_trainable(self.optim(), 0, 0), ZERO_OK);
    self.add(late);
    const auto step = [&] {
      std::vector<Tensor> all = model;
      all.push_back(late[0]);
      self.reduce(all);
      self.step();
    };
    step();
    EXPECT_EQ(owners(), (std::vector<int32_t>{0, 1, 1, 0}));
    // 1 - 0.25 - 0.25 * 1.5, but for what is frozen or late.
    EXPECT_EQ(firsts(model), (std::vector<float>{0.75, 0.375, 0.375, 0.375}));
    EXPECT_EQ(firsts(late), std::vector<float>{0.75});
    EXPECT_EQ(zero_param_set_trainable(self.optim(), 4, 0), ZERO_OK);
    step();
    EXPECT_EQ(firsts(late), std::vector<float>{0.75});
    EXPECT_EQ(zero_param_set_trainable(self.optim(), 4, 1), ZERO_OK);
    EXPECT_EQ(zero_param_set_trainable(self.optim(), 0, 1), ZERO_OK);
    step();
    EXPECT_EQ(firsts(late), std::vector<float>{0.375});
    EXPECT_EQ(model[0].data[9], 0.375f);
    for (int64_t param = 0; param < 5; param++) {
      std::vector<float> momentum(param < 4 ? model[static_cast<size_t>(param)].data.size() : 3);
      EXPECT_EQ(zero_state_gather(self.optim(), param, "momentum_buffer", ZERO_ALL_RANKS,
                                  momentum.data(), momentum.size()),
                ZERO_OK)
          << last();
      const float expected = param == 0 || param == 4 ? 1.5f : 1.875f;
      EXPECT_EQ(momentum, std::vector<float>(momentum.size(), expected)) << param;
    }
    std::vector<float> ends = firsts(model);
    ends.push_back(late[0].data[0]);
    return ends;
  });
}

TEST(Pitfalls, a_group_of_another_dtype_leaves_the_digits_of_the_first) {
  everywhere(2, {.partition = ZERO_PARTITION_GREEDY, .lr = 0}, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({5, 7});
    for (Tensor& tensor : model) tensor.data.assign(tensor.data.size(), 1.0001f);
    self.add(model);
    self.seal();
    constexpr int64_t kSize = 4;
    std::vector<uint16_t> half(kSize, 0x3C00);
    auto late = initialized<zero_param>();
    late.name = "half";
    late.data = half.data();
    late.shape = &kSize;
    late.ndim = 1;
    late.dtype = ZERO_FLOAT16;
    EXPECT_EQ(zero_register_params(self.optim(), nullptr, &late, 1, nullptr), ZERO_OK) << last();
    void* const grads[] = {model[0].grad.data(), model[1].grad.data(), nullptr};
    EXPECT_EQ(zero_reduce_grads(self.optim(), grads, 3, 0, nullptr), ZERO_OK) << last();
    self.step();
    EXPECT_EQ(firsts(model), (std::vector<float>{1.0001f, 1.0001f}));
    EXPECT_EQ(half, std::vector<uint16_t>(kSize, 0x3C00));
    return firsts(model);
  });
}

// Ranks of their own move their memory, or all do: the new memory is trained on every rank, the old
// one is left alone.
TEST(Pitfalls, memory_that_moves_is_followed_on_every_rank) {
  for (const int32_t partition : kPartitions) {
    for (const int mover : {-1, 0, 1}) {
      everywhere(2, {.partition = partition, .lr = 0.25}, [&](Rank& self, int rank) {
        std::vector<Tensor> model = tensors({2000, 30, 1500});
        for (size_t i = 0; i < 3; i++) model[i].owner = static_cast<int32_t>(i % 2);
        self.add(model);
        self.reduce(model);
        self.step();
        std::vector<Tensor> moved = model;
        const bool moves = mover < 0 || rank == mover;
        if (moves) {
          std::vector<void*> data;
          for (Tensor& tensor : moved) data.push_back(tensor.data.data());
          EXPECT_EQ(zero_bind_params(self.optim(), data.data(), nullptr, 3), ZERO_OK) << last();
        }
        self.reduce(moved);  // gradients are elsewhere too, on every rank
        self.step();
        EXPECT_EQ(firsts(moves ? moved : model), (std::vector<float>{0.5, 0.5, 0.5}));
        if (moves) {
          EXPECT_EQ(firsts(model), (std::vector<float>{0.75, 0.75, 0.75}));
        }
        return firsts(moves ? moved : model);
      });
    }
  }
}

TEST(Pitfalls, gathered_state_is_of_its_moment_and_is_not_touched_by_later_steps) {
  for (const int32_t partition : kPartitions) {
    everywhere(2, {.partition = partition, .lr = 0.25, .momentum = 0.5}, [](Rank& self, int) {
      std::vector<Tensor> model = tensors({1500, 40});
      self.add(model);
      const auto step = [&] {
        self.reduce(model);
        self.step();
      };
      const auto momentum = [&] {
        std::vector<float> out(1500, -1);
        EXPECT_EQ(zero_state_gather(self.optim(), 0, "momentum_buffer", ZERO_ALL_RANKS, out.data(),
                                    out.size()),
                  ZERO_OK)
            << last();
        return out;
      };
      step();
      const std::vector<float> first = momentum();
      step();
      step();
      EXPECT_EQ(first, std::vector<float>(1500, 1));
      EXPECT_EQ(momentum(), std::vector<float>(1500, 1.75f));
      double steps = 0;
      EXPECT_EQ(zero_state_get(self.optim(), 0, "step", 0, 1, &steps), ZERO_OK);
      EXPECT_EQ(steps, 3);
      return momentum();
    });
  }
}

TEST(Pitfalls, a_group_that_comes_after_a_step_can_be_sealed_and_gathered_before_the_next) {
  everywhere(2, {.momentum = 0.5}, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({1500, 40}), late = tensors({3});
    late[0].name = "late";
    self.add(model);
    self.reduce(model);
    self.step();
    self.add(late);
    std::vector<float> out(1500, -1);
    EXPECT_EQ(zero_state_gather(self.optim(), 0, "momentum_buffer", ZERO_ALL_RANKS, out.data(),
                                out.size()),
              ZERO_OK)
        << last();
    return out;
  });
}

TEST(Pitfalls, a_load_takes_no_memory_that_a_run_without_it_does_not) {
  const Scratch scratch;
  int place = 0;
  everywhere(2, {.momentum = 0.5}, [&](Rank& self, int rank) {
    const std::string directory = scratch / std::to_string(place);
    std::vector<Tensor> model = tensors({3000, 40});
    self.add(model);
    const auto state_bytes = [&] {
      auto statistics = initialized<zero_statistics>();
      zero_stats(self.optim(), &statistics);
      return statistics.state_bytes;
    };
    self.reduce(model);
    self.step();
    const int64_t before = state_bytes();
    EXPECT_GT(before, 0);
    self.save(directory);
    for (int i = 0; i < 3; i++) self.load(directory);
    EXPECT_EQ(state_bytes(), before);
    self.reduce(model);
    self.step();
    EXPECT_EQ(state_bytes(), before);
    if (rank == 0) place++;
    return firsts(model);
  });
}

/// One fp64 and one fp32 tensor, or two of fp32.
void register_two(zero_optim* optim, std::vector<double>& first, std::vector<float>& second,
                  int32_t dtype) {
  static const int64_t size = 8;
  zero_param params[2];
  for (zero_param& param : params) {
    ZERO_INIT(param);
    param.shape = &size;
    param.ndim = 1;
  }
  params[0].name = "a";
  params[0].data = first.data();
  params[0].dtype = dtype;
  params[1].name = "b";
  params[1].data = second.data();
  EXPECT_EQ(zero_register_params(optim, nullptr, params, 2, nullptr), ZERO_OK) << last();
}

TEST(Pitfalls, a_checkpoint_of_another_dtype_is_refused_by_name_and_changes_nothing) {
  const Scratch scratch;
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    for (const int32_t dtype : {ZERO_FLOAT64, ZERO_FLOAT32}) {
      zero_optim* optim = nullptr;
      EXPECT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
      std::vector<double> first(8, 1);
      std::vector<float> second(8, dtype == ZERO_FLOAT64 ? 2.0f : 3.0f);
      register_two(optim, first, second, dtype);
      if (dtype == ZERO_FLOAT64) {
        EXPECT_EQ(zero_state_save(optim, (scratch / "c").c_str(), nullptr), ZERO_OK) << last();
      } else {
        EXPECT_TRUE(ends(zero_state_load(optim, (scratch / "c").c_str(), nullptr),
                         ZERO_ERR_CKPT_MISMATCH, "'a'"));
        EXPECT_EQ(second, std::vector<float>(8, 3));
      }
      zero_free(optim);
    }
  });
}

TEST(Pitfalls, ranks_that_overflow_at_once_back_off_once_and_all_skip) {
  on_ranks(CommKind::user, 3, [](zero_comm* comm, int) {
    auto options = initialized<zero_options>();
    options.loss_scale = 1024;
    zero_optim* optims[2] = {nullptr, nullptr};  // two on one comm, and both overflow
    std::vector<Tensor> models[2] = {tensors({3, 2}), tensors({3, 2})};
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(zero_create(&optims[i], comm, &options), ZERO_OK) << last();
      std::vector<zero_param> params(2);
      for (size_t p = 0; p < 2; p++) {
        models[i][p].size = static_cast<int64_t>(models[i][p].data.size());
        models[i][p].grad.assign(models[i][p].data.size(), INFINITY);
        ZERO_INIT(params[p]);
        params[p].name = models[i][p].name.c_str();
        params[p].data = models[i][p].data.data();
        params[p].grad = models[i][p].grad.data();
        params[p].shape = &models[i][p].size;
        params[p].ndim = 1;
      }
      EXPECT_EQ(zero_register_params(optims[i], nullptr, params.data(), 2, nullptr), ZERO_OK);
    }
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(zero_step(optims[i], nullptr), ZERO_SKIPPED) << last();
      double scale = 0;
      EXPECT_EQ(zero_group_get(optims[i], ZERO_ALL_GROUPS, "loss_scale", &scale), ZERO_OK);
      EXPECT_EQ(scale, 512);
      EXPECT_EQ(firsts(models[i]), (std::vector<float>{1, 1}));
      double steps = -1;
      EXPECT_EQ(zero_state_get(optims[i], 0, "step", 0, 1, &steps), ZERO_OK);
      EXPECT_EQ(steps, 0);
    }
    for (zero_optim* optim : optims) zero_free(optim);
  });
}

TEST(Pitfalls, a_rate_of_zero_stops_every_rule_in_the_middle_of_a_run) {
  for (int32_t optimizer = ZERO_OPTIMIZER_ADAMW; optimizer < ZERO_OPTIMIZER_RPROP; optimizer++) {
    on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
      auto options = initialized<zero_options>();
      options.optimizer = optimizer;
      zero_optim* optim = nullptr;
      EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
      float value = 1, grad = 1;
      auto param = initialized<zero_param>();
      param.name = "w";
      param.data = &value;
      param.grad = &grad;
      EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
      for (const double lr : {0.5, 0.0, 0.5}) {
        const float before = value;
        EXPECT_EQ(zero_group_set(optim, ZERO_ALL_GROUPS, "lr", lr), ZERO_OK);
        EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK) << last();
        EXPECT_EQ(value != before, lr != 0) << "rule " << optimizer;
      }
      zero_free(optim);
    });
  }
}

TEST(Pitfalls, an_owner_that_is_no_rank_is_refused_by_name) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    auto options = initialized<zero_options>();
    options.partition = ZERO_PARTITION_MANUAL;
    zero_optim* optim = nullptr;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
    float value = 1;
    for (const int32_t owner : {-1, 2}) {
      auto param = initialized<zero_param>();
      param.name = "w";
      param.data = &value;
      param.owner = owner;
      EXPECT_TRUE(ends(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_ERR_ARGUMENT,
                       "'w': owner " + std::to_string(owner)));
    }
    zero_free(optim);
  });
}

}  // namespace
}  // namespace zero::test
