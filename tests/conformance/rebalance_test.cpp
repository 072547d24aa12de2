// SPDX-License-Identifier: Apache-2.0
// zero_rebalance moves state to other owners, and refuses invalid requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

/// A model in bf16 and fp32 on one rank, after a few steps.
class Model : public Optim {
 public:
  Model(zero_comm* comm, int32_t partition, int32_t uneven_inputs = ZERO_UNEVEN_OFF)
      : Optim(comm, options_with([&](zero_options& o) {
                o.partition = partition;
                o.bucket_bytes = 8192;
                o.master = ZERO_MASTER_REMAINDER;
                o.uneven_inputs = uneven_inputs;
              })) {
    add_group({5000, 3, 2500});
    add_group({1, 4000, 0, 700});
  }
  ~Model() { free(); }

  /// Adds a group. Every second one is in bf16.
  void add_group(const std::vector<int64_t>& sizes) {
    const int32_t dtype = groups_++ % 2 == 0 ? ZERO_FLOAT32 : ZERO_BFLOAT16;
    std::vector<zero_param> params;
    std::vector<std::string> names;
    for (size_t i = 0; i < sizes.size(); i++) names.push_back("p" + std::to_string(size() + i));
    for (size_t i = 0; i < sizes.size(); i++) {
      const size_t count = static_cast<size_t>(sizes[i]);
      std::vector<float>& data = data_.emplace_back(count + 1);
      std::vector<float>& grad = grads_.emplace_back(count + 1);
      for (size_t k = 0; k < count && dtype == ZERO_FLOAT32; k++)
        data[k] = static_cast<float>(k % 17) * 0.25f;
      params.push_back(parameter(names[i].c_str(), sizes[i], data.data(), grad.data(), dtype));
      params[i].grad_dtype = ZERO_FLOAT32;
      params[i].owner = static_cast<int32_t>(i) % world();
    }
    add(params);
  }
  void train(int steps) {
    for (int step = 0; step < steps; step++, done_++) {
      for (size_t i = 0; i < grads_.size(); i++) {
        for (size_t k = 0; k < grads_[i].size(); k++)
          grads_[i][k] =
              0.01f * static_cast<float>((k * 7 + i + static_cast<size_t>(rank() + done_)) % 23) -
              0.1f;
      }
      EXPECT_OK(this->step());
    }
  }
  void freeze_all(const std::vector<int64_t>& params, bool frozen = true) {
    for (const int64_t param : params) freeze(param, frozen);
  }
  zero_status rebalance(const std::vector<int32_t>& owners = {}) {
    return zero_rebalance(optim(), owners.empty() ? nullptr : owners.data(), owners.size(),
                          nullptr);
  }

  size_t size() const { return data_.size(); }
  using Optim::owned;
  /// Returns the triples of each rank.
  std::vector<std::vector<int64_t>> owned() const {
    std::vector<std::vector<int64_t>> all;
    for (int32_t rank = 0; rank < world(); rank++) all.push_back(owned(rank));
    return all;
  }
  /// Returns the number of elements of these parameters that each rank owns.
  std::vector<int64_t> elements(const std::vector<int64_t>& params) const {
    std::vector<int64_t> sums;
    for (const std::vector<int64_t>& triples : owned()) {
      int64_t& sum = sums.emplace_back(0);
      for (size_t i = 0; i < triples.size(); i += 3)
        if (std::count(params.begin(), params.end(), triples[i]) > 0) sum += triples[i + 2];
    }
    return sums;
  }
  /// Returns the whole state of all ranks, bitwise exact.
  std::string state() const {
    std::string all;
    const auto append = [&](const std::vector<float>& values) {
      all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    };
    for (size_t i = 0; i < size(); i++) {
      const auto param = static_cast<int64_t>(i);
      std::vector<const char*> names = state_names(param);
      names.push_back(nullptr);
      for (const char* const name : names) {
        all += name == nullptr ? "values" : name;
        append(gathered(param, name, data_[i].size() - 1));
      }
      all += std::to_string(scalar(param));
      append(data_[i]);
    }
    return all;
  }

