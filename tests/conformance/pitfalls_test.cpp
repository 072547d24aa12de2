// SPDX-License-Identifier: Apache-2.0
// Small runs in which other sharded optimizers silently train wrongly: groups that are added after
// a freeze, memory that moves, snapshots that stay alive, and several ranks that overflow at once.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/heard.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

/// Runs `body` on two ranks of each kind of comm. All must end with the same bits.
void everywhere(const Choices& choices,
                const std::function<std::vector<float>(Rank&, int rank)>& body) {
  for (const CommKind kind : kCommKinds) on_few_alike(kind, 2, choices, body);
}

std::vector<Tensor> tensors(const std::vector<size_t>& sizes) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < sizes.size(); i++) {
    out.push_back({.name = std::to_string(i), .data = std::vector<float>(sizes[i], 1)});
    out.back().grad.assign(sizes[i], 1);
  }
  return out;
}

int32_t owner_of(const Rank& self, int64_t param) {
  for (int32_t rank = 0; rank < 2; rank++) {
    const std::vector<int64_t> triples = self.owned(rank);
    for (size_t i = 0; i < triples.size(); i += 3)
      if (triples[i] == param) return rank;
  }
  return -1;
}

/// Returns the value of each tensor, whose elements must all be equal.
std::vector<float> firsts(const std::vector<Tensor>& model) {
  std::vector<float> out;
  for (const Tensor& tensor : model) {
    EXPECT_EQ(tensor.data, std::vector<float>(tensor.data.size(), tensor.data[0])) << tensor.name;
    out.push_back(tensor.data[0]);
  }
  return out;
}

// If a late group changed the owners, with the frozen tensor counted as 1, tensor 2 would move to
// rank 0, which has no state for it. A freeze would also miss the late group.
TEST(Pitfalls, a_group_that_comes_after_a_freeze_moves_no_owner_and_stops_no_training) {
  const Choices choices{.partition = ZERO_PARTITION_GREEDY_IN_ORDER, .lr = 0.25, .momentum = 0.5};
  everywhere(choices, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({10, 6, 5, 4}), late = tensors({3});
    late[0].name = "late";
    self.add(model);
    self.train(model);
    const auto owners = [&] {
      std::vector<int32_t> out;
      for (int64_t i = 0; i < 4; i++) out.push_back(owner_of(self, i));
      return out;
    };
    EXPECT_EQ(owners(), (std::vector<int32_t>{0, 1, 1, 0}));
    self.freeze(0);
    self.add(late);
    const auto step = [&] {
      std::vector<Tensor> all = model;
      all.push_back(late[0]);
      self.train(all);
    };
    step();
    EXPECT_EQ(owners(), (std::vector<int32_t>{0, 1, 1, 0}));
    // 1 - 0.25 - 0.25 * 1.5, except for frozen and late tensors.
    EXPECT_EQ(firsts(model), (std::vector<float>{0.75, 0.375, 0.375, 0.375}));
    EXPECT_EQ(firsts(late), std::vector<float>{0.75});
    self.freeze(4);
    step();
    EXPECT_EQ(firsts(late), std::vector<float>{0.75});
    self.freeze(4, false);
    self.freeze(0, false);
    step();
    EXPECT_EQ(firsts(late), std::vector<float>{0.375});
    EXPECT_EQ(model[0].data[9], 0.375f);
    for (int64_t param = 0; param < 5; param++) {
      const std::vector<float> momentum = self.gathered(
          param, "momentum_buffer", param < 4 ? model[static_cast<size_t>(param)].data.size() : 3);
      const float expected = param == 0 || param == 4 ? 1.5f : 1.875f;
      EXPECT_EQ(momentum, std::vector<float>(momentum.size(), expected)) << param;
    }
    std::vector<float> ends = firsts(model);
    ends.push_back(late[0].data[0]);
    return ends;
  });
}

