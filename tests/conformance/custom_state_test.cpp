// SPDX-License-Identifier: Apache-2.0
// The state that a custom rule declares: its names, its owners, and checkpoints of it.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "own_model.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

TEST(OwnRule, its_state_is_called_by_its_names_and_can_be_set) {
  const OwnRule rule = own_adamw();
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    OwnModel model(comm, rule, {});
    model.seal();
    const auto names = [&] {
      const std::vector<const char*> all = model.state_names(2);
      return std::vector<std::string>(all.begin(), all.end());
    };
    EXPECT_EQ(names(), std::vector<std::string>{"master"});  // before the first step
    ASSERT_OK(model.step());
    EXPECT_EQ(names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq", "master"}));

    std::vector<float> set(3300);
    for (size_t i = 0; i < set.size(); i++) set[i] = static_cast<float>(i) * 0.5f;
    ASSERT_OK(zero_state_set(model.optim(), 0, "exp_avg", 0, 3300, set.data()));
    EXPECT_EQ(model.gathered(0, "exp_avg", 3300), set);
    EXPECT_TRUE(ends(zero_state_gather(model.optim(), 0, "sum", 0, set.data(), 3300),
                     ZERO_ERR_ARGUMENT, "custom:my-adamw has no state 'sum'"));
  });
}

/// AdamW with the maximum number of slots.
OwnRule full_of_state() {
  OwnRule rule = own_adamw();
  for (char letter = 'a'; rule.slots.size() < 8; letter++) rule.slots.emplace_back(1, letter);
  rule.update = [adamw = rule.update](const zero_update& u) {
    for (size_t slot = 2; slot < u.slot_count; slot++) {
      for (int64_t i = 0; i < u.count; i++) {
        if (u.dtype == ZERO_FLOAT64) {
          static_cast<double*>(u.slots[slot])[i] += static_cast<double>(slot);
        } else {
          static_cast<float*>(u.slots[slot])[i] += static_cast<float>(slot);
        }
      }
    }
    return adamw(u);
  };
  return rule;
}

/// Other ranks load the state that three ranks saved, and continue as if nothing had stopped.
TEST(OwnRule, its_state_is_saved_and_loaded_by_any_number_of_ranks_and_any_partition) {
  const OwnRule rule = full_of_state();
  const Scratch scratch;
  std::string saved, trained_on;
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
    OwnModel model(comm, rule, {});
    model.steps(4);
    const std::string state = model.state();
    if (rank == 0) saved = state;
    model.save(scratch / "three");
    model.steps(3);
    const std::string end = model.state();
    if (rank == 0) trained_on = end;
  });
  const std::string manifest = read_file(scratch / "three/zero.json");
  EXPECT_TRUE(contains(manifest, R"("name":"custom:my-adamw")")) << manifest.substr(0, 900);
  EXPECT_TRUE(contains(manifest, R"("slots":["exp_avg","exp_avg_sq","a","b","c","d","e","f"])"))
      << manifest.substr(0, 900);
  for (const int32_t partition : kPartitions) {
    on_each_comm(2, [&](zero_comm* comm, int) {
      OwnModel model(comm, rule,
                     {.partition = partition, .bucket_bytes = 4096, .master = partition % 2});
      model.load(scratch / "three");
      EXPECT_EQ(model.state(), saved);
      model.go_on_from(4);
      model.steps(3);
      EXPECT_EQ(model.state(), trained_on);
    });
  }
}

TEST(OwnRule, a_checkpoint_of_another_rule_or_of_other_state_is_refused_with_every_difference) {
  const Scratch scratch;
  const std::string path = scratch / "saved";
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    const OwnRule rule = own_adamw();
    OwnModel model(comm, rule, {});
    ASSERT_OK(model.step());
    model.save(path);
  });
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    OwnRule rule = own_adamw();
    rule.slots = {"exp_avg", "trace", "hessian"};
    {
      OwnModel model(comm, rule, {});
      EXPECT_EQ(zero_state_load(model.optim(), path.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH);
      EXPECT_TRUE(
          says("the checkpoint's 'custom:my-adamw' has state 'exp_avg_sq', which is not "
               "declared"));
      EXPECT_TRUE(
          says("state 'trace' is declared, but the checkpoint's 'custom:my-adamw' does not "
               "have it"));
      EXPECT_TRUE(says("state 'hessian' is declared"));
    }
    rule = own_adamw();
    rule.name = "adamw";
    OwnModel model(comm, rule, {});
    EXPECT_TRUE(ends(
        zero_state_load(model.optim(), path.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH,
        "the checkpoint is for optimizer 'custom:my-adamw', but this optimizer is custom:adamw"));
  });
}

/// A manual partition moves each parameter to the next rank each time. Otherwise "matrix", which
/// freezes, is dealt last.
TEST(OwnRule, its_state_moves_whole_to_other_owners) {
  const OwnRule rule = full_of_state();
  const auto deal_out = [](OwnModel& model, int32_t partition, int32_t deal) {
    std::vector<int32_t> owners;
    for (int32_t i = 0; i < static_cast<int32_t>(OwnModel::kCount); i++)
      owners.push_back((i + deal + 1) % 3);
    if (partition != ZERO_PARTITION_MANUAL) owners.clear();
    return zero_rebalance(model.optim(), owners.empty() ? nullptr : owners.data(), owners.size(),
                          nullptr);
  };
  const auto train = [&](zero_comm* comm, int rank, int32_t partition, bool moves) {
    OwnModel model(comm, rule, {.partition = partition});
    for (int32_t deal = 0; deal < 3; deal++) {
      for (const bool trains : {true, false}) {
        model.freeze(0, !trains);
        EXPECT_OK(model.step());
      }
      if (!moves) continue;
      const std::string before = model.state();
      const std::vector<int64_t> held = model.owned(rank);
      EXPECT_OK(deal_out(model, partition, deal));
      EXPECT_EQ(model.state(), before);
      if (partition == ZERO_PARTITION_MANUAL || deal == 0) {
        EXPECT_NE(model.owned(rank), held);
      }
    }
    return model.state();
  };
  for (const int32_t partition : {ZERO_PARTITION_GREEDY, ZERO_PARTITION_MANUAL}) {
    for (const CommKind kind : kCommKinds) {
      std::array<std::string, 2> trained;
      for (const bool moves : {false, true}) {
        trained[moves ? 1 : 0] = results_of(Meeting(kind, 3), [&](zero_comm* comm, int rank) {
          return train(comm, rank, partition, moves);
        })[0];
      }
      EXPECT_EQ(trained[0], trained[1]);
    }
  }
}

TEST(OwnRule, a_plan_counts_its_state) {
  const OwnRule rule = own_adamw();
  const Declared declared(rule);
  auto options = initialized<zero_options>();
  declared.put_into(options);
  const int64_t size = 4096;
  const zero_param param = parameter(nullptr, size, nullptr);
  auto plan = initialized<zero_plan>();
  ASSERT_OK(zero_partition_plan(&param, 1, 2, &options, &plan));
  EXPECT_EQ(plan.state_bytes, 2048 * 2 * 4);
}

}  // namespace
}  // namespace zero::test
