// SPDX-License-Identifier: Apache-2.0
// Norms of gradients where they are easily wrong: those that come later, those of 16 bits, and
// those that are not finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "stored.h"
#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {
namespace {

// Four values of 10 are 20, eight are 28.28; clipped to 1 they are 1, whatever was there first.
TEST(Norm, counts_parameters_whose_gradients_come_later) {
  for (const CommKind kind : kCommKinds) {
    const Meeting meeting(kind, 2);
    run_sound_ranks(RankKind::threads, 2, [&](int rank) {
      Rank self(meeting.join(rank), {.partition = ZERO_PARTITION_GREEDY});
      std::vector<Tensor> model;
      for (const char* name : {"a", "b", "c", "d"})
        model.push_back({.name = name, .data = {0, 0}, .grad = {10, 10}});
      self.add(model);
      const auto norms = [&] {
        self.reduce(model);
        const double first = self.clip(1, 2);
        const double second = self.clip(2, 2);
        self.step();
        EXPECT_NEAR(second, 1, 1e-6);
        return first;
      };
      model[1].has_grad = false;
      EXPECT_EQ(zero_param_set_trainable(self.optim(), 2, 0), ZERO_OK);
      EXPECT_DOUBLE_EQ(norms(), 20);
      model[1].has_grad = true;
      EXPECT_EQ(zero_param_set_trainable(self.optim(), 2, 1), ZERO_OK);
      EXPECT_DOUBLE_EQ(norms(), std::sqrt(800.0));
      return std::string();
    });
  }
}

/// The norm of two tensors of `values` and of one without a gradient, on three ranks, of which the
/// last owns nothing that has one.
double norm_in(CommKind kind, int32_t dtype, const std::vector<double>& values) {
  double norm = -1;
  on_ranks(kind, 3, [&](zero_comm* comm, int rank) {
    auto options = initialized<zero_options>();
    options.partition = ZERO_PARTITION_MANUAL;
    zero_optim* optim = nullptr;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
    const char* const names[] = {"a", "b", "none"};
    const auto size = static_cast<int64_t>(values.size());
    std::array<std::vector<std::byte>, 3> data, grads;
    std::array<zero_param, 3> params;
    std::array<void*, 3> pointers = {};
    for (size_t i = 0; i < 3; i++) {
      data[i] = encode(dtype, values);
      grads[i] = encode(dtype, values);
      if (i < 2) pointers[i] = grads[i].data();
      ZERO_INIT(params[i]);
      params[i].name = names[i];
      params[i].data = data[i].data();
      params[i].shape = &size;
      params[i].ndim = 1;
      params[i].dtype = dtype;
      params[i].owner = static_cast<int32_t>(i);
    }
    EXPECT_EQ(zero_register_params(optim, nullptr, params.data(), 3, nullptr), ZERO_OK) << last();
    EXPECT_EQ(zero_reduce_grads(optim, pointers.data(), 3, ZERO_REDUCE_MEAN, nullptr), ZERO_OK);
    double own = -1;
    EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, INFINITY, 2, &own, nullptr), ZERO_OK)
        << last();
    EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK) << last();
    if (rank == 2) norm = own;
    zero_free(optim);
  });
  return norm;
}

// fp16 cannot hold 25 million, whose root is 5,000, nor the square of 300; bf16 has no 2.67, and
// fp32 no 1e100.
TEST(Norm, of_any_dtype_neither_overflows_nor_loses_digits) {
  for (const CommKind kind : kCommKinds) {
    const double root = std::sqrt(2.0);
    EXPECT_NEAR(norm_in(kind, ZERO_FLOAT16, {3000, 4000}), 5000 * root, 1e-8);
    EXPECT_NEAR(norm_in(kind, ZERO_FLOAT16, std::vector<double>(4, 300)), 600 * root, 1e-9);
    EXPECT_NEAR(norm_in(kind, ZERO_BFLOAT16, {1, 1, 1, 0.75}), std::sqrt(3 + 0.5625) * root, 1e-12);
    EXPECT_NEAR(norm_in(kind, ZERO_FLOAT64, {3e100, 4e100}) / (5e100 * root), 1, 1e-12);
  }
}

