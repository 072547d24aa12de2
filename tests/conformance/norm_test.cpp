// SPDX-License-Identifier: Apache-2.0
// Norms of gradients in difficult cases: gradients that arrive later, 16-bit types and values that
// are not finite. Also clipping by the norm of some parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "stored.h"
#include "support/comms.h"
#include "support/expect.h"
#include "uneven.h"
#include "zero.h"

namespace zero::test {
namespace {

// The norm of four values of 10 is 20, that of eight is 28.28. After clipping to 1 it is 1 in both
// cases.
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

/// Returns the norm of two tensors with `values` and one without a gradient, on three ranks. The
/// last rank owns only the one without a gradient.
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

// fp16 cannot represent 25 million, whose root is 5,000, nor the square of 300. bf16 cannot
// represent 2.67, and fp32 cannot represent 1e100.
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

// The padding after a parameter may be read, but does not count.
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

// ---- Norms of some parameters

using Numbers = std::vector<int64_t>;

/// Returns tensors of all sizes with random gradients, each with its own owner.
std::vector<Tensor> random_model(uint64_t seed, int world) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> near_zero(-1, 1);
  std::vector<Tensor> model;
  for (const size_t size : {5, 3000, 1, 1025, 40, 7, 2048}) {
    Tensor tensor{.name = std::to_string(model.size()), .data = std::vector<float>(size)};
    tensor.owner = static_cast<int32_t>(random() % static_cast<uint64_t>(world));
    for (size_t k = 0; k < size; k++) tensor.grad.push_back(near_zero(random));
    model.push_back(std::move(tensor));
  }
  return model;
}

double norm_in_order(const std::vector<Tensor>& model, const Numbers& params, double p) {
  long double total = 0;
  for (const int64_t param : params) {
    for (const float x : model[static_cast<size_t>(param)].grad) {
      const long double size = std::fabs(static_cast<long double>(x));
      total = std::isinf(p) ? std::max(total, size) : total + std::pow(size, p);
    }
  }
  return static_cast<double>(std::isinf(p) ? total : std::pow(total, 1 / p));
}

double clip_of(zero_optim* optim, const Numbers& params, double max_norm, double p = 2) {
  double norm = -1;
  const int64_t none = 0;  // without a list the norm is that of all gradients
  const int64_t* const list = params.empty() ? &none : params.data();
  EXPECT_OK(zero_clip_grad_norm(optim, list, params.size(), max_norm, p, &norm, nullptr));
  return norm;
}

/// Succeeds if the tensor has decreased by its gradient times `factor`, in fp32.
::testing::AssertionResult moved_by(const Tensor& tensor, double factor) {
  const auto narrow = static_cast<float>(factor);
  for (size_t k = 0; k < tensor.data.size(); k++) {
    const float expected = -(tensor.grad[k] * narrow);
    if (std::memcmp(&tensor.data[k], &expected, sizeof expected) != 0)
      return ::testing::AssertionFailure() << "tensor " << tensor.name << ", element " << k << ": "
                                           << tensor.data[k] << ", not " << expected;
  }
  return ::testing::AssertionSuccess();
}

// Ranks have equal gradients, so that their mean over 1, 2 or 4 ranks is bitwise equal to each.
TEST(NormOf, scales_what_is_listed_and_nothing_else) {
  uint64_t seed = 0;
  for (const int world : {1, 2, 4}) {
    for (const int32_t partition : kPartitions) {
      for (const double p : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)}) {
        seed++;
        on_each_few(world, {.partition = partition, .lr = 1}, [&](Rank& self, int) {
          std::vector<Tensor> model = random_model(seed, world);
          self.add(model);
          self.reduce(model);
          const Numbers first = {3, 1}, second = {6, 0, 5};
          const double a = norm_in_order(model, first, p), b = norm_in_order(model, second, p);
          const double norm = clip_of(self.optim(), first, a / 3, p);
          const double roomy = clip_of(self.optim(), second, b * 2, p);
          EXPECT_NEAR(norm / a, 1, 1e-12);
          EXPECT_NEAR(roomy / b, 1, 1e-12);
          self.step();
          EXPECT_EQ(self.result().grad_norm, -1) << "of all, nobody asked for";
          for (const Tensor& tensor : model) {
            const bool clipped = tensor.name == "1" || tensor.name == "3";
            EXPECT_TRUE(moved_by(tensor, clipped ? a / 3 / (norm + 1e-6) : 1)) << "p " << p;
          }
        });
      }
    }
  }
}