 private:
  int groups_ = 0, done_ = 0;
  std::deque<std::vector<float>> data_, grads_;
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
      model.freeze_all({0, 1, 3, 6});
      model.train(1);
      const auto before = model.owned();
      const std::string state = model.state();
      EXPECT_OK(model.rebalance());
      if (model.world() > 1) {
        EXPECT_NE(model.owned(), before);
      }
      EXPECT_TRUE(model.state() == state);
      const std::vector<int64_t> trained = model.elements({2, 4, 5});
      const auto [least, most] = std::minmax_element(trained.begin(), trained.end());
      // Of 2,500 and 4,000 elements, EVEN splits blocks of two sections. The others keep tensors
      // whole.
      EXPECT_LE(*most - *least, partition == ZERO_PARTITION_EVEN ? 2048 : 4000);
      if (model.world() > 1 && partition == ZERO_PARTITION_EVEN) {
        EXPECT_GT(*least, 0);
      }
      const std::vector<int64_t> all = model.elements({0, 1, 2, 3, 4, 5, 6});
      EXPECT_EQ(std::accumulate(all.begin(), all.end(), int64_t{0}), 12'204);
      EXPECT_EQ(model.statistics().owned_elements, all[static_cast<size_t>(model.rank())]);
      model.train(1);
    });
  }
}

TEST(Rebalance, again_moves_nothing_and_thawing_moves_nothing_by_itself) {
  for (const int32_t partition : kRules) {
    on_models(partition, [&](Model& model) {
      model.freeze_all({0, 4});
      EXPECT_OK(model.rebalance());
      const auto owned = model.owned();
      model.train(1);
      EXPECT_OK(model.rebalance());
      EXPECT_EQ(model.owned(), owned);
      model.freeze_all({0, 4}, false);
      model.train(1);
      EXPECT_EQ(model.owned(), owned);
      EXPECT_OK(model.rebalance());
      model.train(1);
    });
  }
}

TEST(Rebalance, takes_a_group_that_came_late_into_the_deal_and_another_one_after_it) {
  for (const int32_t partition : kRules) {
    on_models(partition, [&](Model& model) {
      model.train(1);
      model.add_group({3000, 5});
      model.freeze_all({1, 2});
      EXPECT_OK(model.rebalance());  // seals first
      model.train(1);
      const auto owned = model.owned();
      const std::string state = model.state();
      model.add_group({2000});
      model.seal();
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
    EXPECT_OK(model.rebalance(owners));
    EXPECT_TRUE(model.state() == state);
    const auto owned = model.owned();
    for (size_t rank = 0; rank < owned.size(); rank++) {
      for (size_t i = 0; i < owned[rank].size(); i += 3)
        EXPECT_EQ(owners[static_cast<size_t>(owned[rank][i])], static_cast<int32_t>(rank));
    }
    EXPECT_OK(model.rebalance());
    EXPECT_EQ(model.owned(), owned) << "they stay";
    model.train(1);
  });
}

TEST(Rebalance, parameters_in_arenas_are_broadcast_behind_it_though_gradients_lie_in_none) {
  on_each_comm(2, [](zero_comm* comm, int) {
    constexpr size_t kEach = 1 << 13;
    const Arena arena(comm, 7 * kEach * sizeof(float));
    Model model(comm, ZERO_PARTITION_EVEN);
    std::vector<void*> data;
    for (size_t i = 0; i < model.size(); i++) data.push_back(arena.floats() + i * kEach);
    EXPECT_OK(zero_bind_params(model.optim(), data.data(), nullptr, data.size()));
    model.train(1);
    model.freeze_all({0, 1});
    EXPECT_OK(model.rebalance());
    model.broadcast(0);
    model.train(1);
  });
}

// A checkpoint does not depend on owners, so both load the same.
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
        model.freeze_all({0, 4});
        model.train(1);
        model.save(before);
        EXPECT_OK(model.rebalance());
        model.save(after);
        const std::string state = model.state();
        model.train(1);
        model.load(before);
        EXPECT_TRUE(model.state() == state);
      });
      std::string states[2];
      for (const int which : {0, 1}) {
        on_ranks(CommKind::solo, 1, [&](zero_comm* comm, int) {
          Model model(comm, ZERO_PARTITION_EVEN);
          model.load(which == 0 ? before : after);
          states[which] = model.state();
        });
      }
      EXPECT_TRUE(states[0] == states[1]);
    }
  }
}

