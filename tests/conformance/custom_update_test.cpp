// SPDX-License-Identifier: Apache-2.0
// What a custom update function receives, what it may do, and when it is called.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "own_model.h"
#include "support/optim.h"

namespace zero::test {
namespace {

/// Declares two settings, one of them with the name of a built-in setting.
OwnRule looking_rule(std::function<zero_status(const zero_update&)> update, bool whole = false) {
  return {.name = "look",
          .slots = {"a", "b"},
          .settings = {{"lr", 0.5}, {"own", -3}},
          .whole_tensors = whole,
          .update = std::move(update)};
}

/// Returns element `i` of an array of an update. The update has the type.
double element(const zero_update& u, const void* array, int64_t i) {
  return u.dtype == ZERO_FLOAT64 ? static_cast<const double*>(array)[i]
                                 : static_cast<double>(static_cast<const float*>(array)[i]);
}
void put(const zero_update& u, void* array, int64_t i, double value) {
  if (u.dtype == ZERO_FLOAT64) {
    static_cast<double*>(array)[i] = value;
  } else {
    static_cast<float*>(array)[i] = static_cast<float>(value);
  }
}

void expect_range(const zero_update& u, bool whole) {
  const auto param = static_cast<size_t>(u.param);
  EXPECT_EQ(u.struct_size, sizeof u);
  EXPECT_EQ(std::vector<int64_t>(u.shape, u.shape + u.ndim), OwnModel::kShapes[param]);
  EXPECT_STREQ(u.name, (std::array{"matrix", "wide", "half", "scalar", "late"}[param]));
  EXPECT_EQ(u.dtype, param == 1 ? ZERO_FLOAT64 : ZERO_FLOAT32);
  EXPECT_GE(u.count, 1);
  EXPECT_GE(u.first, 0);
  EXPECT_LE(u.first + u.count, OwnModel::elements(param));
  if (whole) {
    EXPECT_EQ(u.count, OwnModel::elements(param));
  }
  EXPECT_EQ(u.slot_count, 2u);
  for (const void* array : {u.values, u.gradient, u.slots[0], u.slots[1]})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array) % 64, 0u);
  EXPECT_STREQ(u.message, "");
  EXPECT_GE(u.message_bytes, 256u);
}

void expect_settings(const zero_update& u) {
  EXPECT_EQ(u.lr, u.param == 1 ? 0.35 : 0.7);
  EXPECT_EQ(u.weight_decay, u.param == 1 ? 0.25 : 0.0);
  EXPECT_EQ(u.setting_count, 3u);
  EXPECT_EQ(setting_of(u, "own"), -3);
  EXPECT_EQ(setting_of(u, "lr"), u.lr);
  EXPECT_EQ(setting_of(u, "weight_decay"), u.weight_decay);
}

/// Checks the gradient of the range as the caller passed it, and the slots of the previous step.
void expect_contents(const zero_update& u, int step) {
  const auto param = static_cast<size_t>(u.param);
  for (int64_t i = 0; i < u.count; i++) {
    const auto number = static_cast<size_t>(u.first + i);
    const double wave =
        static_cast<double>(number * 3 + param * 11 + static_cast<size_t>(step - 1));
    EXPECT_EQ(element(u, u.gradient, i), rounded(OwnModel::kDtypes[param], std::cos(wave)));
    const double mark = 1 + static_cast<double>(number);
    EXPECT_EQ(element(u, u.slots[1], i), static_cast<double>(u.step - 1) * mark);
    put(u, u.slots[1], i, static_cast<double>(u.step) * mark);
  }
}

/// Returns the number of elements that a rank owns, without "late" while that has no gradient.
int64_t owned_elements(const Optim& optim, int rank, bool late) {
  const std::vector<int64_t> ranges = optim.owned(rank);
  int64_t owned = 0;
  for (size_t i = 0; i < ranges.size(); i += 3) owned += ranges[i] < 4 || late ? ranges[i + 2] : 0;
  return owned;
}

void look(zero_comm* comm, int rank, bool whole) {
  int step = 0;
  std::set<int64_t> seen;
  const OwnRule rule = looking_rule(
      [&](const zero_update& u) {
        expect_range(u, whole);
        expect_settings(u);
        expect_contents(u, step);
        EXPECT_EQ(u.step, u.param == 4 ? step - 2 : step);
        for (int64_t i = 0; i < u.count; i++)
          EXPECT_TRUE(seen.insert(u.param << 32 | (u.first + i)).second) << "twice";
        return ZERO_OK;
      },
      whole);
  OwnModel model(comm, rule, {.partition = whole ? ZERO_PARTITION_GREEDY : ZERO_PARTITION_EVEN});
  model.set("lr", 0.7);
  for (step = 1; step <= 4; step++) {
    seen.clear();
    ASSERT_OK(model.step());
    EXPECT_EQ(static_cast<int64_t>(seen.size()), owned_elements(model, rank, step > 2));
  }
}

TEST(OwnRule, the_function_is_told_where_its_range_is_and_what_to_do_there) {
  for (const bool whole : {false, true}) {
    for (int world = 1; world <= 3; world++)
      on_ranks(CommKind::local, world, [&](zero_comm* comm, int rank) { look(comm, rank, whole); });
  }
}

