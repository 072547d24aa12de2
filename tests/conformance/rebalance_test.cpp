// SPDX-License-Identifier: Apache-2.0
// zero_rebalance moves state to other owners, and refuses what makes no sense.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

/// A model of bf16 and fp32 on one rank, trained a little.
class Model {
 public:
  Model(zero_comm* comm, int32_t partition, int32_t uneven_inputs = ZERO_UNEVEN_OFF)
      : rank_(zero_comm_rank(comm)), world_(zero_comm_world(comm)) {
    auto options = initialized<zero_options>();
    options.partition = partition;
    options.bucket_bytes = 8192;
    options.master = ZERO_MASTER_REMAINDER;
    options.uneven_inputs = uneven_inputs;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << last();
    add({5000, 3, 2500});
    add({1, 4000, 0, 700});
  }
  ~Model() { zero_free(optim_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// One more group, odd ones of bf16.
  void add(const std::vector<int64_t>& sizes) {
    const int32_t dtype = groups_++ % 2 == 0 ? ZERO_FLOAT32 : ZERO_BFLOAT16;
    std::vector<zero_param> params(sizes.size());
    std::vector<std::string> names;
    for (size_t i = 0; i < sizes.size(); i++) names.push_back("p" + std::to_string(size() + i));
    for (size_t i = 0; i < sizes.size(); i++) {
      const size_t count = static_cast<size_t>(sizes[i]);
      std::vector<float>&data = data_.emplace_back(count + 1),
      &grad = grads_.emplace_back(count + 1);
      for (size_t k = 0; k < count && dtype == ZERO_FLOAT32; k++)
        data[k] = static_cast<float>(k % 17) * 0.25f;
      ZERO_INIT(params[i]);
      params[i].name = names[i].c_str();
      params[i].data = data.data();
      params[i].grad = grad.data();
      params[i].shape = &sizes[i];
      params[i].ndim = 1;
      params[i].dtype = dtype;
      params[i].grad_dtype = ZERO_FLOAT32;
      params[i].owner = static_cast<int32_t>(i) % world_;
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr), ZERO_OK)
        << last();
  }

  void train(int steps) {
    for (int step = 0; step < steps; step++, done_++) {
      for (size_t i = 0; i < grads_.size(); i++) {
        for (size_t k = 0; k < grads_[i].size(); k++)
          grads_[i][k] =
              0.01f * static_cast<float>((k * 7 + i + static_cast<size_t>(rank_ + done_)) % 23) -
              0.1f;
      }
      EXPECT_EQ(zero_step(optim_, nullptr), ZERO_OK) << last();
    }
  }

  void freeze(const std::vector<int64_t>& params, bool frozen = true) {
    for (const int64_t param : params)
      EXPECT_EQ(zero_param_set_trainable(optim_, param, !frozen), ZERO_OK) << last();
  }
  zero_status rebalance() { return zero_rebalance(optim_, nullptr, 0, nullptr); }
  zero_status rebalance(const std::vector<int32_t>& owners) {
    return zero_rebalance(optim_, owners.data(), owners.size(), nullptr);
  }

  size_t size() const { return data_.size(); }
  int rank() const { return rank_; }
  int world() const { return world_; }
  zero_optim* optim() const { return optim_; }

  /// Triples of all ranks, one behind the other.
  std::vector<std::vector<int64_t>> owned() const {
    std::vector<std::vector<int64_t>> all;
    for (int32_t rank = 0; rank < world_; rank++) {
      size_t count = 0;
      EXPECT_EQ(zero_owned_ranges(optim_, rank, nullptr, 0, &count), ZERO_OK) << last();
      std::vector<int64_t>& triples = all.emplace_back(3 * count);
      EXPECT_EQ(zero_owned_ranges(optim_, rank, triples.data(), count, &count), ZERO_OK) << last();
    }
    return all;
  }
  /// Elements that each rank owns of these parameters.
  std::vector<int64_t> elements(const std::vector<int64_t>& params) const {
    std::vector<int64_t> sums;
    for (const std::vector<int64_t>& triples : owned()) {
      int64_t& sum = sums.emplace_back(0);
      for (size_t i = 0; i < triples.size(); i += 3)
        if (std::count(params.begin(), params.end(), triples[i]) > 0) sum += triples[i + 2];
    }
    return sums;
  }

  /// All that the ranks have, bit for bit.
  std::string state() {
    std::string all;
    for (size_t i = 0; i < size(); i++) {
      const auto param = static_cast<int64_t>(i);
      const char* names[8];
      size_t count = 0;
      EXPECT_EQ(zero_state_info(optim_, param, nullptr, names, 8, &count), ZERO_OK) << last();
      names[count++] = nullptr;
      std::vector<float> values(data_[i].size() - 1);
      for (size_t n = 0; n < count; n++) {
        EXPECT_EQ(zero_state_gather(optim_, param, names[n], ZERO_ALL_RANKS, values.data(),
                                    values.size()),
                  ZERO_OK)
            << last();
        all += names[n] == nullptr ? "values" : names[n];
        all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
      double step = 0;
      EXPECT_EQ(zero_state_get(optim_, param, "step", 0, 1, &step), ZERO_OK) << last();
      all += std::to_string(step);
      all.append(reinterpret_cast<const char*>(data_[i].data()), data_[i].size() * sizeof(float));
    }
    return all;
  }

 private:
  const int rank_, world_;
  int groups_ = 0, done_ = 0;
  zero_optim* optim_ = nullptr;
  std::vector<std::vector<float>> data_, grads_;
};

void on_models(int32_t partition, const std::function<void(Model&)>& body) {
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= 4; world++) {
      SCOPED_TRACE(std::string(name_of(kind)) + ", " + std::to_string(partition) + ", " +
                   std::to_string(world) + " ranks");
      on_ranks(kind, world, [&](zero_comm* comm, int) {
        Model model(comm, partition);
        body(model);
      });
    }
  }
}

