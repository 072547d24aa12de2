// SPDX-License-Identifier: Apache-2.0
// Groups of one optimizer that follow different rules: what they cost, what they may be called, and
// their checkpoints. That their steps are right is tested with those of all trainings.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "own_rules.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/optim.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

constexpr int64_t kCount = 5000;

struct OfGroup {
  const char* rule = nullptr;  // null: that of the optimizer
  Settings settings = {};
};

const std::vector<OfGroup> kMixed = {
    {},
    {"sgd", {{"lr", 0.1}, {"momentum", 0.9}}},
    {"nadam", {{"lr", 0.01}}},
    {nullptr, {{"amsgrad", 1}}},
};

zero_status add_group(zero_optim* optim, const OfGroup& of, const zero_param& param) {
  auto options = initialized<zero_group_options>();
  std::vector<const char*> names;
  std::vector<double> values;
  for (const auto& [name, value] : of.settings) {
    names.push_back(name.c_str());
    values.push_back(value);
  }
  options.optimizer = of.rule;
  options.names = names.data();
  options.values = values.data();
  options.setting_count = names.size();
  return zero_register_params(optim, &options, &param, 1, nullptr);
}

/// One rank's optimizer, AdamW by default, with one parameter in each group.
class Groups : public Optim {
 public:
  explicit Groups(zero_comm* comm, const std::vector<OfGroup>& groups = kMixed,
                  int64_t count = kCount, int32_t optimizer = ZERO_OPTIMIZER_ADAMW)
      : Optim(comm, options_with([&](zero_options& o) { o.optimizer = optimizer; })), size_(count) {
    for (size_t g = 0; g < groups.size(); g++) {
      data_.emplace_back(static_cast<size_t>(count), 1.0f);
      grads_.emplace_back(static_cast<size_t>(count));
      const std::string name = "p" + std::to_string(g);
      EXPECT_OK(add_group(optim(), groups[g],
                          parameter(name.c_str(), size_, data_[g].data(), grads_[g].data())));
    }
  }
  ~Groups() { free(); }

  /// Takes steps with gradients that are the same on every rank, and so in every world.
  void steps(int first, int count) {
    for (int step = first; step < first + count; step++) {
      for (std::vector<float>& grad : grads_)
        for (size_t i = 0; i < grad.size(); i++)
          grad[i] = std::sin(static_cast<float>(i % 97) + static_cast<float>(step));
      EXPECT_OK(Optim::step(ZERO_REDUCE_NONE));
    }
  }
  void add_with(const zero_group_options& options, const char* name) {
    data_.emplace_back(static_cast<size_t>(size_), 1.0f);
    grads_.emplace_back(static_cast<size_t>(size_));
    const zero_param param = parameter(name, size_, data_.back().data(), grads_.back().data());
    EXPECT_OK(zero_register_params(optim(), &options, &param, 1, nullptr));
  }
  const std::vector<std::vector<float>>& data() const { return data_; }

 private:
  const int64_t size_;
  std::vector<std::vector<float>> data_, grads_;
};

/// Subtracts gradients with momentum, and checks that each call has a whole tensor.
OwnRule own_rule() {
  return {.name = "momentum",
          .slots = {"average"},
          .settings = {},
          .whole_tensors = true,
          .update = [](const zero_update& update) {
            if (update.first != 0 || update.count != kCount) return ZERO_ERR_CALLBACK;
            auto* const values = static_cast<float*>(update.values);
            auto* const average = static_cast<float*>(update.slots[0]);
            const auto* const gradient = static_cast<const float*>(update.gradient);
            for (int64_t i = 0; i < update.count; i++) {
              average[i] = 0.5f * average[i] + gradient[i];
              values[i] -= 0.125f * average[i];
            }
            return ZERO_OK;
          }};
}

