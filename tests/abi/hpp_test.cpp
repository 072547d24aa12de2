// SPDX-License-Identifier: Apache-2.0
// zero.hpp with the shared library only: its calls do the same as those of zero.h.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "zero.hpp"

using libzero::Arena;
using libzero::Comm;
using libzero::Optimizer;
using libzero::Options;
using libzero::Param;

namespace {

/// Calls `body` on three ranks, which are threads.
void on_three(const std::function<void(const Comm &)> &body) {
  static int groups = 0;
  const std::string name = "hpp-" + std::to_string(getpid()) + "-" + std::to_string(groups++);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; rank++) {
    ranks.emplace_back([&, rank] {
      try {
        body(Comm::local(name.c_str(), rank, 3));
      } catch (const std::exception &error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread &rank : ranks) rank.join();
}

/// The settings of sgd with which a step subtracts the gradient from the parameter.
const libzero::Settings kPlain = {{"lr", 1}};
Options sgd(int32_t partition = ZERO_PARTITION_EVEN) {
  Options options;
  options.optimizer = ZERO_OPTIMIZER_SGD;
  options.partition = partition;
  return options;
}

TEST(Hpp, a_comm_of_three_counts_splits_and_combines) {
  on_three([](const Comm &comm) {
    EXPECT_EQ(comm.world(), 3);
    std::array<int64_t, 2> values = {comm.rank(), 1};
    comm.all_reduce(values);
    EXPECT_EQ(values, (std::array<int64_t, 2>{3, 3}));
    std::vector<float> most = {static_cast<float>(comm.rank())};
    comm.all_reduce(most, ZERO_MAX);
    EXPECT_EQ(most[0], 2);
    comm.broadcast(values, 1);
    comm.barrier();
    const auto part = comm.split(comm.rank() == 0 ? -1 : 4, comm.rank());
    ASSERT_EQ(part.has_value(), comm.rank() != 0);
    EXPECT_EQ(part ? part->world() : 2, 2);
    EXPECT_EQ(comm.failure().status, ZERO_OK);
  });
}

TEST(Hpp, a_failing_call_throws_what_zero_last_error_says) {
  try {
    Comm::local("", 0, 2);
    FAIL() << "a comm without a name";
  } catch (const libzero::Error &error) {
    EXPECT_EQ(error.status(), ZERO_ERR_ARGUMENT);
    EXPECT_STREQ(error.what(), zero_last_error());
  }
  const Comm comm = Comm::solo();
  comm.abort("enough");
  EXPECT_EQ(comm.failure().status, ZERO_ERR_ABORTED);
  EXPECT_THROW(comm.barrier(), libzero::Error);
}

TEST(Hpp, a_step_takes_the_mean_of_the_gradients_off_on_every_rank) {
  on_three([](const Comm &comm) {
    Arena<float> weights(comm, 3000, ZERO_MEMORY_SHARED), grads(comm, 3000, ZERO_MEMORY_PER_RANK);
    Optimizer optimizer(comm, sgd(), kPlain);
    EXPECT_EQ(optimizer.add({{"a", weights.data(), {30, 50}, grads.data()},
                             {"b", weights.data() + 1500, {1500}, grads.data() + 1500}}),
              0);
    EXPECT_EQ(optimizer.param_index("b"), 1);
    if (comm.rank() == 0) std::fill(weights.begin(), weights.end(), 1.0f);
    optimizer.broadcast_params(0);
    std::fill(grads.begin(), grads.end(), static_cast<float>(comm.rank()));
    EXPECT_TRUE(optimizer.step());
    comm.barrier();
    EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), 0.0f), 0);
    std::fill(grads.begin(), grads.end(), 2.0f);
    comm.barrier();
    optimizer.reduce_grads();
    EXPECT_DOUBLE_EQ(optimizer.clip_grad_norm(1e9, INFINITY), 2);
    optimizer.set("lr", 0.5);
    EXPECT_EQ(optimizer.get("lr"), 0.5);
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(weights[2999], -1);
    EXPECT_EQ(optimizer.result().step, 2);
    EXPECT_EQ(optimizer.stats().parameter_elements, 3000);
    comm.barrier();
  });
}