constexpr int32_t kRules[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                              ZERO_PARTITION_GREEDY_IN_ORDER};

TEST(Rebalance, moves_every_state_bit_for_bit_and_gives_each_rank_as_much_to_train) {
  for (const int32_t partition : kRules) {
    on_models(partition, [&](Model& model) {
      model.train(2);
      model.freeze({0, 1, 3, 6});
      model.train(1);
      const auto before = model.owned();
      const std::string state = model.state();
      EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
      if (model.world() > 1) {
        EXPECT_NE(model.owned(), before);
      }
      EXPECT_TRUE(model.state() == state);
      const std::vector<int64_t> trained = model.elements({2, 4, 5});
      const auto [least, most] = std::minmax_element(trained.begin(), trained.end());
      // 2,500 elements and 4,000: by blocks of two sections, or whole.
      EXPECT_LE(*most - *least, partition == ZERO_PARTITION_EVEN ? 2048 : 4000);
      if (model.world() > 1 && partition == ZERO_PARTITION_EVEN) {
        EXPECT_GT(*least, 0);
      }
      const std::vector<int64_t> all = model.elements({0, 1, 2, 3, 4, 5, 6});
      EXPECT_EQ(std::accumulate(all.begin(), all.end(), int64_t{0}), 12'204);
      auto stats = initialized<zero_statistics>();
      EXPECT_EQ(zero_stats(model.optim(), &stats), ZERO_OK);
      EXPECT_EQ(stats.owned_elements, all[static_cast<size_t>(model.rank())]);
      model.train(1);
    });
  }
}

TEST(Rebalance, again_moves_nothing_and_thawing_moves_nothing_by_itself) {
  for (const int32_t partition : kRules) {
    on_models(partition, [&](Model& model) {
      model.freeze({0, 4});
      EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
      const auto owned = model.owned();
      model.train(1);
      EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
      EXPECT_EQ(model.owned(), owned);
      model.freeze({0, 4}, false);
      model.train(1);
      EXPECT_EQ(model.owned(), owned);
      EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
      model.train(1);
    });
  }
}

TEST(Rebalance, takes_a_group_that_came_late_into_the_deal_and_another_one_after_it) {
  for (const int32_t partition : kRules) {
    on_models(partition, [&](Model& model) {
      model.train(1);
      model.add({3000, 5});
      model.freeze({1, 2});
      EXPECT_EQ(model.rebalance(), ZERO_OK) << last();  // seals first
      model.train(1);
      const auto owned = model.owned();
      const std::string state = model.state();
      model.add({2000});
      EXPECT_EQ(zero_seal(model.optim()), ZERO_OK) << last();
      const std::vector<int64_t> late = model.elements({9});
      EXPECT_EQ(std::accumulate(late.begin(), late.end(), int64_t{0}), 2000);
      for (size_t rank = 0; rank < owned.size(); rank++) {
        const std::vector<int64_t> now = model.owned()[rank];
        EXPECT_TRUE(std::equal(owned[rank].begin(), owned[rank].end(), now.begin())) << rank;
      }
      EXPECT_EQ(model.state().substr(0, state.size()), state);
      model.train(1);
    });
  }
}

TEST(Rebalance, gives_tensors_to_the_owners_that_are_named) {
  on_models(ZERO_PARTITION_MANUAL, [](Model& model) {
    model.train(1);
    const std::string state = model.state();
    std::vector<int32_t> owners;
    for (size_t i = 0; i < model.size(); i++)
      owners.push_back(static_cast<int32_t>((i + 1) % static_cast<size_t>(model.world())));
    EXPECT_EQ(model.rebalance(owners), ZERO_OK) << last();
    EXPECT_TRUE(model.state() == state);
    const auto owned = model.owned();
    for (size_t rank = 0; rank < owned.size(); rank++) {
      for (size_t i = 0; i < owned[rank].size(); i += 3)
        EXPECT_EQ(owners[static_cast<size_t>(owned[rank][i])], static_cast<int32_t>(rank));
    }
    EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
    EXPECT_EQ(model.owned(), owned) << "they stay";
    model.train(1);
  });
}

TEST(Rebalance, parameters_in_arenas_are_broadcast_behind_it_though_gradients_lie_in_none) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      constexpr size_t kEach = 1 << 15;
      void* arena = nullptr;
      ASSERT_EQ(zero_arena_alloc(comm, 7 * kEach, ZERO_MEMORY_PER_RANK, &arena), ZERO_OK) << last();
      {
        Model model(comm, ZERO_PARTITION_EVEN);
        std::vector<void*> data;
        for (size_t i = 0; i < model.size(); i++)
          data.push_back(static_cast<std::byte*>(arena) + i * kEach);
        EXPECT_EQ(zero_bind_params(model.optim(), data.data(), nullptr, data.size()), ZERO_OK);
        model.train(1);
        model.freeze({0, 1});
        EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
        EXPECT_EQ(zero_broadcast_params(model.optim(), 0, nullptr), ZERO_OK) << last();
        model.train(1);
      }
      EXPECT_EQ(zero_arena_free(arena), ZERO_OK) << last();
    });
  }
}