TEST(GroupRules, a_checkpoint_of_mixed_rules_continues_in_any_world) {
  const Scratch scratch;
  std::vector<std::vector<float>> expected;
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) {
    Groups groups(comm);
    groups.steps(0, 6);
    expected = groups.data();
  });
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int) {
    Groups groups(comm);
    groups.steps(0, 3);
    groups.save(scratch / "saved");
  });
  const std::string manifest = read_file(scratch / "saved/zero.json");
  EXPECT_NE(manifest.find("\"zero_format\":2,"), std::string::npos);
  EXPECT_NE(manifest.find("{\"optimizer\":\"sgd\",\"settings\":{\"lr\""), std::string::npos);
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    Groups groups(comm);
    groups.load(scratch / "saved");
    EXPECT_EQ(groups.setting("momentum", 1), 0.9);
    groups.steps(3, 3);
    EXPECT_EQ(groups.data(), expected);
  });
}

TEST(GroupRules, a_checkpoint_whose_groups_follow_one_rule_has_the_first_format) {
  const Scratch scratch;
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) {
    Groups groups(comm, {{}, {"adamw", {{"amsgrad", 1}}}});
    groups.steps(0, 1);
    groups.save(scratch / "saved");
  });
  EXPECT_NE(read_file(scratch / "saved/zero.json").find("\"zero_format\":1,"), std::string::npos);
}

TEST(GroupRules, the_same_function_of_an_optimizer_and_its_group_is_one_rule) {
  const Scratch scratch;
  const OwnRule rule = own_rule();
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) {
    Declared of_optimizer(rule), of_group(rule);
    auto options = initialized<zero_options>();
    of_optimizer.put_into(options);
    Optim optim(comm, options);
    std::vector<float> data(kCount), grad(kCount, 1.0f);
    auto group = initialized<zero_group_options>();
    group.custom = &of_group.custom();
    const zero_param param = parameter("p", kCount, data.data(), grad.data());
    EXPECT_OK(zero_register_params(optim.optim(), &group, &param, 1, nullptr));
    EXPECT_OK(optim.step());
    optim.save(scratch / "saved");
  });
  EXPECT_NE(read_file(scratch / "saved/zero.json").find("\"zero_format\":1,"), std::string::npos);
}

TEST(GroupRules, a_checkpoint_of_other_rules_is_refused_by_the_group) {
  const Scratch scratch;
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    Groups saved(comm, {{}, {"sgd"}});
    saved.steps(0, 1);
    saved.save(scratch / "saved");
    Groups other(comm, {{}, {}});
    const std::string directory = scratch / "saved";
    EXPECT_TRUE(ends(zero_state_load(other.optim(), directory.c_str(), nullptr),
                     ZERO_ERR_CKPT_MISMATCH,
                     "group 1 follows 'sgd' in the checkpoint, but is registered with adamw"));
  });
}

TEST(GroupRules, a_group_with_your_own_function_has_whole_tensors_beside_split_ones) {
  const Scratch scratch;
  const OwnRule rule = own_rule();
  std::vector<std::vector<float>> expected;
  const auto steps = [&](int world, int first, int count, const std::string& from,
                         const std::string& to) {
    on_ranks(CommKind::local, world, [&](zero_comm* comm, int rank) {
      Groups groups(comm, {{}});
      Declared declared(rule);
      auto options = initialized<zero_group_options>();
      options.custom = &declared.custom();
      groups.add_with(options, "own");
      if (!from.empty()) groups.load(from);
      groups.steps(first, count);
      if (!to.empty()) groups.save(to);
      if (rank == 0) expected = groups.data();
      int split = 0, whole = 0;
      for (int other = 0; other < world; other++) {
        const std::vector<int64_t> owned = groups.owned(other);
        for (size_t i = 0; i < owned.size(); i += 3) (owned[i] == 0 ? split : whole)++;
      }
      EXPECT_GE(split, world);
      EXPECT_EQ(whole, 1);
    });
  };
  steps(1, 0, 6, "", "");
  const auto alone = expected;
  steps(3, 0, 3, "", scratch / "saved");
  const std::string manifest = read_file(scratch / "saved/zero.json");
  EXPECT_NE(manifest.find("{\"optimizer\":\"custom:momentum\",\"slots\":[\"average\"],"),
            std::string::npos);
  steps(2, 3, 3, scratch / "saved", "");
  EXPECT_EQ(expected, alone);
}