TEST(Hpp, gradients_of_a_call_are_those_that_are_passed) {
  on_three([](const Comm &comm) {
    std::vector<double> weight(8), grad(8, 3.0);
    Optimizer optimizer(comm, sgd(ZERO_PARTITION_GREEDY));
    libzero::GroupOptions of_group;
    of_group.optimizer = "sgd";
    optimizer.add({{"w", weight.data(), {8}}}, kPlain, of_group);
    optimizer.broadcast_params(ZERO_ROOT_NONE);
    optimizer.step({grad.data()}, ZERO_REDUCE_SUM);
    EXPECT_EQ(weight, std::vector<double>(8, -9.0));
    for (const libzero::OwnedRange &range : optimizer.owned_ranges(comm.rank())) {
      EXPECT_EQ(optimizer.state_get<double>(range.param, nullptr, 0, 8), weight);
      EXPECT_THROW(optimizer.state_get<float>(range.param, nullptr, 0, 8), std::invalid_argument);
    }
    EXPECT_EQ(optimizer.state_gather<double>(0, nullptr, 8, 2).size(), comm.rank() == 2 ? 8u : 0u);
    std::vector<double> elsewhere = weight;
    optimizer.bind({elsewhere.data()}, {});
    optimizer.step({grad.data()});
    EXPECT_EQ(elsewhere[7], -12);
    EXPECT_EQ(weight[7], -9);
  });
}

TEST(Hpp, state_buffers_and_settings_come_back_from_a_checkpoint) {
  const Comm comm = Comm::solo();
  std::vector<float> weight(4, 1), grad(4, 1);
  std::vector<int64_t> seen = {7};
  char folder[] = "/tmp/zero-hpp-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string saved = std::string(folder) + "/checkpoint";
  std::vector<float> moments;
  for (const bool first : {true, false}) {
    Optimizer optimizer(comm);
    libzero::Settings settings;
    settings.set("lr", first ? 0.25 : 0.75);
    optimizer.add({{"w", weight.data(), {2, 2}, grad.data()}}, settings);
    optimizer.add_buffers({{"seen", seen.data(), {}}});
    if (first) {
      optimizer.broadcast_params(0);
      optimizer.step();
      optimizer.state_extra_set("position", std::string("1\0", 2));
      optimizer.state_extra_set("gone", "x");
      optimizer.state_extra_remove("gone");
      optimizer.save(saved);
      EXPECT_EQ(optimizer.state_names(0), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
      moments = optimizer.state_get(0, "exp_avg", 0, 4);
      seen = {0};
    } else {
      optimizer.load(saved);
      EXPECT_EQ(optimizer.state_get(0, "exp_avg", 0, 4), moments);
      EXPECT_EQ(optimizer.state_scalar(0, "step"), 1);
      EXPECT_EQ(optimizer.get("lr", 0), 0.25);
      EXPECT_EQ(seen[0], 7);
      using Place = std::pair<int32_t, std::string>;
      EXPECT_EQ(optimizer.state_extra_list(), (std::vector<Place>{{0, "position"}}));
      EXPECT_EQ(optimizer.state_extra_get(0, "position"), std::string("1\0", 2));
      optimizer.state_set(0, "exp_avg", 0, std::vector<float>(4, 5.0f));
      EXPECT_EQ(optimizer.state_gather(0, "exp_avg", 4), std::vector<float>(4, 5.0f));
    }
  }
  const auto found = libzero::list_checkpoints(folder);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_STREQ(found[0].name, "checkpoint");
  EXPECT_EQ(found[0].step, 1);
  EXPECT_EQ(libzero::prune_checkpoints(folder, 1), 0u);
  EXPECT_EQ(std::system(("rm -r " + std::string(folder)).c_str()), 0);
}

TEST(Hpp, what_would_leave_its_memory_is_refused) {
  const Comm comm = Comm::solo();
  EXPECT_THROW(Arena<double>(comm, (size_t{1} << 61) + 2, ZERO_MEMORY_PER_RANK), std::length_error);
  Arena<float> arena(comm, 3, ZERO_MEMORY_PER_RANK);
  const Arena<float> moved = std::move(arena);
  EXPECT_EQ(moved.size(), 3u);
  EXPECT_EQ(arena.size(), 0u);
  EXPECT_EQ(arena.begin(), arena.end());
  Optimizer optimizer(comm);
  optimizer.add({{"a", moved.data(), {1}}, {"b", moved.data() + 1, {1}}});
  EXPECT_THROW(optimizer.bind({moved.data()}, {moved.data(), moved.data()}), std::invalid_argument);
}

TEST(Hpp, a_plan_lays_parameters_out_without_memory_for_them) {
  const libzero::Plan plan(
      {{"a", ZERO_FLOAT32, nullptr, {5000}}, {"b", ZERO_FLOAT32, nullptr, {7}}}, 2,
      sgd(ZERO_PARTITION_GREEDY));
  EXPECT_EQ(plan.owners, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(plan.elements, (std::vector<int64_t>{5000, 7}));
  EXPECT_GE(plan.arena_bytes, 4 * 5007);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

}  // namespace