TEST(Pitfalls, a_group_of_another_dtype_leaves_the_digits_of_the_first) {
  everywhere({.partition = ZERO_PARTITION_GREEDY, .lr = 0}, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({5, 7});
    for (Tensor& tensor : model) tensor.data.assign(tensor.data.size(), 1.0001f);
    self.add(model);
    self.seal();
    static constexpr int64_t kSize = 4;
    std::vector<uint16_t> half(kSize, 0x3C00);
    self.Optim::add(parameter("half", kSize, half.data(), nullptr, ZERO_FLOAT16));
    EXPECT_OK(self.reduce_with({model[0].grad.data(), model[1].grad.data(), nullptr}));
    self.step();
    EXPECT_EQ(firsts(model), (std::vector<float>{1.0001f, 1.0001f}));
    EXPECT_EQ(half, std::vector<uint16_t>(kSize, 0x3C00));
    return firsts(model);
  });
}

// One rank moves its memory, or all do. The new memory is trained on every rank, and the old memory
// stays unchanged.
TEST(Pitfalls, memory_that_moves_is_followed_on_every_rank) {
  for (const int32_t partition : kPartitions) {
    for (const int mover : {-1, 0, 1}) {
      everywhere({.partition = partition, .lr = 0.25}, [&](Rank& self, int rank) {
        std::vector<Tensor> model = tensors({2000, 30, 1500});
        for (size_t i = 0; i < 3; i++) model[i].owner = static_cast<int32_t>(i % 2);
        self.add(model);
        self.train(model);
        std::vector<Tensor> moved = model;
        const bool moves = mover < 0 || rank == mover;
        if (moves) {
          std::vector<void*> data;
          for (Tensor& tensor : moved) data.push_back(tensor.data.data());
          EXPECT_OK(zero_bind_params(self.optim(), data.data(), nullptr, 3));
        }
        self.reduce(moved);  // gradients also move on every rank
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
    everywhere({.partition = partition, .lr = 0.25, .momentum = 0.5}, [](Rank& self, int) {
      std::vector<Tensor> model = tensors({1500, 40});
      self.add(model);
      const auto step = [&] { self.train(model); };
      const auto momentum = [&] { return self.gathered(0, "momentum_buffer", 1500); };
      step();
      const std::vector<float> first = momentum();
      step();
      step();
      EXPECT_EQ(first, std::vector<float>(1500, 1));
      EXPECT_EQ(momentum(), std::vector<float>(1500, 1.75f));
      EXPECT_EQ(self.scalar(0), 3);
      return momentum();
    });
  }
}

TEST(Pitfalls, a_group_that_comes_after_a_step_can_be_sealed_and_gathered_before_the_next) {
  everywhere({.momentum = 0.5}, [](Rank& self, int) {
    std::vector<Tensor> model = tensors({1500, 40}), late = tensors({3});
    late[0].name = "late";
    self.add(model);
    self.train(model);
    self.add(late);
    return self.gathered(0, "momentum_buffer", 1500);
  });
}

TEST(Pitfalls, a_load_takes_no_memory_that_a_run_without_it_does_not) {
  const Scratch scratch;
  int place = 0;
  everywhere({.momentum = 0.5}, [&](Rank& self, int rank) {
    const std::string directory = scratch / std::to_string(place);
    std::vector<Tensor> model = tensors({3000, 40});
    self.add(model);
    const auto state_bytes = [&] { return self.statistics().state_bytes; };
    self.train(model);
    const int64_t before = state_bytes();
    EXPECT_GT(before, 0);
    self.save(directory);
    for (int i = 0; i < 3; i++) self.load(directory);
    EXPECT_EQ(state_bytes(), before);
    self.train(model);
    EXPECT_EQ(state_bytes(), before);
    if (rank == 0) place++;
    return firsts(model);
  });
}

TEST(Pitfalls, a_checkpoint_of_another_dtype_is_refused_by_name_and_changes_nothing) {
  const Scratch scratch;
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    static constexpr int64_t kSize = 8;
    for (const int32_t dtype : {ZERO_FLOAT64, ZERO_FLOAT32}) {
      std::vector<double> first(8, 1);
      std::vector<float> second(8, dtype == ZERO_FLOAT64 ? 2.0f : 3.0f);
      Optim optim(comm);
      optim.add(std::array{parameter("a", kSize, first.data(), nullptr, dtype),
                           parameter("b", kSize, second.data())});
      if (dtype == ZERO_FLOAT64) {
        optim.save(scratch / "c");
      } else {
        EXPECT_TRUE(ends(zero_state_load(optim.optim(), (scratch / "c").c_str(), nullptr),
                         ZERO_ERR_CKPT_MISMATCH, "'a'"));
        EXPECT_EQ(second, std::vector<float>(8, 3));
      }
    }
  });
}

TEST(Pitfalls, ranks_that_overflow_at_once_back_off_once_and_all_skip) {
  on_ranks(CommKind::user, 3, [](zero_comm* comm, int) {
    auto options = initialized<zero_options>();
    options.loss_scale = 1024;
    static constexpr int64_t kSizes[] = {3, 2};
    std::array<std::vector<float>, 4> data, grads;
    Optim one(comm, options), other(comm, options);  // two on one comm, which both overflow
    for (size_t i = 0; i < 4; i++) {
      data[i].assign(static_cast<size_t>(kSizes[i % 2]), 1);
      grads[i].assign(data[i].size(), INFINITY);
    }
    for (const size_t i : {0, 2}) {
      (i == 0 ? one : other)
          .add(std::array{parameter("0", kSizes[0], data[i].data(), grads[i].data()),
                          parameter("1", kSizes[1], data[i + 1].data(), grads[i + 1].data())});
    }
    for (Optim* const optim : {&one, &other}) {
      EXPECT_EQ(optim->step(), ZERO_SKIPPED) << last();
      EXPECT_EQ(optim->setting("loss_scale"), 512);
      EXPECT_EQ(optim->scalar(0), 0);
    }
    for (const std::vector<float>& tensor : data)
      EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 1));
  });
}

