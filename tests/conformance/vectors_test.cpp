// SPDX-License-Identifier: Apache-2.0
// Runs that are small enough to compute manually, through the public header: every world up to
// five, on the local comm and on an engine's collectives, with the same bits on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "stored.h"
#include "support/comms.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kMaxWorld = 5;

/// Returns the numbers of the tensor `key` in the optimizer files of a checkpoint.
std::vector<float> saved(const std::string& checkpoint, const std::string& key) {
  std::vector<float> values;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().rfind("optim-", 0) != 0) continue;
    const std::string file = read_file(entry.path());
    uint64_t head = 0;
    std::memcpy(&head, file.data(), sizeof head);
    const size_t at = file.substr(8, head).find("\"" + key + "\":");
    if (at == std::string::npos) continue;
    const std::string offsets = "\"data_offsets\":[";
    const char* from = file.c_str() + file.find(offsets, 8 + at) + offsets.size();
    char* comma = nullptr;
    const uint64_t begin = std::strtoull(from, &comma, 10);
    const uint64_t end = std::strtoull(comma + 1, nullptr, 10);
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), file.data() + 8 + head + begin, end - begin);
  }
  return values;
}

// The momentum buffer is 1, then 0.9 + 1 = 1.9: 1 -> 1 - 0.1 = 0.9 -> 0.9 - 0.19 = 0.71.
TEST(Vectors, momentum_goes_on_after_a_reload_on_another_number_of_ranks) {
  const auto step = [](Rank& rank, std::vector<Tensor>& w) {
    w[0].grad = {1, 1, 1};
    rank.train(w);
  };
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= kMaxWorld; world++) {
      const Choices choices{.partition = kPartitions[world % 4], .lr = 0.1, .momentum = 0.9};
      const Scratch scratch;
      on_few_alike(kind, world, choices, [&](Rank& rank, int) {
        std::vector<Tensor> w = {{.name = "w", .data = {1, 1, 1}}};
        rank.add(w);
        step(rank, w);
        EXPECT_EQ(w[0].data, std::vector<float>(3, 0.9f));
        rank.save(scratch / "first");
        step(rank, w);
        EXPECT_FLOAT_EQ(w[0].data[2], 0.71f);
        return w[0].data;
      });
      const Choices later{.partition = kPartitions[(world + 1) % 4], .lr = 0.1, .momentum = 0.9};
      on_few_alike(kind, world % kMaxWorld + 1, later, [&](Rank& rank, int) {
        std::vector<Tensor> w = {{.name = "w", .data = {-7, -7, -7}}};
        rank.add(w);
        rank.load(scratch / "first");
        EXPECT_EQ(w[0].data, std::vector<float>(3, 0.9f));
        step(rank, w);
        for (const float x : w[0].data) EXPECT_FLOAT_EQ(x, 0.71f);
        EXPECT_EQ(rank.result().step, 2);
        rank.save(scratch / "second");
        return w[0].data;
      });
      EXPECT_EQ(saved(scratch / "first", "w.momentum_buffer"), std::vector<float>(3, 1.0f));
      EXPECT_EQ(saved(scratch / "second", "w.momentum_buffer"), std::vector<float>(3, 1.9f));
    }
  }
}

// On two ranks, the gradients of w are 1 and 4, those of b 1 and 2. Their means 2.5 and 1.5 move 1
// to 0.75 and 2 to 1.85. More ranks are spaced evenly between the two, and one rank has the mean.
TEST(Vectors, every_rank_moves_by_the_mean_gradient) {
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= kMaxWorld; world++) {
      for (const int32_t partition : kPartitions) {
        on_few_alike(kind, world, {.partition = partition}, [&](Rank& rank, int me) {
          std::vector<Tensor> model = {{.name = "w", .data = {1}},
                                       {.name = "b", .data = {2}, .owner = world - 1}};
          rank.add(model);
          const float place = world == 1 ? 0.5f : static_cast<float>(me) / (world - 1);
          model[0].grad[0] = 1 + 3 * place;
          model[1].grad[0] = 1 + place;
          rank.train(model);
          EXPECT_FLOAT_EQ(model[0].data[0], 0.75f);
          EXPECT_FLOAT_EQ(model[1].data[0], 1.85f);
          return std::vector<float>{model[0].data[0], model[1].data[0]};
        });
      }
    }
  }
}