// A checkpoint says nothing of owners that another one would not load.
TEST(Rebalance, a_checkpoint_from_before_and_one_from_after_load_alike) {
  const Scratch scratch;
  int turn = 0;
  for (const int32_t partition : kRules) {
    for (const CommKind kind : kCommKinds) {
      const std::string before = scratch / std::to_string(turn) + "-before";
      const std::string after = scratch / std::to_string(turn++) + "-after";
      on_ranks(kind, 3, [&](zero_comm* comm, int) {
        Model model(comm, partition);
        model.train(2);
        model.freeze({0, 4});
        model.train(1);
        EXPECT_EQ(zero_state_save(model.optim(), before.c_str(), nullptr), ZERO_OK) << last();
        EXPECT_EQ(model.rebalance(), ZERO_OK) << last();
        EXPECT_EQ(zero_state_save(model.optim(), after.c_str(), nullptr), ZERO_OK) << last();
        const std::string state = model.state();
        model.train(1);
        EXPECT_EQ(zero_state_load(model.optim(), before.c_str(), nullptr), ZERO_OK) << last();
        EXPECT_TRUE(model.state() == state);
      });
      std::string states[2];
      for (const int which : {0, 1}) {
        zero_comm* const comm = solo();
        {
          Model model(comm, ZERO_PARTITION_EVEN);
          EXPECT_EQ(zero_state_load(model.optim(), (which == 0 ? before : after).c_str(), nullptr),
                    ZERO_OK)
              << last();
          states[which] = model.state();
        }
        zero_comm_free(comm);
      }
      EXPECT_TRUE(states[0] == states[1]);
    }
  }
}

TEST(Rebalance, what_is_wrong_on_some_rank_is_refused_on_all_without_effect) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 3, [](zero_comm* comm, int rank) {
      Model model(comm, ZERO_PARTITION_MANUAL);
      model.train(1);
      const auto owned = model.owned();
      const std::string state = model.state();
      const auto refused = [&](zero_status status, zero_status own, int culprit, const char* why) {
        EXPECT_TRUE(ends(status, culprit < 0 || culprit == rank ? own : ZERO_ERR_PEER, why));
        EXPECT_EQ(model.owned(), owned);
        EXPECT_TRUE(model.state() == state);
      };
      std::vector<int32_t> owners(model.size(), 0);
      if (rank == 1) owners[4] = 3;
      refused(model.rebalance(owners), ZERO_ERR_ARGUMENT, 1, "parameter 'p4': owner 3 is no rank");
      if (rank == 1) owners[4] = -1;
      refused(model.rebalance(owners), ZERO_ERR_ARGUMENT, 1, "owner -1");
      if (rank == 1) owners[4] = 2;
      refused(model.rebalance(owners), ZERO_ERR_MISMATCH, 1, "owner of parameter 'p4': 2");
      refused(rank == 2 ? model.rebalance() : model.rebalance(std::vector<int32_t>(7, 1)),
              ZERO_ERR_MISMATCH, 2, "owners by the rule");
      owners.pop_back();
      refused(model.rebalance(owners), ZERO_ERR_ARGUMENT, -1, "6 owners given for 7");
      refused(zero_rebalance(model.optim(), nullptr, 7, nullptr), ZERO_ERR_ARGUMENT, -1,
              "owners is NULL");
      refused(zero_rebalance(model.optim(), nullptr, 0, rank == 0 ? &model : nullptr),
              ZERO_ERR_ARGUMENT, 0, "stream must be NULL");
      EXPECT_EQ(zero_reduce_grads(model.optim(), nullptr, 0, 0, nullptr), ZERO_OK) << last();
      refused(model.rebalance(), ZERO_ERR_STATE, -1, "gradients are reduced");
      EXPECT_EQ(zero_drop_grads(model.optim()), ZERO_OK);
      if (rank == 2) model.freeze({1});
      EXPECT_TRUE(ends(model.rebalance(), rank == 2 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                       "parameter 'p1' is frozen"));
      EXPECT_EQ(model.owned(), owned);
      if (rank == 2) model.freeze({1}, false);
      model.train(1);
      Model other(comm, ZERO_PARTITION_EVEN);
      EXPECT_TRUE(ends(other.rebalance(std::vector<int32_t>(7, 0)), ZERO_ERR_ARGUMENT,
                       "ZERO_PARTITION_MANUAL"));
    });
  }
  zero_comm* const comm = solo();
  zero_optim* optim = nullptr;
  EXPECT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
  EXPECT_TRUE(ends(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_ERR_STATE, "no parameters"));
  zero_free(optim);
  EXPECT_EQ(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_ERR_ARGUMENT);
  zero_comm_free(comm);
}