TEST(Pitfalls, a_rate_of_zero_stops_every_rule_in_the_middle_of_a_run) {
  for (int32_t optimizer = ZERO_OPTIMIZER_ADAMW; optimizer < ZERO_OPTIMIZER_RPROP; optimizer++) {
    on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
      auto options = initialized<zero_options>();
      options.optimizer = optimizer;
      float value = 1, grad = 1;
      Optim optim(comm, options);
      optim.add(parameter("w", kOne, &value, &grad));
      for (const double lr : {0.5, 0.0, 0.5}) {
        const float before = value;
        optim.set("lr", lr);
        EXPECT_OK(optim.step());
        EXPECT_EQ(value != before, lr != 0) << "rule " << optimizer;
      }
    });
  }
}

TEST(Pitfalls, an_owner_that_is_no_rank_is_refused_by_name) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    const Optim optim(comm,
                      options_with([](zero_options& o) { o.partition = ZERO_PARTITION_MANUAL; }));
    float value = 1;
    zero_param param = parameter("w", kOne, &value);
    for (const int32_t owner : {-1, 2}) {
      param.owner = owner;
      EXPECT_TRUE(ends(zero_register_params(optim.optim(), nullptr, &param, 1, nullptr),
                       ZERO_ERR_ARGUMENT, "'w': owner " + std::to_string(owner)));
    }
  });
}

// A first small example has some hundred parameters, and looks as if nothing were sharded.
TEST(Pitfalls, a_model_that_is_too_small_for_all_ranks_says_so_once) {
  for (const auto& [elements, idle] : {std::pair<size_t, int64_t>{641, 1}, {2048, 0}}) {
    const Heard heard;
    on_few_alike(CommKind::local, 2, Choices{},
                 [elements = elements, idle = idle](Rank& self, int) {
                   std::vector<Tensor> model = tensors({elements});
                   self.add(model);
                   self.train(model);
                   EXPECT_EQ(self.statistics().idle_ranks, idle);
                   return firsts(model);
                 });
    const size_t said = heard.text.find("1 of 2 ranks will own nothing");
    EXPECT_EQ(said != std::string::npos, idle == 1) << heard.text;
    EXPECT_EQ(heard.text.find("1 of 2 ranks will", idle == 1 ? said + 1 : 0), std::string::npos)
        << heard.text;
  }
}

}  // namespace
}  // namespace zero::test