TEST(NormOf, has_the_same_bits_for_every_world_and_rule) {
  for (const double p : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)}) {
    double first = -1;
    for (int world = 1; world <= 5; world++) {
      for (const int32_t partition : kPartitions) {
        on_few(CommKind::local, world, {.partition = partition}, [&](Rank& self, int rank) {
          std::vector<Tensor> model = random_model(7, world);
          self.add(model);
          // Only one rank has gradients, so that sums do not depend on the world.
          for (Tensor& tensor : model) tensor.has_grad = rank == 0;
          self.reduce(model, ZERO_REDUCE_SUM);
          const double norm = clip_of(self.optim(), {6, 1, 2}, INFINITY, p);
          if (rank == 0) {
            if (first < 0) first = norm;
            EXPECT_EQ(norm, first) << "p " << p << ", world " << world << ", rule " << partition;
          }
        });
      }
    }
  }
}

TEST(NormOf, a_norm_of_all_sees_what_clips_of_some_left) {
  on_each_few(2, {.lr = 1, .max_grad_norm = 0.5}, [&](Rank& self, int) {
    std::vector<Tensor> model = {{.name = "a", .data = {0, 0}, .grad = {30, 40}},
                                 {.name = "b", .data = {0}, .grad = {12}},
                                 {.name = "c", .data = {0}, .grad = {9}}};
    self.add(model);
    self.reduce(model);
    EXPECT_EQ(self.clip(25, INFINITY), 40);  // all gradients are now multiplied by 25 / 40
    EXPECT_NEAR(clip_of(self.optim(), {0}, 3), 31.25, 1e-4);
    EXPECT_NEAR(clip_of(self.optim(), {0}, 3), 3, 1e-4);
    EXPECT_NEAR(clip_of(self.optim(), {2, 1}, 4), 9.375, 1e-4);
    EXPECT_EQ(clip_of(self.optim(), {}, 1), 0);
    EXPECT_NEAR(self.clip(INFINITY, 2), 5, 1e-4);
    EXPECT_NEAR(clip_of(self.optim(), {1, 2}, 2), 4, 1e-4);
    EXPECT_NEAR(clip_of(self.optim(), {2, 1}, INFINITY), 2, 1e-4);
    self.step();
    EXPECT_NEAR(self.result().grad_norm, std::sqrt(13.0), 1e-4);
    const double factor = 0.5 / std::sqrt(13.0);
    EXPECT_NEAR(model[0].data[1], -2.4 * factor, 1e-4);  // 40 * 25 / 40 * 3 / 31.25
    EXPECT_NEAR(model[1].data[0], -1.6 * factor, 1e-4);  // 12 * 25 / 40 * 4 / 9.375 * 2 / 4
  });
}

TEST(NormOf, what_is_frozen_or_has_no_gradient_counts_nothing) {
  for (const int32_t partition : kPartitions) {
    on_each_few(2, {.partition = partition, .lr = 1}, [&](Rank& self, int) {
      std::vector<Tensor> model = {{.name = "a", .data = {0, 0}, .grad = {3, 4}},
                                   {.name = "frozen", .data = {0}, .owner = 1, .grad = {NAN}},
                                   {.name = "none", .data = {0}, .grad = {5}, .has_grad = false},
                                   {.name = "d", .data = {0}, .owner = 1, .grad = {12}}};
      self.add(model);
      self.freeze(1);
      self.reduce(model);
      EXPECT_DOUBLE_EQ(clip_of(self.optim(), {0, 1, 2, 3}, INFINITY), 13);
      EXPECT_EQ(clip_of(self.optim(), {1, 2}, 1), 0);
      self.step();
      for (const Tensor& tensor : model)
        EXPECT_TRUE(tensor.name == "a" || tensor.name == "d"
                        ? moved_by(tensor, 1)
                        : moved_by({.name = tensor.name, .data = tensor.data, .grad = {0}}, -1));
    });
  }
}

TEST(NormOf, a_norm_that_is_not_finite_scales_nothing) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    on_few(CommKind::local, 2, {.lr = 1}, [&](Rank& self, int) {
      std::vector<Tensor> model = {{.name = "a", .data = {0, 0}, .grad = {3, bad}},
                                   {.name = "b", .data = {0}, .grad = {4}}};
      self.add(model);
      self.reduce(model);
      EXPECT_FALSE(std::isfinite(clip_of(self.optim(), {0}, 1)));
      EXPECT_EQ(clip_of(self.optim(), {1}, 1), 4) << "what is elsewhere does not matter";
      self.step();
      EXPECT_EQ(model[0].data[0], -3);
      EXPECT_NEAR(model[1].data[0], -1, 1e-5);
    });
  }
}

