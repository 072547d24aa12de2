// SPDX-License-Identifier: Apache-2.0
// zero_options.overlap_gather: steps end in the background, and a parameter that was waited for is
// new.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
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

const Rank2::Change kOverlaps = [](zero_options& options) { options.overlap_gather = 1; };

zero_result result_of(zero_optim* optim, zero_status expected = ZERO_OK) {
  auto result = initialized<zero_result>();
  EXPECT_EQ(zero_step_result(optim, &result), expected);
  return result;
}

/// Holds every thread that passes the n-th such point until it is let go.
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
  on_two(
      CommKind::local,
      [&looked](Rank2& self, int) {
        self.fill(0, 1);
        self.fill(1, 1);
        EXPECT_EQ(self.step(), ZERO_OK) << last();
        EXPECT_EQ(self.data[0][0], 0);
        EXPECT_EQ(self.data[1][4999], 0);
        wait_for_held(2);
        if (++looked == 2) let_go = true;
        EXPECT_EQ(zero_param_wait(self.optim(), 0, nullptr), ZERO_OK) << last();
        EXPECT_EQ(self.data[0][0], -1);
        EXPECT_EQ(zero_param_wait(self.optim(), ZERO_ALL_PARAMS, nullptr), ZERO_OK) << last();
        EXPECT_EQ(self.data[1][4999], -1);
      },
      true, kOverlaps);
}

/// What is first in the forward pass is new while the rest is still to come.
TEST(ParamWait, is_for_one_parameter) {
  const Watched watched(hold<kTold>);
  constexpr size_t kMany = 3'000'000;  // some times what is told at once
  zero_comm* const comm = solo();
  auto options = initialized<zero_options>();
  options.optimizer = ZERO_OPTIMIZER_SGD;
  options.overlap_gather = 1;
  zero_optim* optim = nullptr;
  ASSERT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
  std::vector<float> data(2 * kMany, 1), grads(2 * kMany, 1);
  std::array<zero_param, 2> params;
  const int64_t shape = kMany;
  for (size_t i = 0; i < 2; i++) {
    ZERO_INIT(params[i]);
    params[i].name = i == 0 ? "first" : "second";
    params[i].data = &data[i * kMany];
    params[i].grad = &grads[i * kMany];
    params[i].shape = &shape;
    params[i].ndim = 1;
  }
  ASSERT_EQ(zero_register_params(optim, nullptr, params.data(), 2, nullptr), ZERO_OK) << last();
  hold_from(14);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK) << last();
  EXPECT_EQ(zero_param_wait(optim, 0, nullptr), ZERO_OK) << last();
  EXPECT_NE(data[0], 1);
  EXPECT_NE(data[kMany - 1], 1);
  wait_for_held(1);
  EXPECT_EQ(data[kMany], 1);
  let_go = true;
  EXPECT_EQ(zero_param_wait(optim, 1, nullptr), ZERO_OK) << last();
  EXPECT_NE(data[kMany], 1);
  zero_free(optim);
  zero_comm_free(comm);
}

zero_status step_with(zero_optim* optim, std::array<std::vector<float>, 2>& grads) {
  void* const pointers[] = {grads[0].data(), grads[1].data()};
  auto options = initialized<zero_step_options>();
  options.grads = pointers;
  options.grad_count = 2;
  return zero_step(optim, &options);
}

