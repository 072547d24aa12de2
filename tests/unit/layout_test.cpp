// SPDX-License-Identifier: Apache-2.0
// Who writes what: every parameter once, every owned element of every live slot once, under the
// keys that the format promises.
#include "state/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/model.h"
#include "support/ranks.h"

namespace zero {
namespace {

using namespace test;

/// Look at a trained optimizer on rank 0 of `world`.
void look(int world, const ModelSpec& spec, const std::function<void(const Optimizer&)>& at) {
  run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) -> std::string {
    auto model = world == 1 ? solo_model(spec) : local_model(spec, name, rank, world);
    if (!model || !model->step().ok()) return "no model";
    if (rank == 0) at(model->optim());
    (void)model->state();
    return "";
  });
}

TEST(Layout, every_element_is_written_once_whatever_the_world_and_the_rule) {
  for (const int32_t rule : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                             ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL}) {
    for (const int world : {1, 2, 3, 5}) {
      ModelSpec spec = odd_model();
      spec.partition = rule;
      look(world, spec, [&](const Optimizer& optim) {
        std::map<std::pair<int64_t, int>, std::vector<int>>
            written;  // (parameter, slot): times of each element
        const std::vector<int32_t> writers = param_writers(optim);
        for (int rank = 0; rank < world; rank++) {
          std::vector<StoredTensor> tensors = model_tensors(optim, writers, rank);
          const std::vector<StoredTensor> states = optim_tensors(optim, rank);
          tensors.insert(tensors.end(), states.begin(), states.end());
          for (const StoredTensor& tensor : tensors) {
            auto& times = written[{tensor.part.param, tensor.slot}];
            const auto number = static_cast<size_t>(tensor.part.param);
            const int64_t count = tensor.slot == kBufferItself ? optim.buffers[number].count
                                                               : optim.params[number].count;
            times.resize(static_cast<size_t>(count));
            ASSERT_LE(tensor.part.first + tensor.part.count, count);
            for (int64_t i = 0; i < tensor.part.count; i++)
              times[static_cast<size_t>(tensor.part.first + i)]++;
          }
        }
        for (size_t p = 0; p < optim.params.size(); p++) {
          for (int slot = kParameterItself; slot < 2; slot++) {
            const bool live =
                slot == kParameterItself || (optim.progress[p].live_slots >> slot & 1);
            ASSERT_EQ(written.count({static_cast<int64_t>(p), slot}), live ? 1u : 0u)
                << optim.params[p].name;
            for (const int times : written[{static_cast<int64_t>(p), slot}]) ASSERT_EQ(times, 1);
          }
        }
        for (size_t b = 0; b < optim.buffers.size(); b++) {
          const auto times = written.find({static_cast<int64_t>(b), kBufferItself});
          ASSERT_NE(times, written.end()) << optim.buffers[b].name;
          for (const int once : times->second) ASSERT_EQ(once, 1);
        }
      });
    }
  }
}

TEST(Layout, what_one_rank_owns_is_one_whole_tensor_however_small_the_buckets_are) {
  ModelSpec spec;
  spec.groups = {{{"w", {100, 90}}, {"b", {3}}}};
  spec.bucket_bytes = 4096;
  look(1, spec, [](const Optimizer& optim) {
    const std::vector<StoredTensor> tensors = optim_tensors(optim, 0);
    ASSERT_EQ(tensors.size(), 4u);
    EXPECT_EQ(tensors[2].key, "w.exp_avg");
    EXPECT_EQ(file_header(tensors, {}, 0, 1).tensors[2].shape, (std::vector<int64_t>{100, 90}));
  });
}

TEST(Layout, a_cut_tensor_has_flat_pieces_that_tell_their_start_where_a_rank_has_several) {
  ModelSpec spec;
  spec.groups = {{{"w", {100, 90}}}};
  spec.bucket_bytes = 16'384;  // three buckets, each split over both ranks
  look(2, spec, [](const Optimizer& optim) {
    std::vector<std::string> keys;
    for (const StoredTensor& tensor : optim_tensors(optim, 0)) {
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{tensor.part.count}));
      EXPECT_EQ(tensor.key, text("w.", optim.options.rule->slots[static_cast<size_t>(tensor.slot)],
                                 "@", tensor.part.first));
      keys.push_back(tensor.key);
    }
    EXPECT_GE(keys.size(), 4u);
  });
  spec.bucket_bytes = 1 << 20;
  look(3, spec, [](const Optimizer& optim) {
    const std::vector<StoredTensor> tensors = optim_tensors(optim, 0);
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].key, "w.exp_avg");
    EXPECT_EQ(tensors[1].key, "w.exp_avg_sq");
    EXPECT_EQ(file_header(tensors, {}, 0, 3).tensors[0].shape,
              (std::vector<int64_t>{tensors[0].part.count}));
  });
}

TEST(Layout, parameters_are_spread_by_size) {
  ModelSpec spec;
  spec.groups.emplace_back();
  for (int i = 0; i < 40; i++) spec.groups[0].push_back({text("p", i), {(i * 37) % 23 + 1, 16}});
  look(3, spec, [](const Optimizer& optim) {
    const std::vector<int32_t> writers = param_writers(optim);
    int64_t load[3] = {}, largest = 0;
    for (size_t i = 0; i < writers.size(); i++) {
      load[writers[i]] += optim.params[i].count;
      largest = std::max(largest, optim.params[i].count);
    }
    for (const int64_t one : load) {
      for (const int64_t other : load) EXPECT_LE(one - other, largest);
    }
  });
}

TEST(Layout, every_ranks_header_says_what_it_is) {
  look(2, odd_model(), [](const Optimizer& optim) {
    const Digest id = {1, 2};
    const SafetensorsHeader header = file_header(optim_tensors(optim, 1), id, 1, 2);
    const std::vector<std::pair<std::string, std::string>> expected = {
        {"format", "pt"}, {"zero.format", "1"}, {"zero.rank", "2/2"}, {"zero.save_id", hex(id)}};
    EXPECT_EQ(header.metadata, expected);
  });
}

}  // namespace
}  // namespace zero
