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
  on_each_few(2, {.partition = ZERO_PARTITION_GREEDY}, [&](Rank& self, int) {
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
    self.freeze(2);
    EXPECT_DOUBLE_EQ(norms(), 20);
    model[1].has_grad = true;
    self.freeze(2, false);
    EXPECT_DOUBLE_EQ(norms(), std::sqrt(800.0));
  });
}

/// The norm of two tensors of `values` and of one without a gradient, on three ranks, of which the
/// last owns nothing that has one.
double norm_in(CommKind kind, int32_t dtype, const std::vector<double>& values) {
  double norm = -1;
  on_ranks(kind, 3, [&](zero_comm* comm, int rank) {
    const auto size = static_cast<int64_t>(values.size());
    std::array<std::vector<std::byte>, 3> data, grads;
    std::vector<zero_param> params;
    for (size_t i = 0; i < 3; i++) {
      data[i] = grads[i] = encode(dtype, values);
      const char* const names[] = {"a", "b", "none"};
      params.push_back(parameter(names[i], size, data[i].data(), nullptr, dtype));
      params[i].owner = static_cast<int32_t>(i);
    }
    Optim optim(comm, options_with([](zero_options& o) { o.partition = ZERO_PARTITION_MANUAL; }));
    optim.add(params);
    EXPECT_OK(optim.reduce_with({grads[0].data(), grads[1].data(), nullptr}));
    const double own = optim.clip(INFINITY, 2);
    EXPECT_OK(optim.step());
    if (rank == 2) norm = own;
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
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
      for (size_t place = 0; place < 4; place++) {
        on_each_few(2, {.partition = ZERO_PARTITION_MANUAL, .lr = 1}, [&](Rank& self, int rank) {
          std::vector<Tensor> model;
          for (int i = 0; i < 4; i++) {
            model.push_back(
                {.name = std::to_string(i), .data = {0, 0, 0}, .owner = i % 2, .grad = {3, 5, 4}});
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
        });
      }
    }
  }
}

// What lies behind a padded parameter may be read, and counts for nothing.
TEST(Norm, does_not_count_what_is_between_padded_parameters) {
  on_each_comm(2, [](zero_comm* comm, int) {
    static constexpr int64_t kSize = 17;
    std::vector<zero_param> params;
    for (const char* const name : {"a", "b", "c"}) {
      params.push_back(parameter(name, kSize, nullptr));
      params.back().flags = ZERO_PARAM_PADDED;
    }
    const auto options = initialized<zero_options>();
    std::array<int64_t, 3> offsets;
    auto plan = initialized<zero_plan>();
    plan.offsets = offsets.data();
    EXPECT_OK(zero_partition_plan(params.data(), 3, 2, &options, &plan));
    const auto bytes = static_cast<size_t>(plan.arena_bytes);
    const Arena data(comm, bytes), grads(comm, bytes);
    const auto fill_grads = [&] {
      for (const int64_t at : offsets) std::fill_n(grads.floats() + at / 4, kSize, 2.0f);
    };
    for (float* const arena : {data.floats(), grads.floats()})
      std::fill_n(arena, bytes / sizeof(float), std::nanf(""));
    for (size_t i = 0; i < 3; i++) {
      params[i].data = data.floats() + offsets[i] / 4;
      std::fill_n(data.floats() + offsets[i] / 4, kSize, 1.0f);
      params[i].grad = grads.floats() + offsets[i] / 4;
    }
    fill_grads();
    Optim optim(comm, options);
    optim.add(params);
    EXPECT_OK(optim.step());  // in one pass
    EXPECT_EQ(optim.result().nonfinite, 0);
    fill_grads();
    EXPECT_DOUBLE_EQ(optim.clip(1, 2), 2 * std::sqrt(3.0 * kSize));
    EXPECT_OK(optim.step());
    EXPECT_LT(static_cast<float*>(params[2].data)[kSize - 1], 1);
  });
}

}  // namespace
}  // namespace zero::test
