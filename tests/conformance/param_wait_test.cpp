// SPDX-License-Identifier: Apache-2.0
// zero_options.overlap_gather: steps end in the background, and a parameter is new after a wait for
// it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "support/watched.h"
#include "two_params.h"

namespace zero::test {
namespace {

const Two kOverlaps = {[](zero_options& options) { options.overlap_gather = 1; }};

/// From the n-th pass of a point on, holds every thread there until it is released.
std::atomic<int> held_from{0}, holding{0};
std::atomic<bool> let_go{true};
template <const char* point>
void hold(const char* passed) {
  if (std::string(passed) != point || --held_from > 0) return;
  holding++;
  while (!let_go) std::this_thread::sleep_for(std::chrono::microseconds(100));
}
void hold_from(int occurrence) {
  held_from = occurrence;
  holding = 0;
  let_go = false;
}
void wait_for_held(int threads) {
  while (holding < threads) std::this_thread::sleep_for(std::chrono::microseconds(100));
}
constexpr char kBegin[] = "apply.begin";
constexpr char kTold[] = "apply.told";

TEST(ParamWait, a_step_returns_before_its_parameters_are_new) {
  const Watched watched(hold<kBegin>);
  hold_from(1);
  std::atomic<int> looked{0};
  on_two(CommKind::local, kOverlaps, [&looked](Rank2& self, int) {
    self.train(1);
    EXPECT_EQ(self.data[0][0], 0);
    EXPECT_EQ(self.data[1][4999], 0);
    wait_for_held(2);
    if (++looked == 2) let_go = true;
    self.wait(0);
    EXPECT_EQ(self.data[0][0], -1);
    self.wait();
    EXPECT_EQ(self.data[1][4999], -1);
  });
}

/// The parameter that the forward pass uses first is new while the rest is pending.
TEST(ParamWait, is_for_one_parameter) {
  const Watched watched(hold<kTold>);
  constexpr size_t kMany = 3'000'000;  // several times the amount that is published at once
  static constexpr int64_t kShape = kMany;
  std::vector<float> data(2 * kMany, 1), grads(2 * kMany, 1);
  zero_options options = plain_sgd(kLr1);
  options.overlap_gather = 1;
  Optim optim(alone(), options);
  optim.add(std::array{parameter("first", kShape, &data[0], &grads[0]),
                       parameter("second", kShape, &data[kMany], &grads[kMany])});
  hold_from(14);
  EXPECT_OK(optim.step());
  optim.wait(0);
  EXPECT_NE(data[0], 1);
  EXPECT_NE(data[kMany - 1], 1);
  wait_for_held(1);
  EXPECT_EQ(data[kMany], 1);
  let_go = true;
  optim.wait(1);
  EXPECT_NE(data[kMany], 1);
}

/// Every later call finds the step complete.
TEST(ParamWait, every_other_call_waits_for_the_step) {
  const Scratch scratch;
  const Watched dawdling(dawdle);
  for (const CommKind kind : kCommKinds) {
    on_two(kind, kOverlaps, [&](Rank2& self, int rank) {
      zero_optim* const optim = self.optim();
      float at = 0;
      std::array<std::vector<float>, 2> other_grads;  // the last step's gradients are in use
      for (std::vector<float>& grad : other_grads) grad.assign(kElements, 1);
      const auto expect_new_after = [&](const char* what, const auto& call) {
        self.train(1);
        at -= 1;
        call();
        EXPECT_EQ(self.data[0][4999], at) << what;
        EXPECT_EQ(self.data[1][0], at) << what;
      };
      expect_new_after("result", [&] { EXPECT_EQ(self.result().step, 1); });
      expect_new_after("statistics", [&] {
        EXPECT_OK(self.step_with({other_grads[0].data(), other_grads[1].data()}));
        at -= 1;
        EXPECT_EQ(self.statistics().steps, 3);
      });
      expect_new_after("settings", [&] { (void)self.setting("lr", 0); });
      expect_new_after("a call on the comm", [&] { self.barrier(); });
      expect_new_after("broadcast", [&] { self.broadcast(0); });
      const std::string directory = scratch / (std::string(name_of(kind)) + "-saved");
      expect_new_after("save", [&] { self.save(directory); });
      expect_new_after("load", [&] {
        self.load(directory);
        at += 1;
      });
      expect_new_after("rebalance", [&] { EXPECT_OK(zero_rebalance(optim, nullptr, 0, nullptr)); });
      expect_new_after("gather",
                       [&] { EXPECT_EQ(self.gathered(0, nullptr, kElements)[4999], at); });
      expect_new_after("freezing", [&] { self.freeze(1); });
      self.freeze(1, false);
      expect_new_after("a reduction", [&] { EXPECT_OK(self.reduce()); });
      EXPECT_OK(zero_drop_grads(optim));
      expect_new_after("an announcement", [&] { EXPECT_OK(self.ready(0)); });
      EXPECT_OK(zero_drop_grads(optim));
      self.barrier();  // the other rank may still read gradients for a sum that is not used
      expect_new_after("a step that begins", [&] { EXPECT_OK(self.begin()); });
      self.fill_all(1);
      self.barrier();
      EXPECT_OK(self.ready(rank));
      EXPECT_OK(self.step());
      EXPECT_TRUE(ends(zero_param_wait(optim, 7, nullptr), ZERO_ERR_ARGUMENT,
                       "parameter 7 does not exist"));
      EXPECT_EQ(zero_param_wait(optim, -2, nullptr), ZERO_ERR_ARGUMENT);
      EXPECT_EQ(zero_param_wait(optim, 0, &self), ZERO_ERR_ARGUMENT);
      self.wait(0);
      self.wait(0);
    });
  }
}

/// A step that is skipped or refused leaves no work for later.
TEST(ParamWait, a_step_that_is_not_made_is_over_on_return) {
  const Rank2::Change changes[] = {
      [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_SKIP; },
      [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; },
      [](zero_options& o) { o.loss_scale = 1; },
  };
  for (const Rank2::Change& change : changes) {
    const Two how{[&change](zero_options& o) {
      kOverlaps.change(o);
      change(o);
    }};
    for (const CommKind kind : kCommKinds) {
      on_two(kind, how, [](Rank2& self, int) {
        self.train(1);
        self.wait();
        self.grad(1)[7] = INFINITY;
        const zero_status made = self.step();
        EXPECT_TRUE(made == ZERO_SKIPPED || made == ZERO_ERR_NONFINITE) << made;
        self.wait(1);
        EXPECT_EQ(self.data[0][0], -1);
        EXPECT_EQ(self.data[1][7], -1);
        EXPECT_EQ(self.result(made).step, 1);
        zero_group_set(self.optim(), 0, "lr", 0);  // makes the scale irrelevant
        self.fill(1, 1);
        EXPECT_OK(self.step());
        self.wait(1);
        EXPECT_EQ(self.result().step, 2);
      });
    }
  }
}

TEST(ParamWait, two_optimizers_of_a_comm_take_turns) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    Rank2 one(comm, true, kOverlaps.change), two(comm, true, kOverlaps.change);
    for (int step = 1; step <= 50; step++) {
      for (Rank2* const self : {&one, &two}) {
        self->fill(0, 1);
        self->fill(1, 2);
        EXPECT_OK(self->step());
      }
      for (Rank2* const self : {&one, &two}) {
        self->wait();
        EXPECT_EQ(self->data[0][1], -static_cast<float>(step));
        EXPECT_EQ(self->data[1][4000], -2 * static_cast<float>(step));
      }
    }
  });
}