TEST(Vectors, late_parameters_find_the_rank_that_has_room_for_them) {
  for (int world = 1; world <= kMaxWorld; world++) {
    on_few_alike(
        CommKind::local, world, {.partition = ZERO_PARTITION_GREEDY}, [&](Rank& rank, int) {
          std::vector<Tensor> early, late;
          for (int i = 0; i < 4 * world; i++) {
            const size_t sizes[] = {9, 7, 5, 3};
            auto& group = i == 4 * world - 1 ? late : early;
            group.push_back({.name = std::to_string(i), .data = std::vector<float>(sizes[i % 4])});
          }
          rank.add(early);
          rank.seal();
          rank.add(late);
          rank.seal();
          for (int32_t r = 0; r < world; r++) EXPECT_EQ(rank.owned_elements(r), 24) << "rank " << r;
          return std::vector<float>();
        });
  }
}

struct Norm {
  double p;
  double norm;
};
// Norms of the gradients {3, 4}, {12} and {}: 3 + 4 + 12, the root of 9 + 16 + 144, and 12.
constexpr Norm kNorms[] = {{1, 19}, {2, 13}, {INFINITY, 12}};

double norm_of(const std::vector<float>& values, double p) {
  double sum = 0, largest = 0;
  for (const float x : values) {
    sum += std::pow(std::fabs(double{x}), p);
    largest = std::max(largest, std::fabs(double{x}));
  }
  return std::isinf(p) ? largest : std::pow(sum, 1 / p);
}

/// Rank 0 owns the gradients 3 and 4, rank 1 owns 12, and further ranks own none.
std::vector<Tensor> clipped_model(int world) {
  return {{.name = "a", .data = {0, 0}, .owner = 0},
          {.name = "b", .data = {0}, .owner = world > 1 ? 1 : 0}};
}

std::vector<float> all_of(const std::vector<Tensor>& model) {
  std::vector<float> values = model[0].data;
  values.insert(values.end(), model[1].data.begin(), model[1].data.end());
  return values;
}

TEST(Vectors, a_norm_counts_each_gradient_once_whoever_owns_it) {
  for (const CommKind kind : kCommKinds) {
    for (int world = 1; world <= kMaxWorld; world++) {
      for (const Norm& one : kNorms) {
        const Choices choices{.partition = ZERO_PARTITION_MANUAL, .lr = 1};
        on_few_alike(kind, world, choices, [&](Rank& rank, int me) {
          std::vector<Tensor> model = clipped_model(world);
          rank.add(model);
          // Only the last rank has a gradient, so that the sum is exact in every world.
          model[0].grad = {3, 4};
          model[1].grad = {12};
          for (Tensor& tensor : model) tensor.has_grad = me == world - 1;
          rank.reduce(model, ZERO_REDUCE_SUM);
          EXPECT_EQ(rank.owned_elements(world - 1), world > 2 ? 0 : world == 2 ? 1 : 3);
          EXPECT_EQ(rank.clip(0.3, one.p), one.norm);
          EXPECT_NEAR(rank.clip(100, one.p), 0.3, 1e-6) << "not the clipped norm";
          rank.step();
          // Starting from 0 with a rate of 1, parameters are the negative gradients.
          const std::vector<float> moved = all_of(model);
          EXPECT_NEAR(norm_of(moved, one.p), 0.3, 1e-6);
          EXPECT_NEAR(moved[0] / moved[2], 3.0 / 12, 1e-6) << "not the same direction";
          EXPECT_NEAR(moved[1] / moved[2], 4.0 / 12, 1e-6);
          return moved;
        });
      }
    }
  }
}