TEST(Rebalance, what_is_wrong_on_some_rank_is_refused_on_all_without_effect) {
  on_each_comm(3, [](zero_comm* comm, int rank) {
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
    refused(model.rebalance(owners), ZERO_ERR_ARGUMENT, 1, "parameter 'p4': owner 3 is not a rank");
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
    EXPECT_OK(zero_reduce_grads(model.optim(), nullptr, 0, 0, nullptr));
    refused(model.rebalance(), ZERO_ERR_STATE, -1, "gradients are reduced");
    EXPECT_OK(zero_drop_grads(model.optim()));
    if (rank == 2) model.freeze_all({1});
    EXPECT_TRUE(ends(model.rebalance(), rank == 2 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                     "parameter 'p1' is frozen"));
    EXPECT_EQ(model.owned(), owned);
    if (rank == 2) model.freeze_all({1}, false);
    model.train(1);
    Model other(comm, ZERO_PARTITION_EVEN);
    EXPECT_TRUE(ends(other.rebalance(std::vector<int32_t>(7, 0)), ZERO_ERR_ARGUMENT,
                     "ZERO_PARTITION_MANUAL"));
  });
  Optim none(alone());
  zero_optim* const optim = none.optim();
  EXPECT_TRUE(ends(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_ERR_STATE, "no parameters"));
  none.free();
  EXPECT_EQ(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_ERR_ARGUMENT);
}

TEST(Rebalance, of_one_optimizer_leaves_others_on_the_comm_alone) {
  on_each_comm(3, [](zero_comm* comm, int) {
    Model a(comm, ZERO_PARTITION_GREEDY), b(comm, ZERO_PARTITION_GREEDY);
    a.freeze(0);
    b.freeze(0);
    for (int round = 0; round < 2; round++) {
      a.train(1);
      b.train(1);
    }
    const auto owned = b.owned();
    EXPECT_OK(a.rebalance());
    EXPECT_EQ(b.owned(), owned);
    EXPECT_NE(a.owned(), owned);
    a.train(1);
    b.train(1);
    EXPECT_TRUE(a.state() == b.state());
  });
}

TEST(Rebalance, a_rank_that_has_joined_deals_with_the_others) {
  for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_MANUAL}) {
    on_each_comm(3, [&](zero_comm* comm, int rank) {
      Model model(comm, partition, ZERO_UNEVEN_WORLD);
      model.train(1);
      const auto owned = model.owned();
      const std::string state = model.state();
      if (rank != 1) {
        model.freeze_all({0, 1});
        EXPECT_OK(partition == ZERO_PARTITION_EVEN ? model.rebalance()
                                                   : model.rebalance({2, 2, 1, 1, 0, 0, 1}));
        EXPECT_EQ(model.rebalance({0}), ZERO_ERR_ARGUMENT) << last();
      }
      EXPECT_OK(zero_join(model.optim(), nullptr, nullptr));
      EXPECT_NE(model.owned(), owned);
      EXPECT_TRUE(model.state() == state);
      model.train(1);
    });
  }
}

/// Momentum that is switched off keeps its buffer, which moves too.
TEST(Rebalance, moves_state_that_current_settings_do_not_use) {
  for (const CommKind kind : kCommKinds) {
    std::vector<float> undisturbed;
    for (const bool moves : {false, true}) {
      on_few(
          kind, 2, {.partition = ZERO_PARTITION_MANUAL, .momentum = 0.9},
          [&](Rank& self, int rank) {
            std::vector<Tensor> model;
            for (int i = 0; i < 3; i++)
              model.push_back({.name = std::to_string(i),
                               .data = std::vector<float>(700, 1),
                               .owner = i % 2,
                               .grad = std::vector<float>(700, 0.1f * static_cast<float>(i + 1))});
            self.add(model);
            const auto set = [&](double momentum) {
              EXPECT_OK(zero_group_set(self.optim(), ZERO_ALL_GROUPS, "momentum", momentum));
            };
            const auto step = [&] { self.train(model); };
            step();
            step();
            set(0);
            step();
            const int32_t owners[] = {1, 0, 1};
            if (moves) {
              EXPECT_OK(zero_rebalance(self.optim(), owners, 3, nullptr));
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
          });
    }
  }
}

}  // namespace
}  // namespace zero::test