/// Adds at run time, with the rounding mode of the thread.
float added(float a, float b) {
  volatile float one = a, other = b;
  return one + other;
}

/// The function leaves another rounding mode after every range. The next ranges and the caller keep
/// their own.
TEST(OwnRule, what_it_does_to_rounding_ends_with_its_call) {
  std::array<std::string, 2> states;
  for (const bool changes : {false, true}) {
    states[changes ? 1 : 0] = results_of(Meeting(CommKind::local, 2), [&](zero_comm* comm, int) {
      OwnRule rule = own_adamw();
      rule.update = [adamw = rule.update, changes](const zero_update& u) -> zero_status {
        const zero_status status = adamw(u);
        if (changes) std::fesetround(FE_UPWARD);
        return status;
      };
      OwnModel model(comm, rule, {});
      model.steps(3);
      EXPECT_EQ(added(1, 0x1p-30f), 1);
      return model.state();
    })[0];
  }
  EXPECT_EQ(states[0], states[1]);
}

TEST(OwnRule, its_values_are_the_exact_masters) {
  // bf16 loses these steps. Master weights do not, whether they are whole or remainders.
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER}) {
    on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
      std::map<int64_t, float> values;
      const OwnRule rule = looking_rule([&](const zero_update& u) {
        if (u.param != 2) return ZERO_OK;
        for (int64_t i = 0; i < u.count; i++) {
          float& value = static_cast<float*>(u.values)[i];
          const auto [known, added] = values.emplace(u.first + i, value);
          EXPECT_EQ(value, known->second);
          known->second = value = value + 0x1p-16f;
        }
        return ZERO_OK;
      });
      OwnModel model(comm, rule, {.master = master});
      model.steps(5);
      EXPECT_FALSE(values.empty());
    });
  }
}

TEST(OwnRule, a_function_may_ask_and_its_other_calls_are_busy) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    zero_optim* optim = nullptr;
    int calls = 0;
    OwnRule rule = own_adamw();
    rule.update = [&](const zero_update& u) -> zero_status {
      calls++;
      double value = 0;
      EXPECT_OK(zero_group_get(optim, 0, "beta1", &value));
      EXPECT_EQ(value, 0.9);
      EXPECT_OK(zero_group_get(optim, ZERO_ALL_GROUPS, "loss_scale", &value));
      int64_t index = -1;
      EXPECT_OK(zero_param_index(optim, u.name, &index));
      EXPECT_EQ(index, u.param);
      size_t count = 0;
      EXPECT_OK(zero_owned_ranges(optim, 0, nullptr, 0, &count));
      auto statistics = initialized<zero_statistics>();
      EXPECT_OK(zero_stats(optim, &statistics));
      EXPECT_GT(statistics.staging_bytes, 0);
      auto result = initialized<zero_result>();
      EXPECT_OK(zero_step_result(optim, &result));

      EXPECT_TRUE(ends(zero_group_set(optim, 0, "lr", 1), ZERO_ERR_BUSY,
                       "this optimizer is still inside the call that invoked this callback"));
      EXPECT_EQ(zero_step(optim, nullptr), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_drop_grads(optim), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_grad_ready(optim, 0, nullptr, nullptr), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_state_save(optim, "nowhere", nullptr), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_state_get(optim, u.param, nullptr, u.first, 1, &value), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_free(optim), ZERO_ERR_BUSY);
      EXPECT_EQ(zero_comm_barrier(comm), ZERO_ERR_BUSY);
      return ZERO_OK;
    };
    OwnModel model(comm, rule, {});
    optim = model.optim();
    ASSERT_OK(model.step());
    EXPECT_GT(calls, 0);
    zero_comm* other = solo();  // every call is allowed on another comm
    rule.update = [&](const zero_update&) -> zero_status { return zero_comm_barrier(other); };
    EXPECT_OK(model.step());
    zero_comm_free(other);
  });
}

TEST(OwnRule, what_it_stores_is_its_own_business) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    OwnRule rule = own_adamw();
    rule.update = [](const zero_update& u) -> zero_status {
      if (u.param == 3) *static_cast<float*>(u.values) = std::numeric_limits<float>::quiet_NaN();
      return ZERO_OK;
    };
    OwnModel model(comm, rule, {});
    ASSERT_OK(model.step());
    EXPECT_TRUE(std::isnan(model.gathered(3, nullptr, 1)[0]));
  });
}

TEST(OwnRule, a_step_that_is_skipped_calls_no_function) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
    int calls = 0;
    OwnRule rule = own_adamw();
    rule.update = [&](const zero_update&) -> zero_status { return calls++, ZERO_OK; };
    const Declared declared(rule);
    auto options = initialized<zero_options>();
    declared.put_into(options);
    options.nonfinite = ZERO_NONFINITE_SKIP;
    static constexpr int64_t kSize = 2;
    float data[2] = {1, 2}, grad[2] = {0, rank == 1 ? INFINITY : 0};
    Optim optim(comm, options);
    optim.add(parameter("w", kSize, data, grad));
    EXPECT_EQ(optim.step(), ZERO_SKIPPED);
    EXPECT_EQ(calls, 0);
  });
}

}  // namespace
}  // namespace zero::test