// ---- fp32 parameters that ranks publish in 16 bits.

constexpr size_t kLong = 5000;

std::vector<Tensor> model() {
  return {{"a", std::vector<float>(kLong, 1), 0}, {"b", std::vector<float>(7, -3), 1}};
}

/// Takes a step with gradients of 1.
void descend(Rank& rank, std::vector<Tensor>& tensors) {
  for (Tensor& tensor : tensors) tensor.grad.assign(tensor.data.size(), 1);
  rank.train(tensors);
}

TEST(ShareDtype, steps_below_its_resolution_add_up_where_masters_are_kept) {
  for (const int32_t partition : kPartitions) {
    for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_NONE}) {
      const Choices choices{
          .partition = partition, .lr = 1e-4, .share_dtype = ZERO_FLOAT16, .master = master};
      on_each_few(2, choices, [&](Rank& rank, int) {
        std::vector<Tensor> tensors = model();
        rank.add(tensors);
        for (int step = 0; step < 100; step++) descend(rank, tensors);
        for (const float x : tensors[0].data) {
          EXPECT_EQ(x, rounded(ZERO_FLOAT16, x));
          EXPECT_NEAR(x, master == ZERO_MASTER_NONE ? 1.0 : 0.99, 0.0003);
        }
      });
    }
  }
}

TEST(ShareDtype, what_is_shared_by_hand_is_rounded_on_its_owner_too_and_its_master_is_not) {
  on_each_few(3, {.share_dtype = ZERO_BFLOAT16}, [&](Rank& rank, int) {
    std::vector<Tensor> tensors = model();
    rank.add(tensors);
    rank.seal();
    for (Tensor& tensor : tensors) tensor.data.assign(tensor.data.size(), 1 + 0x1p-20f);
    EXPECT_OK(zero_share_params(rank.optim(), 0, nullptr));
    for (const Tensor& tensor : tensors)
      EXPECT_EQ(tensor.data, std::vector<float>(tensor.data.size(), 1));
    EXPECT_EQ(rank.gathered(0, "master", kLong), std::vector<float>(kLong, 1 + 0x1p-20f));
  });
}

TEST(ShareDtype, a_checkpoint_goes_on_with_the_same_bits_on_other_ranks) {
  const Scratch scratch;
  const Choices choices{.lr = 0.001, .momentum = 0.9, .share_dtype = ZERO_BFLOAT16};
  std::vector<float> unbroken;
  on_few(CommKind::local, 3, choices, [&](Rank& rank, int number) {
    std::vector<Tensor> tensors = model();
    rank.add(tensors);
    for (int step = 0; step < 6; step++) {
      if (step == 3) rank.save(scratch / "saved");
      descend(rank, tensors);
    }
    const std::vector<float> masters = rank.gathered(0, "master", kLong);
    if (number == 0) unbroken = masters;
  });
  on_few(CommKind::user, 2, choices, [&](Rank& rank, int) {
    std::vector<Tensor> tensors = model();
    rank.add(tensors);
    rank.load(scratch / "saved");
    for (int step = 3; step < 6; step++) descend(rank, tensors);
    EXPECT_EQ(rank.gathered(0, "master", kLong), unbroken);
    for (const float x : tensors[0].data) EXPECT_EQ(x, rounded(ZERO_BFLOAT16, unbroken[0]));
  });
  on_few(CommKind::local, 2, {.momentum = 0.9}, [&](Rank& rank, int) {
    std::vector<Tensor> tensors = model();
    rank.add(tensors);
    EXPECT_EQ(zero_state_load(rank.optim(), (scratch / "saved").c_str(), nullptr),
              ZERO_ERR_CKPT_MISMATCH);
    EXPECT_TRUE(says("parameter 'a' has state 'master'")) << last();
  });
}

}  // namespace
}  // namespace zero::test
