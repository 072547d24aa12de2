// SPDX-License-Identifier: Apache-2.0
// Groups that are a part of a comm: ranks have numbers of their own in the group, and no action of
// one group reaches another.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 4;

/// Runs body(group, rank in the whole comm). `color_of` selects the group of each rank.
void in_groups(CommKind kind, const std::function<int32_t(int)>& color_of,
               const std::function<void(zero_comm*, int rank)>& body) {
  on_ranks(kind, kWorld, [&](zero_comm* parent, int rank) {
    zero_comm* group = nullptr;
    EXPECT_OK(zero_comm_split(&group, parent, color_of(rank), rank));
    if (group != nullptr) body(group, rank);
    zero_comm_free(group);
  });
}

/// Returns small integers whose sums are exact. They differ by rank, tensor and step.
float gradient(int rank, size_t tensor, int step) {
  return static_cast<float>(rank * 7 + static_cast<int>(tensor) * 3 + step * step % 5 + 1);
}

/// Returns a parameter that starts at 1, after steps with momentum 0.5, lr 0.5 and the mean
/// gradient of `ranks`.
float trained_alone(const std::vector<int>& ranks, size_t tensor, int steps) {
  float value = 1, buffer = 0;
  for (int step = 0; step < steps; step++) {
    float sum = 0;
    for (const int rank : ranks) sum += gradient(rank, tensor, step);
    buffer = (step == 0 ? 0 : buffer * 0.5f) + sum / static_cast<float>(ranks.size());
    value -= 0.5f * buffer;
  }
  return value;
}

// In a group of ranks 0 and 2 of the whole, the owners are 0 and 1. If these were taken as ranks of
// the whole, half of the parameters or none would be trained, and all ranks would agree.
TEST(SubGroup, trains_as_an_unsharded_run_with_its_own_ranks) {
  const std::vector<std::vector<std::vector<int>>> splits = {
      {{0, 2}, {1, 3}}, {{1, 2}, {0, 3}}, {{0}, {1, 2, 3}}, {{2, 3}, {0, 1}}};
  for (const CommKind kind : kCommKinds) {
    for (const auto& groups : splits) {
      for (const int32_t partition : kPartitions) {
        const auto color_of = [&](int rank) {
          for (const int member : groups[0])
            if (member == rank) return 0;
          return 1;
        };
        in_groups(kind, color_of, [&](zero_comm* group, int rank) {
          const std::vector<int>& ranks = groups[static_cast<size_t>(color_of(rank))];
          EXPECT_EQ(ranks[static_cast<size_t>(zero_comm_rank(group))], rank);
          Rank self(group, {.partition = partition, .lr = 0.5, .momentum = 0.5});
          std::vector<Tensor> model;
          for (size_t i = 0; i < 5; i++) {
            model.push_back(
                {.name = std::to_string(i), .data = std::vector<float>(700 + i * 400, 1)});
            model[i].owner = static_cast<int32_t>(i % ranks.size());
          }
          self.add(model);
          for (int step = 0; step < 3; step++) {
            for (size_t i = 0; i < model.size(); i++)
              model[i].grad.assign(model[i].data.size(), gradient(rank, i, step));
            self.train(model);
          }
          for (size_t i = 0; i < model.size(); i++) {
            const std::vector<float> expected(model[i].data.size(), trained_alone(ranks, i, 3));
            if (ranks.size() == 3) {  // thirds are rounded
              for (const float value : model[i].data) ASSERT_FLOAT_EQ(value, expected[0]) << i;
            } else {
              EXPECT_EQ(model[i].data, expected) << "rank " << rank << ", tensor " << i;
            }
          }
          // Only the last rank of the group receives the values.
          std::vector<float> gathered(700, -1);
          const int32_t to = zero_comm_world(group) - 1;
          EXPECT_OK(zero_state_gather(self.optim(), 0, nullptr, to, gathered.data(), 700));
          EXPECT_EQ(gathered[699], zero_comm_rank(group) == to ? model[0].data[699] : -1);
        });
      }
    }
  }
}

TEST(SubGroup, clips_by_its_own_norm_and_alone_if_it_wants_to) {
  for (const CommKind kind : kCommKinds) {
    in_groups(
        kind, [](int rank) { return rank / 2; },
        [](zero_comm* group, int rank) {
          const float size = rank < 2 ? 1 : 10;
          Rank self(group, {.partition = ZERO_PARTITION_MANUAL});
          std::vector<Tensor> model = {{.name = "a", .data = {0, 0}},
                                       {.name = "b", .data = {0}, .owner = 1}};
          self.add(model);
          model[0].grad = {3 * size, 4 * size};
          model[1].grad = {12 * size};
          for (const double p : {2.0, static_cast<double>(INFINITY)}) {
            self.reduce(model);
            EXPECT_EQ(self.clip(1, p), (std::isinf(p) ? 12 : 13) * size);
            self.step();
          }
          self.reduce(model);
          if (rank < 2) {
            EXPECT_EQ(self.clip(1, 2), 13);
          }
          self.step();
          self.train(model);
        });
  }
}

}  // namespace
}  // namespace zero::test
