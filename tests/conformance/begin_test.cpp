// SPDX-License-Identifier: Apache-2.0
// zero_step_begin: parameters are updated while gradients arrive, with bitwise identical results.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "equivalence.h"
#include "own_rules.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "two_params.h"

namespace zero::test {
namespace {

TEST(Begin, parameters_are_new_on_every_rank_before_the_call_that_ends_the_first_step) {
  expect_done_early(true);
}

TEST(Begin, a_sub_group_updates_its_own) { expect_done_early_by_groups(true); }

/// The step uses the current rate, even after a load, and the first update is not lost.
TEST(Begin, a_rate_that_is_set_or_loaded_holds_for_the_step_that_begins_next) {
  const Scratch scratch;
  on_two(CommKind::local, [&](Rank2& self, int) {
    float at = 0;
    const auto step = [&](float moves) {
      EXPECT_OK(self.begin());
      self.fill_all(1);
      self.announce_all();
      EXPECT_OK(self.step());
      at -= moves;
      EXPECT_EQ(self.data[0][5], at);
      EXPECT_EQ(self.data[1][5], at);
    };
    step(1);
    self.set("lr", 0);
    step(0);
    self.set("lr", 0.25);
    step(0.25f);
    self.save(scratch / "saved");
    self.set("lr", 4);
    step(4);
    self.load(scratch / "saved");
    at = -1.25f;
    step(0.25f);
  });
}

TEST(Begin, what_is_not_announced_or_absent_is_left_to_the_step) {
  on_each_two([](Rank2& self, int rank) {
    EXPECT_OK(self.begin());
    self.fill_all(4);
    if (rank == 0) {
      EXPECT_OK(self.ready(0));
    }
    EXPECT_OK(zero_grad_ready(self.optim(), 1, nullptr, nullptr));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][1], -4);
    EXPECT_EQ(self.data[1][1], 0);
    EXPECT_EQ(self.scalar(1), 0);
  });
}

/// Infinite gradients are counted, including those that an early update has used.
TEST(Begin, elements_that_are_not_finite_are_counted) {
  on_two(CommKind::local, [](Rank2& self, int) {
    EXPECT_OK(self.begin());
    self.fill_all(1);
    self.grad(0)[3] = self.grad(1)[4998] = INFINITY;
    self.announce_all();
    EXPECT_TRUE(self.updates_all(1));
    EXPECT_OK(self.step());
    const zero_result result = self.result();
    EXPECT_EQ(result.nonfinite, 2);
    EXPECT_EQ(result.step, 1);
  });
}

TEST(Begin, whatever_needs_all_gradients_first_is_refused_with_its_name) {
  struct Case {
    Rank2::Change change;
    const char* says;
  };
  const OwnRule own = own_adamw();
  const Declared declared(own);
  const std::vector<Case> cases = {
      {[](zero_options& o) { o.max_grad_norm = 2; }, "max_grad_norm is 2"},
      {[](zero_options& o) { o.nonfinite = ZERO_NONFINITE_SKIP; }, "nonfinite is 1"},
      {[](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; }, "nonfinite is 2"},
      {[](zero_options& o) { o.loss_scale = 1024; }, "the loss scale is dynamic"},
      {[](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_LARS; }, "norms of whole tensors"},
      {[](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_LAMB; }, "norms of whole tensors"},
      {[&](zero_options& o) { declared.put_into(o); }, "the caller's own function"},
  };
  for (const Case& one : cases) {
    for (const CommKind kind : kCommKinds) {
      on_two(kind, {one.change}, [&](Rank2& self, int) {
        EXPECT_TRUE(ends(self.begin(), ZERO_ERR_STATE, one.says));
        self.train(1);  // nothing has begun
      });
    }
  }
}