/// Returns the state bytes of a large and a small group after a step.
int64_t state_bytes(const OfGroup& small) {
  static constexpr int64_t kLarge = 1 << 20, kSmall = 1024;
  std::vector<float> data(kLarge + kSmall), grad(kLarge + kSmall);
  int64_t bytes = 0;
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) {
    Optim optim(comm);
    optim.add(parameter("large", kLarge, data.data(), grad.data()));
    EXPECT_OK(
        add_group(optim.optim(), small, parameter("small", kSmall, &data[kLarge], &grad[kLarge])));
    EXPECT_OK(optim.step());
    bytes = optim.statistics().state_bytes;
  });
  return bytes;
}

TEST(GroupRules, a_group_with_more_or_less_state_costs_only_its_own) {
  constexpr int64_t kPlain = ((1 << 20) + 1024) * 8;
  EXPECT_EQ(state_bytes({}), kPlain);
  EXPECT_EQ(state_bytes({nullptr, {{"amsgrad", 1}}}), kPlain + 1024 * 4);
  EXPECT_EQ(state_bytes({"sgd"}), kPlain - 1024 * 8);
}

/// Returns the bytes that one of two ranks copied to pack transfers in a step, with two groups in
/// arenas laid out by a plan.
int64_t packed_bytes(zero_comm* comm, int32_t state_dtype, bool plans_groups) {
  const int64_t sizes[] = {5000, 3000};
  const size_t ends[] = {1, 2};
  zero_group_options options[] = {initialized<zero_group_options>(),
                                  initialized<zero_group_options>()};
  options[1].optimizer = "sgd";
  options[0].state_dtype = state_dtype;
  zero_param params[] = {parameter("a", sizes[0], nullptr), parameter("b", sizes[1], nullptr)};
  int64_t offsets[2], grad_offsets[2];
  auto plan = initialized<zero_plan>();
  plan.offsets = offsets;
  plan.grad_offsets = grad_offsets;
  if (plans_groups) {
    plan.groups = options;
    plan.group_ends = ends;
    plan.group_count = 2;
  }
  EXPECT_OK(zero_partition_plan(params, 2, zero_comm_world(comm), nullptr, &plan));
  const Arena data(comm, static_cast<size_t>(plan.arena_bytes));
  const Arena grads(comm, static_cast<size_t>(plan.grad_arena_bytes));
  Optim optim(comm);
  for (size_t i = 0; i < 2; i++) {
    params[i].data = data.floats() + offsets[i] / 4;
    params[i].grad = grads.floats() + grad_offsets[i] / 4;
    params[i].flags = ZERO_PARAM_PADDED;
    EXPECT_OK(zero_register_params(optim.optim(), &options[i], &params[i], 1, nullptr));
  }
  EXPECT_OK(optim.step());
  const zero_statistics found = optim.statistics();
  if (plans_groups && zero_comm_rank(comm) == 0) {
    EXPECT_EQ(found.state_bytes, plan.state_bytes);
  }
  return found.copied_bytes;
}

TEST(GroupRules, a_plan_of_the_groups_lays_them_out_so_that_nothing_is_packed) {
  for (const int32_t dtype : {ZERO_STATE_DTYPE_FULL, ZERO_STATE_DTYPE_BFLOAT16}) {
    on_ranks(CommKind::user, 2, [dtype](zero_comm* comm, int) {
      EXPECT_EQ(packed_bytes(comm, dtype, true), 0);
      EXPECT_GT(packed_bytes(comm, dtype, false), 0);
    });
  }
}

TEST(GroupRules, a_plan_with_groups_that_make_no_sense_is_refused) {
  const int64_t size = 5000;
  const zero_param params[] = {parameter("a", size, nullptr), parameter("b", size, nullptr)};
  zero_group_options options[] = {initialized<zero_group_options>(),
                                  initialized<zero_group_options>()};
  const auto refused = [&](std::vector<size_t> ends, const char* words) {
    auto plan = initialized<zero_plan>();
    plan.groups = options;
    plan.group_ends = ends.empty() ? nullptr : ends.data();
    plan.group_count = 2;
    EXPECT_TRUE(zero::test::ends(zero_partition_plan(params, 2, 2, nullptr, &plan),
                                 ZERO_ERR_ARGUMENT, words));
  };
  refused({}, "the plan has 2 groups, but groups or group_ends is NULL");
  refused({1, 3}, "group_ends does not rise from group to group to 2");
  refused({2, 1}, "group_ends does not rise from group to group to 2");
  options[1].optimizer = "sgdd";
  refused({1, 2}, "there is no optimizer 'sgdd'");
}

