// SPDX-License-Identifier: Apache-2.0
// fp32 parameters that ranks share in 16 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "stored.h"
#include "support/comms.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

constexpr size_t kLong = 5000;

std::vector<Tensor> model() {
  return {{"a", std::vector<float>(kLong, 1), 0}, {"b", std::vector<float>(7, -3), 1}};
}

/// A step along gradients of 1.
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