/// Whatever is called next finds the step done.
TEST(ParamWait, every_other_call_waits_for_the_step) {
  const Scratch scratch;
  const Watched dawdling(dawdle);
  for (const CommKind kind : kCommKinds) {
    on_two(
        kind,
        [&](Rank2& self, int rank) {
          zero_optim* const optim = self.optim();
          float at = 0;
          std::array<std::vector<float>, 2> other_grads;  // as those of the step before are in use
          for (std::vector<float>& grad : other_grads) grad.assign(kElements, 1);
          const auto step = [&] {
            self.fill(0, 1);
            self.fill(1, 1);
            EXPECT_EQ(self.step(), ZERO_OK) << last();
            at -= 1;
          };
          const auto expect_new = [&](const char* what) {
            EXPECT_EQ(self.data[0][4999], at) << what;
            EXPECT_EQ(self.data[1][0], at) << what;
          };
          step();
          EXPECT_EQ(result_of(optim).step, 1);
          expect_new("result");
          step();
          EXPECT_EQ(step_with(optim, other_grads), ZERO_OK) << last();
          at -= 1;
          EXPECT_EQ(self.statistics().steps, 3);
          expect_new("statistics");
          step();
          double lr = 0;
          EXPECT_EQ(zero_group_get(optim, 0, "lr", &lr), ZERO_OK);
          expect_new("settings");
          step();
          self.barrier();
          expect_new("a call on the comm");
          step();
          EXPECT_EQ(zero_broadcast_params(optim, 0, nullptr), ZERO_OK) << last();
          expect_new("broadcast");
          step();
          const std::string directory = scratch / (std::string(name_of(kind)) + "-saved");
          EXPECT_EQ(zero_state_save(optim, directory.c_str(), nullptr), ZERO_OK) << last();
          expect_new("save");
          step();
          EXPECT_EQ(zero_state_load(optim, directory.c_str(), nullptr), ZERO_OK) << last();
          at += 1;
          expect_new("load");
          step();
          EXPECT_EQ(zero_rebalance(optim, nullptr, 0, nullptr), ZERO_OK) << last();
          expect_new("rebalance");
          step();
          std::vector<float> whole(kElements);
          EXPECT_EQ(
              zero_state_gather(optim, 0, nullptr, ZERO_ALL_RANKS, whole.data(), whole.size()),
              ZERO_OK)
              << last();
          EXPECT_EQ(whole[4999], at);
          expect_new("gather");
          step();
          EXPECT_EQ(zero_param_set_trainable(optim, 1, 0), ZERO_OK) << last();
          expect_new("freezing");
          EXPECT_EQ(zero_param_set_trainable(optim, 1, 1), ZERO_OK) << last();
          step();
          EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, nullptr), ZERO_OK) << last();
          expect_new("a reduction");
          EXPECT_EQ(zero_drop_grads(optim), ZERO_OK);
          step();
          EXPECT_EQ(self.ready(0), ZERO_OK) << last();
          expect_new("an announcement");
          EXPECT_EQ(zero_drop_grads(optim), ZERO_OK);
          self.barrier();  // the other rank may still read gradients for a sum that nobody will use
          step();
          EXPECT_EQ(self.begin(), ZERO_OK) << last();
          expect_new("a step that begins");
          self.fill(0, 1);
          self.fill(1, 1);
          self.barrier();
          EXPECT_EQ(self.ready(rank), ZERO_OK) << last();
          EXPECT_EQ(self.step(), ZERO_OK) << last();
          EXPECT_TRUE(ends(zero_param_wait(optim, 7, nullptr), ZERO_ERR_ARGUMENT,
                           "parameter 7 does not exist"));
          EXPECT_EQ(zero_param_wait(optim, -2, nullptr), ZERO_ERR_ARGUMENT);
          EXPECT_EQ(zero_param_wait(optim, 0, &self), ZERO_ERR_ARGUMENT);
          EXPECT_EQ(zero_param_wait(optim, 0, nullptr), ZERO_OK) << last();
          EXPECT_EQ(zero_param_wait(optim, 0, nullptr), ZERO_OK) << last();
        },
        true, kOverlaps);
  }
}