TEST(GroupRules, a_group_that_names_a_rule_begins_with_the_defaults_of_that_rule) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    Optim optim(comm, initialized<zero_options>(), {{"lr", 0.5}, {"beta1", 0.25}});
    float data[3] = {}, more[3] = {};
    const int64_t size = 3;
    EXPECT_OK(add_group(optim.optim(), {}, parameter("own", size, data)));
    EXPECT_OK(add_group(optim.optim(), {"lion"}, parameter("lion", size, more)));
    EXPECT_EQ(optim.setting("lr", 0), 0.5);
    EXPECT_EQ(optim.setting("lr", 1), 1e-4);
    EXPECT_EQ(optim.setting("beta1", 1), 0.9);
  });
}

TEST(GroupRules, a_setting_of_all_groups_reaches_those_whose_rule_has_it) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    Groups groups(comm);
    groups.set("lr", 0.25);
    groups.set("momentum", 0.5);
    for (int32_t group = 0; group < 4; group++) EXPECT_EQ(groups.setting("lr", group), 0.25);
    EXPECT_EQ(groups.setting("momentum", 1), 0.5);
    double value = 0;
    EXPECT_TRUE(ends(zero_group_get(groups.optim(), 0, "momentum", &value), ZERO_ERR_ARGUMENT,
                     "adamw has no setting 'momentum'"));
    EXPECT_TRUE(ends(zero_group_get(groups.optim(), ZERO_ALL_GROUPS, "momentum", &value),
                     ZERO_ERR_ARGUMENT, "adamw has no setting 'momentum'"));
    EXPECT_TRUE(ends(zero_group_set(groups.optim(), ZERO_ALL_GROUPS, "alpha", 0.5),
                     ZERO_ERR_ARGUMENT, "adamw has no setting 'alpha'"));
    // Out of the range of one of the rules, so no group changes.
    EXPECT_TRUE(ends(zero_group_set(groups.optim(), ZERO_ALL_GROUPS, "weight_decay", -1),
                     ZERO_ERR_ARGUMENT, "'weight_decay' is -1"));
  });
}

TEST(GroupRules, a_rule_that_a_group_cannot_follow_is_refused_and_nothing_is_added) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    Groups groups(comm, {{}});
    float data[3] = {};
    const int64_t size = 3;
    const zero_param param = parameter("more", size, data);
    EXPECT_TRUE(ends(add_group(groups.optim(), {"adamv"}, param), ZERO_ERR_ARGUMENT,
                     "there is no optimizer 'adamv'; there are adamw, adam, sgd"));
    EXPECT_TRUE(ends(add_group(groups.optim(), {"sgd", {{"beta1", 0.5}}}, param), ZERO_ERR_ARGUMENT,
                     "sgd has no setting 'beta1'"));
    auto rate = param;
    rate.flags = ZERO_PARAM_WEIGHT_DECAY;
    rate.weight_decay = 0.1;
    EXPECT_TRUE(ends(add_group(groups.optim(), {"rprop"}, rate), ZERO_ERR_ARGUMENT,
                     "sets weight_decay, which rprop does not have"));
    const OwnRule rule = own_rule();
    Declared declared(rule);
    auto both = initialized<zero_group_options>();
    both.optimizer = "sgd";
    both.custom = &declared.custom();
    EXPECT_TRUE(ends(zero_register_params(groups.optim(), &both, &param, 1, nullptr),
                     ZERO_ERR_ARGUMENT, "both optimizer, 'sgd', and custom of the group are set"));
    int64_t number = -1;
    EXPECT_EQ(zero_param_index(groups.optim(), "more", &number), ZERO_ERR_ARGUMENT);
    groups.steps(0, 1);
  });
}

}  // namespace
}  // namespace zero::test
