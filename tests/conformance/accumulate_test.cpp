// SPDX-License-Identifier: Apache-2.0
// ZERO_REDUCE_ACCUMULATE: the owners add up micro-batches.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "equivalence.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

TEST(Accumulate, micro_batches_added_up_by_the_owners_equal_one_process) {
  size_t turn = 0;
  for (const Kind& kind : kKinds) {
    for (int world = 1; world <= max_world(); world++) {
      for (const CommKind comm : kCommKinds) {
        for (const bool missing : {false, true}) {
          turn++;
          Training training = base(world);
          set_kind(training, kind);
          training.partition = static_cast<int32_t>(turn / 2 % 4);
          training.where = std::array{Where::arenas, Where::foreign, Where::mixed,
                                      Where::per_rank_arenas}[turn / 3 % 4];
          training.padded = turn % 2 == 0;
          training.missing = missing;
          training.micro_batches = 2 + static_cast<int>(turn % 3);
          training.toggled = turn % 5 == 0;
          training.sum = turn % 7 == 0;
          training.reduced = turn % 11 == 0 && !missing;
          training.explicit_reduce = turn % 3 == 0;
          training.max_grad_norm = turn % 4 == 0 ? 0.5 : 0;
          training.explicit_clip = turn % 8 == 0;
          training.clip_value = turn % 6 == 0 ? 0.05 : 0;
          training.wire_dtype = turn % 5 == 1 ? ZERO_BFLOAT16 : 0;
          training.loss_scale = turn % 9 == 0 ? 12.5 : 1;
          training.threads = turn % 10 == 0 ? 3 : 1;
          training.steps = 7;
          expect_equals_reference(training, run(training, RankKind::threads, comm),
                                  std::string(kind.name) + ", turn " + std::to_string(turn));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Two parameters of one element and plain SGD with lr 1.
class Pair {
 public:
  explicit Pair(zero_comm* comm) {
    static const char* const names[] = {"lr"};
    static const double values[] = {1};
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.optimizer = ZERO_OPTIMIZER_SGD;
    options.names = names;
    options.values = values;
    options.setting_count = 1;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << zero_last_error();
    std::array<zero_param, 2> params;
    for (size_t i = 0; i < 2; i++) {
      zero_param_init(&params[i], sizeof params[i]);
      params[i].name = i == 0 ? "a" : "b";
      params[i].data = &data[i];
      params[i].grad = &grad[i];
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), 2, nullptr), ZERO_OK);
  }
  ~Pair() { zero_free(optim_); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  zero_status reduce(float a, float b, int32_t flags, bool has_b = true) {
    grad = {a, b};
    const std::array<void*, 2> given = {&grad[0], has_b ? &grad[1] : nullptr};
    return zero_reduce_grads(optim_, given.data(), 2, flags, nullptr);
  }
  zero_status step() { return zero_step(optim_, nullptr); }
  zero_optim* optim() { return optim_; }

  std::array<float, 2> data = {0, 0}, grad = {0, 0};

 private:
  zero_optim* optim_ = nullptr;
};

constexpr int32_t kMean = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
constexpr int32_t kSum = ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE;

void on_pairs(const std::function<void(Pair&, int rank)>& body) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
      Pair self(comm);
      body(self, rank);
    });
  }
}

TEST(Accumulate, a_mean_divides_by_ranks_once_and_never_by_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    const auto mine = static_cast<float>(rank);
    for (const float g : {1.0f, 2.0f, 4.0f})
      EXPECT_EQ(self.reduce(g + mine, 10 * g, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -(7.0f + 3 * 0.5f));
    EXPECT_EQ(self.data[1], -70.0f);
  });
}

TEST(Accumulate, the_last_micro_batch_may_come_with_the_step) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(1, 2, kSum), ZERO_OK) << zero_last_error();
    self.grad = {3, 4};
    zero_step_options options;
    zero_step_options_init(&options, sizeof options);
    options.reduce_flags = kSum;
    EXPECT_EQ(zero_step(self.optim(), &options), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -8.0f);
    EXPECT_EQ(self.data[1], -12.0f);
    EXPECT_EQ(zero_step(self.optim(), &options), ZERO_OK) << zero_last_error();  // a window of one
    EXPECT_EQ(self.data[0], -14.0f);
  });
}

TEST(Accumulate, a_parameter_is_absent_only_if_it_is_in_all_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, 6, kMean, rank == 1), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -3.0f);
    EXPECT_EQ(self.data[1], -3.0f);
    double steps = 0;
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[1], -3.0f);  // the presence of the window before is forgotten
    EXPECT_EQ(zero_state_get_scalar(self.optim(), 1, "step", &steps), ZERO_OK);
    EXPECT_EQ(steps, 1);
  });
}

TEST(Accumulate, a_window_dropped_leaves_nothing_behind) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(zero_drop_grads(self.optim()), ZERO_OK);
    EXPECT_EQ(self.reduce(2, 2, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -2.0f);
  });
}

/// A refused micro-batch, for whatever reason and on whichever rank, leaves the sums as they were.
TEST(Accumulate, a_failed_micro_batch_adds_nothing) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_EQ(self.reduce(1, 2, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(5, 5, kSum), ZERO_ERR_STATE);
    EXPECT_TRUE(says("reduce flags are 5"));
    EXPECT_EQ(self.reduce(5, 5, ZERO_REDUCE_MEAN), ZERO_ERR_STATE);
    EXPECT_EQ(self.reduce(5, 5, rank == 0 ? 103 : kMean),
              rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(zero_reduce_grads(self.optim(), nullptr, rank == 1 ? 3 : 0, kMean, nullptr),
              rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    const std::array<void*, 2> nothing = {nullptr, nullptr};
    EXPECT_EQ(zero_reduce_grads(self.optim(), nothing.data(), 2, kMean, nullptr), ZERO_ERR_STATE);
    EXPECT_EQ(self.reduce(1, 2, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -2.0f);
    EXPECT_EQ(self.data[1], 0.0f);
  });
}

TEST(Accumulate, what_was_reduced_or_clipped_otherwise_takes_no_more) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(3, 4, ZERO_REDUCE_MEAN), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_ERR_STATE);
    EXPECT_TRUE(says("without ZERO_REDUCE_ACCUMULATE"));
    EXPECT_EQ(zero_drop_grads(self.optim()), ZERO_OK);
    EXPECT_EQ(self.reduce(3, 4, kMean), ZERO_OK) << zero_last_error();
    double norm = 0;
    EXPECT_EQ(zero_clip_grad_norm(self.optim(), INFINITY, 2, &norm, nullptr), ZERO_OK);
    EXPECT_EQ(norm, 5);
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_ERR_STATE);
    EXPECT_TRUE(says("clipped already"));
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[1], -4.0f);
  });
}

/// Infinities that cancel are found in the sum, and a count is of elements, not of micro-batches.
TEST(Accumulate, elements_that_are_not_finite_count_once) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(INFINITY, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(-INFINITY, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    zero_result result;
    zero_result_init(&result, sizeof result);
    zero_step_result(self.optim(), &result);
    EXPECT_EQ(result.nonfinite, 1);
  });
}

}  // namespace
}  // namespace zero::test