TEST(ParamWait, ranks_that_differ_in_the_option_are_told) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    auto options = initialized<zero_options>();
    options.overlap_gather = 2;
    zero_optim* none = nullptr;
    EXPECT_TRUE(ends(zero_create(&none, comm, &options), ZERO_ERR_ARGUMENT, "overlap_gather is 2"));
    options.overlap_gather = rank;
    float value = 0;
    Optim optim(comm, options);
    optim.add(parameter("a", kOne, &value));
    EXPECT_TRUE(ends(zero_seal(optim.optim()), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                     "overlap_gather"));
  });
}

TEST(ParamWait, an_abort_meanwhile_is_told_by_the_wait_the_result_and_the_next_call) {
  const Watched watched(hold<kBegin>);
  hold_from(1);
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Rank2 self(comm, true, kOverlaps.change);
    self.train(1);
    wait_for_held(2);
    if (rank == 0) {
      EXPECT_OK(zero_comm_abort(comm, "enough"));
      let_go = true;
    }
    EXPECT_TRUE(ends(zero_param_wait(self.optim(), 1, nullptr), ZERO_ERR_ABORTED, "enough"));
    EXPECT_EQ(zero_param_wait(self.optim(), ZERO_ALL_PARAMS, nullptr), ZERO_ERR_ABORTED);
    EXPECT_EQ(self.result(ZERO_ERR_ABORTED).step, 0);
    EXPECT_EQ(self.step(), ZERO_ERR_ABORTED);
    auto failure = initialized<zero_failure>();
    EXPECT_OK(zero_comm_failure(comm, &failure));
    EXPECT_EQ(failure.params_consistent, 0);
  });
}

int64_t threads_of_this_process() { return entries_of("/proc/self/task"); }

TEST(ParamWait, an_optimizer_can_be_freed_while_its_step_ends_and_takes_its_threads_along) {
  const Watched dawdling(dawdle);
  const int64_t before = threads_of_this_process();
  for (int i = 0; i < 50; i++) {
    on_two(CommKind::local, kOverlaps, [&](Rank2& self, int rank) {
      if (i % 2 == 0) {
        EXPECT_OK(self.begin());
        EXPECT_OK(self.ready(rank));
      }
      EXPECT_OK(self.step());
    });
    // A joined thread leaves the list a moment later.
    for (int k = 0; k < 5000 && threads_of_this_process() > before; k++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(threads_of_this_process(), before);
  }
}

}  // namespace
}  // namespace zero::test