TEST(NormOf, fp64_parameters_and_micro_batches_are_scaled_in_their_sums) {
  on_each_comm(3, [](zero_comm* comm, int rank) {
    static constexpr int64_t kSize = 3;
    double data[2][kSize] = {}, grad[2][kSize] = {{1, 2, 2}, {1, 2, 2}};
    Optim optim(comm, plain_sgd(kLr1));
    optim.add(std::array{parameter("a", kSize, data[0], grad[0], ZERO_FLOAT64),
                         parameter("b", kSize, data[1], grad[1], ZERO_FLOAT64)});
    constexpr int32_t kFlags = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
    EXPECT_OK(optim.reduce(kFlags));
    EXPECT_OK(optim.reduce(kFlags));
    EXPECT_NEAR(clip_of(optim.optim(), {1}, 3e-10), 6, 1e-12);
    EXPECT_NEAR(clip_of(optim.optim(), {0}, INFINITY), 6, 1e-12);
    EXPECT_OK(optim.step());
    const double factor = 3e-10 / (6 + 1e-6);
    for (int k = 0; k < kSize; k++) {
      EXPECT_NEAR(data[0][k] / (-2 * grad[0][k]), 1, 1e-15) << rank;
      EXPECT_NEAR(data[1][k] / (-2 * grad[1][k] * factor), 1, 1e-14) << rank;
    }
  });
}

TEST(NormOf, a_list_that_makes_no_sense_is_refused_and_nothing_is_reduced) {
  on_each_few(2, {.lr = 1}, [&](Rank& self, int rank) {
    std::vector<Tensor> model = {{.name = "a", .data = {0}, .grad = {1}},
                                 {.name = "b", .data = {0}, .grad = {2}}};
    self.add(model);
    self.seal();
    const struct {
      Numbers params;
      double max_norm, norm_type;
      const char* words;
    } cases[] = {{{0, 2}, 1, 2, "parameter 2 does not exist: there are 2"},
                 {{-1}, 1, 2, "parameter -1 does not exist"},
                 {{1, 0, 1}, 1, 2, "parameter 1, 'b', is listed twice"},
                 {{1}, 0, 2, "max_norm"},
                 {{1}, NAN, 2, "max_norm"},
                 {{1}, 1, 0, "norm_type"},
                 {{1}, 1, NAN, "norm_type"}};
    for (const auto& wrong : cases) {
      for (const bool on_one : {false, true}) {
        const bool mine = !on_one || rank == 1;
        const Numbers& given = mine ? wrong.params : Numbers{1};
        double norm = -7;
        EXPECT_TRUE(ends(
            zero_clip_grad_norm(self.optim(), given.data(), given.size(), mine ? wrong.max_norm : 1,
                                mine ? wrong.norm_type : 2, &norm, nullptr),
            mine ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER, wrong.words));
        EXPECT_EQ(norm, -7);
      }
    }
    EXPECT_EQ(zero_clip_grad_norm(self.optim(), nullptr, 1, 1, 2, nullptr, nullptr),
              ZERO_ERR_ARGUMENT);
    const Numbers other = {rank};
    EXPECT_TRUE(ends(zero_clip_grad_norm(self.optim(), other.data(), 1, 1, 2, nullptr, nullptr),
                     rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH,
                     "rank 1 has parameter 1 listed next, rank 0 has parameter 0"));
    EXPECT_TRUE(ends(zero_clip_grad_norm(self.optim(), other.data(), static_cast<size_t>(rank), 1,
                                         2, nullptr, nullptr),
                     rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH,
                     "rank 1 has 1 parameters listed, rank 0 has 0"));
    EXPECT_TRUE(ends(zero_clip_grad_norm(self.optim(), nullptr, 0, rank + 1, 2, nullptr, nullptr),
                     rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH, "max_norm"));
    self.reduce(model);  // nothing was reduced
    self.step();
    EXPECT_EQ(model[1].data[0], -2);
  });
}

TEST(NormOf, a_rank_that_joined_clips_with_the_others) {
  const Uneven run{.world = 3, .optimizer = ZERO_OPTIMIZER_SGD, .lr = 1, .sizes = {1, 1, 1}};
  on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
    const std::vector<std::vector<float>> before = seat.params();
    if (rank != 1) {
      seat.fill_with(3);  // the mean is 2
      EXPECT_DOUBLE_EQ(clip_of(seat.optim(), {2, 0}, 1, 1), 4);
      EXPECT_OK(zero_step(seat.optim(), nullptr));
    }
    EXPECT_EQ(seat.join(), 2) << last();
    for (size_t i = 0; i < 3; i++)
      EXPECT_NEAR(before[i][0] - seat.params()[i][0], i == 1 ? 2 : 0.5, 1e-5);
  });
}

}  // namespace
}  // namespace zero::test