/// Nothing of a step that is skipped or refused is left for later.
TEST(ParamWait, a_step_that_is_not_made_is_over_on_return) {
  const Rank2::Change changes[] = {
      [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_SKIP; },
      [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; },
      [](zero_options& o) { o.loss_scale = 1; },
  };
  for (const Rank2::Change& change : changes) {
    for (const CommKind kind : kCommKinds) {
      on_two(
          kind,
          [](Rank2& self, int) {
            self.fill(0, 1);
            self.fill(1, 1);
            EXPECT_EQ(self.step(), ZERO_OK) << last();
            EXPECT_EQ(zero_param_wait(self.optim(), ZERO_ALL_PARAMS, nullptr), ZERO_OK) << last();
            self.grad(1)[7] = INFINITY;
            const zero_status made = self.step();
            EXPECT_TRUE(made == ZERO_SKIPPED || made == ZERO_ERR_NONFINITE) << made;
            EXPECT_EQ(zero_param_wait(self.optim(), 1, nullptr), ZERO_OK) << last();
            EXPECT_EQ(self.data[0][0], -1);
            EXPECT_EQ(self.data[1][7], -1);
            EXPECT_EQ(result_of(self.optim(), made).step, 1);
            zero_group_set(self.optim(), 0, "lr", 0);  // whatever the scale is now
            self.fill(1, 1);
            EXPECT_EQ(self.step(), ZERO_OK) << last();
            EXPECT_EQ(zero_param_wait(self.optim(), 1, nullptr), ZERO_OK) << last();
            EXPECT_EQ(result_of(self.optim()).step, 2);
          },
          true,
          [&change](zero_options& o) {
            kOverlaps(o);
            change(o);
          });
    }
  }
}

TEST(ParamWait, two_optimizers_of_a_comm_take_turns) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    Rank2 one(comm, true, kOverlaps), two(comm, true, kOverlaps);
    for (int step = 1; step <= 50; step++) {
      for (Rank2* const self : {&one, &two}) {
        self->fill(0, 1);
        self->fill(1, 2);
        EXPECT_EQ(self->step(), ZERO_OK) << last();
      }
      for (Rank2* const self : {&one, &two}) {
        EXPECT_EQ(zero_param_wait(self->optim(), ZERO_ALL_PARAMS, nullptr), ZERO_OK) << last();
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
    zero_optim* optim = nullptr;
    EXPECT_TRUE(
        ends(zero_create(&optim, comm, &options), ZERO_ERR_ARGUMENT, "overlap_gather is 2"));
    options.overlap_gather = rank;
    ASSERT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
    float value = 0;
    auto param = initialized<zero_param>();
    param.name = "a";
    param.data = &value;
    EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
    EXPECT_TRUE(
        ends(zero_seal(optim), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "overlap_gather"));
    zero_free(optim);
  });
}

TEST(ParamWait, an_abort_meanwhile_is_told_by_the_wait_the_result_and_the_next_call) {
  const Watched watched(hold<kBegin>);
  hold_from(1);
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Rank2 self(comm, true, kOverlaps);
    self.fill(0, 1);
    self.fill(1, 1);
    EXPECT_EQ(self.step(), ZERO_OK) << last();
    wait_for_held(2);
    if (rank == 0) {
      EXPECT_EQ(zero_comm_abort(comm, "enough"), ZERO_OK);
      let_go = true;
    }
    EXPECT_TRUE(ends(zero_param_wait(self.optim(), 1, nullptr), ZERO_ERR_ABORTED, "enough"));
    EXPECT_EQ(zero_param_wait(self.optim(), ZERO_ALL_PARAMS, nullptr), ZERO_ERR_ABORTED);
    EXPECT_EQ(result_of(self.optim(), ZERO_ERR_ABORTED).step, 0);
    EXPECT_EQ(self.step(), ZERO_ERR_ABORTED);
    auto failure = initialized<zero_failure>();
    EXPECT_EQ(zero_comm_failure(comm, &failure), ZERO_OK);
    EXPECT_EQ(failure.params_consistent, 0);
  });
}

size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(ParamWait, an_optimizer_can_be_freed_while_its_step_ends_and_takes_its_threads_along) {
  const Watched dawdling(dawdle);
  const size_t before = threads_of_this_process();
  for (int i = 0; i < 50; i++) {
    on_two(
        CommKind::local,
        [&](Rank2& self, int rank) {
          if (i % 2 == 0) {
            EXPECT_EQ(self.begin(), ZERO_OK) << last();
            EXPECT_EQ(self.ready(rank), ZERO_OK) << last();
          }
          EXPECT_EQ(self.step(), ZERO_OK) << last();
        },
        true, kOverlaps);
    // A thread that was joined leaves the list a moment later.
    for (int k = 0; k < 5000 && threads_of_this_process() > before; k++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(threads_of_this_process(), before);
  }
}

}  // namespace
}  // namespace zero::test