TEST(Rebalance, of_one_optimizer_leaves_others_on_the_comm_alone) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 3, [](zero_comm* comm, int) {
      Model a(comm, ZERO_PARTITION_GREEDY), b(comm, ZERO_PARTITION_GREEDY);
      a.freeze({0});
      b.freeze({0});
      for (int round = 0; round < 2; round++) {
        a.train(1);
        b.train(1);
      }
      const auto owned = b.owned();
      EXPECT_EQ(a.rebalance(), ZERO_OK) << last();
      EXPECT_EQ(b.owned(), owned);
      EXPECT_NE(a.owned(), owned);
      a.train(1);
      b.train(1);
      EXPECT_TRUE(a.state() == b.state());
    });
  }
}

TEST(Rebalance, a_rank_that_has_joined_deals_with_the_others) {
  for (const CommKind kind : kCommKinds) {
    for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_MANUAL}) {
      on_ranks(kind, 3, [&](zero_comm* comm, int rank) {
        Model model(comm, partition, ZERO_UNEVEN_WORLD);
        model.train(1);
        const auto owned = model.owned();
        const std::string state = model.state();
        if (rank != 1) {
          model.freeze({0, 1});
          EXPECT_EQ(partition == ZERO_PARTITION_EVEN ? model.rebalance()
                                                     : model.rebalance({2, 2, 1, 1, 0, 0, 1}),
                    ZERO_OK)
              << last();
          EXPECT_EQ(model.rebalance({0}), ZERO_ERR_ARGUMENT) << last();
        }
        EXPECT_EQ(zero_join(model.optim(), nullptr, nullptr), ZERO_OK) << last();
        EXPECT_NE(model.owned(), owned);
        EXPECT_TRUE(model.state() == state);
        model.train(1);
      });
    }
  }
}

/// A momentum that is switched off keeps its buffer, which moves as well.
TEST(Rebalance, moves_state_that_current_settings_do_not_use) {
  for (const CommKind kind : kCommKinds) {
    std::vector<float> undisturbed;
    for (const bool moves : {false, true}) {
      const Meeting meeting(kind, 2);
      run_sound_ranks(RankKind::threads, 2, [&](int rank) {
        Rank self(meeting.join(rank), {.partition = ZERO_PARTITION_MANUAL, .momentum = 0.9});
        std::vector<Tensor> model;
        for (int i = 0; i < 3; i++)
          model.push_back({.name = std::to_string(i),
                           .data = std::vector<float>(700, 1),
                           .owner = i % 2,
                           .grad = std::vector<float>(700, 0.1f * static_cast<float>(i + 1))});
        self.add(model);
        const auto set = [&](double momentum) {
          EXPECT_EQ(zero_group_set(self.optim(), ZERO_ALL_GROUPS, "momentum", momentum), ZERO_OK);
        };
        const auto step = [&] {
          self.reduce(model);
          self.step();
        };
        step();
        step();
        set(0);
        step();
        const int32_t owners[] = {1, 0, 1};
        if (moves) {
          EXPECT_EQ(zero_rebalance(self.optim(), owners, 3, nullptr), ZERO_OK) << last();
        }
        set(0.9);
        step();
        if (rank == 0) {
          std::vector<float> all;
          for (const Tensor& tensor : model)
            all.insert(all.end(), tensor.data.begin(), tensor.data.end());
          if (!moves) undisturbed = all;
          EXPECT_TRUE(all == undisturbed) << name_of(kind);
        }
        return std::string();
      });
    }
  }
}

}  // namespace
}  // namespace zero::test
