// SPDX-License-Identifier: Apache-2.0
// Which rank writes what: every parameter once, and every owned element of every live slot once,
// with the keys that the format documents.
#include "state/layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "support/model.h"
#include "support/ranks.h"

namespace zero {
namespace {

using namespace test;

/// Calls `at` with a trained optimizer on rank 0 of `world`.
void look(int world, const ModelSpec& spec, const std::function<void(const Optimizer&)>& at) {
  run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) -> std::string {
    auto model = world == 1 ? solo_model(spec) : local_model(spec, name, rank, world);
    if (!model || !model->step().ok()) return "no model";
    if (rank == 0) at(model->optim());
    (void)model->state();
    return "";
  });
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
  spec.bucket_bytes = 16'384;  // three buckets, each split between both ranks
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
    const std::vector<int32_t> writers = param_writers(optim).value();
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