/// Checks which calls fail between zero_step_begin and the step, when parts may have been updated.
void expect_calls_refused(Rank2& self, const std::string& directory) {
  zero_optim* const optim = self.optim();
  double lr = 0;
  float value = 0;
  EXPECT_OK(zero_group_get(optim, 0, "lr", &lr));
  EXPECT_TRUE(ends(zero_group_set(optim, 0, "lr", 3), ZERO_ERR_STATE, "a step has begun"));
  EXPECT_EQ(zero_group_set(optim, ZERO_ALL_GROUPS, "loss_scale", 3), ZERO_ERR_STATE);
  EXPECT_EQ(zero_param_set_trainable(optim, 1, 0), ZERO_ERR_STATE);
  EXPECT_EQ(zero_bind_params(optim, nullptr, nullptr, 2), ZERO_ERR_STATE);
  const zero_param param = parameter("c", kOne, &value);
  EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_get(optim, 0, nullptr, 0, 0, &value), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_set(optim, 0, nullptr, 0, 0, &value), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_gather(optim, 0, nullptr, ZERO_ALL_RANKS, self.data[0].data(), kElements),
            ZERO_ERR_STATE);
  EXPECT_EQ(zero_broadcast_params(optim, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_share_params(optim, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_TRUE(
      ends(zero_reduce_grads(optim, nullptr, 0, 0, nullptr), ZERO_ERR_STATE, "a step has begun"));
  EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, 1, 2, nullptr, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_clip_grad_value(optim, 1, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_save(optim, directory.c_str(), nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_load(optim, directory.c_str(), nullptr), ZERO_ERR_STATE);
}

TEST(Begin, calls_at_the_wrong_moment_are_refused_and_change_nothing) {
  const Scratch scratch;
  on_each_two([&](Rank2& self, int rank) {
    zero_optim* const optim = self.optim();
    auto options = initialized<zero_step_options>();
    self.fill_all(2);
    void* const grads[] = {self.grad(0), self.grad(1)};
    options.grads = grads;
    options.grad_count = 2;
    EXPECT_TRUE(ends(zero_step_begin(optim, &options), ZERO_ERR_ARGUMENT, "takes no gradients"));
    ZERO_INIT(options);
    options.reduce_flags = ZERO_REDUCE_ACCUMULATE;
    EXPECT_TRUE(ends(zero_step_begin(optim, &options), ZERO_ERR_ARGUMENT, "adds up micro-batches"));
    options.reduce_flags = rank == 0 ? 77 : 0;
    EXPECT_EQ(zero_step_begin(optim, &options), rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    options.reduce_flags = rank == 0 ? ZERO_REDUCE_SUM : ZERO_REDUCE_MEAN;
    EXPECT_EQ(zero_step_begin(optim, &options), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH);
    if (rank == 0) {
      EXPECT_OK(self.ready(0));
    }
    EXPECT_TRUE(
        ends(self.begin(), rank == 0 ? ZERO_ERR_STATE : ZERO_ERR_PEER, "gradients are announced"));
    EXPECT_OK(zero_drop_grads(optim));
    EXPECT_OK(zero_reduce_grads(optim, nullptr, 0, 0, nullptr));
    EXPECT_TRUE(ends(self.begin(), ZERO_ERR_STATE, "gradients are reduced"));
    EXPECT_OK(zero_drop_grads(optim));

    options.reduce_flags = ZERO_REDUCE_SUM;
    self.fill_all(2);
    EXPECT_OK(zero_step_begin(optim, &options));
    EXPECT_TRUE(ends(zero_step_begin(optim, &options), ZERO_ERR_STATE, "a step has begun"));
    EXPECT_OK(zero_drop_grads(optim));  // nothing is announced yet
    EXPECT_OK(zero_step_begin(optim, &options));
    EXPECT_OK(self.ready(0));
    EXPECT_EQ(self.ready(0), ZERO_ERR_STATE);
    EXPECT_TRUE(ends(zero_drop_grads(optim), ZERO_ERR_STATE, "updates may be made"));
    expect_calls_refused(self, scratch / "none");
    EXPECT_OK(zero_seal(optim));
    self.barrier();

    options.reduce_flags = ZERO_REDUCE_NONE;
    EXPECT_TRUE(ends(zero_step(optim, &options), ZERO_ERR_ARGUMENT, "the step began with 1"));
    EXPECT_EQ(zero_step(optim, rank == 1 ? &options : nullptr),
              rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_OK(self.ready(1));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][3], -4);
    EXPECT_EQ(self.data[1][3], -4);
  });
}

TEST(Begin, a_step_without_any_gradient_is_over_and_changes_nothing) {
  on_each_two([](Rank2& self, int) {
    EXPECT_OK(self.begin());
    EXPECT_OK(zero_grad_ready(self.optim(), 0, nullptr, nullptr));
    EXPECT_OK(zero_grad_ready(self.optim(), 1, nullptr, nullptr));
    EXPECT_TRUE(ends(self.step(), ZERO_ERR_STATE, "no rank has a gradient"));
    self.fill(0, 1);
    self.fill(1, 2);
    EXPECT_OK(self.begin());
    EXPECT_OK(self.ready(0));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0][0], -1);
    EXPECT_EQ(self.data[1][0], -2);
  });
}

zero_failure failure_of(zero_comm* comm) {
  auto failure = initialized<zero_failure>();
  EXPECT_OK(zero_comm_failure(comm, &failure));
  return failure;
}

TEST(Begin, an_abort_says_whether_parameters_may_be_new) {
  for (const bool announces : {false, true}) {
    on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
      Rank2 self(comm);
      EXPECT_OK(self.begin());
      if (announces) {
        EXPECT_OK(self.ready(0));
        self.barrier();
      }
      if (rank == 0) {
        EXPECT_OK(zero_comm_abort(comm, "enough"));
      }
      EXPECT_EQ(self.step(), ZERO_ERR_ABORTED);
      EXPECT_EQ(failure_of(comm).params_consistent, announces ? 0 : 1);
    });
  }
}

TEST(Begin, an_optimizer_can_be_freed_while_it_updates) {
  for (int i = 0; i < 50; i++) {
    on_two(CommKind::local, [&](Rank2& self, int) {
      EXPECT_OK(self.begin());
      self.announce_all();
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
      self.barrier();  // one rank's memory that the other writes
    });
  }
}

}  // namespace
}  // namespace zero::test
