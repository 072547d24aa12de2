// SPDX-License-Identifier: Apache-2.0
// zero_grad_ready: gradients that are announced one by one, and sums before the call that needs
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "equivalence.h"
#include "support/expect.h"
#include "two_params.h"

namespace zero::test {
namespace {

TEST(Backward, sums_stand_before_the_call_that_needs_them_from_the_first_step_on) {
  expect_done_early(false);
}

TEST(Backward, gradients_outside_of_arenas_are_staged_meanwhile) {
  on_two(CommKind::local, {.foreign = true}, [](Rank2& self, int) {
    self.train(1);  // creates the staging memory
    for (int step = 1; step <= 2; step++) {
      self.announce_all();
      EXPECT_TRUE(self.sums_all(step));
      self.barrier();  // a step stages the rest, which the other rank may need
      EXPECT_OK(self.step());
    }
    EXPECT_EQ(self.data[0][17], -3.0f);
  });
}

TEST(Backward, a_sub_group_sums_its_own_during_the_backward) { expect_done_early_by_groups(false); }

/// A rank does not use its sums of gradients that another rank has dropped.
TEST(Backward, sums_of_dropped_gradients_are_never_used) {
  on_two(CommKind::local, [](Rank2& self, int rank) {
    self.fill_all(100);
    self.announce_all();
    EXPECT_TRUE(self.sums_all(1));
    self.barrier();
    if (rank == 0) {
      EXPECT_OK(zero_drop_grads(self.optim()));
    }
    self.fill(0, rank == 0 ? 1.0f : 100.0f);
    if (rank == 0) {
      EXPECT_OK(self.ready(0));
    }
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][0], -50.5f);
    EXPECT_EQ(self.data[1][0], -100.0f);
    // The ranks are in step again.
    const int64_t before = self.statistics().early_elements;
    self.fill_all(1);
    self.barrier();
    self.announce_all();
    const int64_t owned = self.statistics().owned_elements;
    while (self.statistics().early_elements < before + owned)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][0], -51.5f);
  });
}

TEST(Backward, several_threads_may_announce_at_once) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
    constexpr size_t kParams = 64;
    std::vector<float> data(kParams, 1), grad(kParams, static_cast<float>(rank));
    std::vector<std::string> names;
    std::vector<zero_param> params;
    for (size_t i = 0; i < kParams; i++) names.push_back("p" + std::to_string(i));
    for (size_t i = 0; i < kParams; i++)
      params.push_back(parameter(names[i].c_str(), kOne, &data[i]));
    Optim optim(comm);
    optim.add(params);
    for (int step = 0; step < 3; step++) {
      std::vector<std::thread> threads;
      for (size_t t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
          for (size_t i = t; i < kParams; i += 4)
            EXPECT_OK(zero_grad_ready(optim.optim(), static_cast<int64_t>(i), &grad[i], nullptr));
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_OK(optim.step());  // nothing is registered
    }
    for (const float value : data) EXPECT_EQ(value, data[0]);
    EXPECT_NE(data[0], 1);
  });
}

TEST(Backward, an_announcement_of_nothing_is_an_absent_gradient) {
  on_each_two([](Rank2& self, int rank) {
    self.fill_all(4);
    EXPECT_OK(zero_grad_ready(self.optim(), 0, nullptr, nullptr));
    EXPECT_OK(zero_grad_ready(self.optim(), 1, rank == 0 ? nullptr : self.grad(1), nullptr));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][1], 0);
    EXPECT_EQ(self.data[1][1], -2);
  });
}

TEST(Backward, an_announcement_counts_for_one_call_only) {
  on_each_two([](Rank2& self, int) {
    self.fill_all(4);
    EXPECT_OK(zero_grad_ready(self.optim(), 0, nullptr, nullptr));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][1], 0);
    self.train(4);
    EXPECT_EQ(self.data[0][1], -4);
    EXPECT_EQ(self.data[1][1], -8);
  });
}

TEST(Backward, what_cannot_be_announced_is_refused_and_changes_nothing) {
  on_each_two([](Rank2& self, int rank) {
    zero_optim* const optim = self.optim();
    self.fill_all(2);
    EXPECT_TRUE(ends(zero_grad_ready(optim, 2, self.grad(0), nullptr), ZERO_ERR_ARGUMENT,
                     "parameter 2 does not exist"));
    EXPECT_EQ(zero_grad_ready(optim, -1, self.grad(0), nullptr), ZERO_ERR_ARGUMENT);
    auto* const crooked = reinterpret_cast<char*>(self.grad(0)) + 1;
    EXPECT_TRUE(
        ends(zero_grad_ready(optim, 0, crooked, nullptr), ZERO_ERR_ARGUMENT, "not aligned"));
    EXPECT_EQ(zero_grad_ready(optim, 0, self.grad(0), &self), ZERO_ERR_ARGUMENT);
    EXPECT_OK(self.ready(0));
    EXPECT_TRUE(ends(self.ready(0), ZERO_ERR_STATE, "'a' is already announced"));
    EXPECT_TRUE(
        ends(zero_param_set_trainable(optim, 1, 0), ZERO_ERR_STATE, "gradients are announced"));
    EXPECT_EQ(zero_broadcast_params(optim, 0, nullptr), ZERO_ERR_STATE);
    EXPECT_EQ(zero_share_params(optim, 0, nullptr), ZERO_ERR_STATE);
    EXPECT_EQ(zero_reduce_grads(optim, nullptr, rank == 0 ? 7 : 0, 0, nullptr),
              rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_OK(zero_reduce_grads(optim, nullptr, 0, 0, nullptr));
    EXPECT_TRUE(ends(self.ready(1), ZERO_ERR_STATE, "gradients are reduced"));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][3], -2);
    EXPECT_EQ(self.data[1][3], -2);
  });
}

TEST(Backward, an_optimizer_can_be_freed_while_its_gradients_are_summed) {
  for (int i = 0; i < 50; i++) {
    on_two(CommKind::local, [&](Rank2& self, int) {
      self.announce_all();
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    });
  }
}

TEST(Backward, an_abort_while_gradients_are_summed_is_an_error_of_the_step) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Rank2 self(comm);
    EXPECT_OK(self.ready(0));
    if (rank == 0) {
      EXPECT_OK(zero_comm_abort(comm, "enough"));
    }
    EXPECT_EQ(self.step(), ZERO_ERR_ABORTED);
  });
}

}  // namespace
}  // namespace zero::test