TEST(Norm, is_nan_wherever_the_nan_is_and_then_scales_nothing) {
  for (const CommKind kind : kCommKinds) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
        for (size_t place = 0; place < 4; place++) {
          const Meeting meeting(kind, 2);
          run_sound_ranks(RankKind::threads, 2, [&](int rank) {
            Rank self(meeting.join(rank), {.partition = ZERO_PARTITION_MANUAL, .lr = 1});
            std::vector<Tensor> model;
            for (int i = 0; i < 4; i++) {
              model.push_back({.name = std::to_string(i),
                               .data = {0, 0, 0},
                               .owner = i % 2,
                               .grad = {3, 5, 4}});
            }
            self.add(model);
            if (rank == 1) model[place].grad[1] = bad;
            self.reduce(model);
            const double norm = self.clip(1, p);
            EXPECT_TRUE(std::isnan(bad) ? std::isnan(norm) : norm == INFINITY)
                << norm << " in place " << place << ", p " << p;
            self.step();
            for (size_t i = 0; i < 4; i++) {
              EXPECT_EQ(model[i].data[0], -3) << "scaled by a norm that is not finite";
              if (i != place) {
                EXPECT_EQ(model[i].data[1], -5);
              }
            }
            return std::string();
          });
        }
      }
    }
  }
}

// What lies behind a padded parameter may be read, and counts for nothing.
TEST(Norm, does_not_count_what_is_between_padded_parameters) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      constexpr int64_t kSize = 17;
      auto options = initialized<zero_options>();
      std::array<zero_param, 3> params;
      const char* const names[] = {"a", "b", "c"};
      for (size_t i = 0; i < 3; i++) {
        ZERO_INIT(params[i]);
        params[i].name = names[i];
        params[i].shape = &kSize;
        params[i].ndim = 1;
        params[i].flags = ZERO_PARAM_PADDED;
      }
      std::array<int64_t, 3> offsets;
      auto plan = initialized<zero_plan>();
      plan.offsets = offsets.data();
      EXPECT_EQ(zero_partition_plan(params.data(), 3, 2, &options, &plan), ZERO_OK);
      std::array<float*, 2> arenas = {};
      const auto bytes = static_cast<size_t>(plan.arena_bytes);
      for (float*& arena : arenas) {
        EXPECT_EQ(
            zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, reinterpret_cast<void**>(&arena)),
            ZERO_OK);
        std::fill(arena, arena + bytes / sizeof(float), std::nanf(""));
      }
      for (size_t i = 0; i < 3; i++) {
        const auto at = static_cast<size_t>(offsets[i]) / sizeof(float);
        params[i].data = arenas[0] + at;
        params[i].grad = arenas[1] + at;
        std::fill_n(arenas[0] + at, kSize, 1.0f);
        std::fill_n(arenas[1] + at, kSize, 2.0f);
      }
      zero_optim* optim = nullptr;
      EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK);
      EXPECT_EQ(zero_register_params(optim, nullptr, params.data(), 3, nullptr), ZERO_OK) << last();
      EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK) << last();  // in one pass
      auto result = initialized<zero_result>();
      EXPECT_EQ(zero_step_result(optim, &result), ZERO_OK);
      EXPECT_EQ(result.nonfinite, 0);
      for (const zero_param& param : params)
        std::fill_n(static_cast<float*>(param.grad), kSize, 2.0f);
      double norm = -1;
      EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, 1, 2, &norm, nullptr), ZERO_OK) << last();
      EXPECT_DOUBLE_EQ(norm, 2 * std::sqrt(3.0 * kSize));
      EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK) << last();
      EXPECT_LT(static_cast<float*>(params[2].data)[kSize - 1], 1);
      zero_free(optim);
      for (float* arena : arenas) zero_arena_free(arena);
    });
  }
}

}  // namespace
}  // namespace zero::test
