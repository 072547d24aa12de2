// SPDX-License-Identifier: Apache-2.0
// launch::Prepare, ::Decide and ::Advance against rules, records and loss scales on the host.
#include "kernels/launch_state.h"

#include "launch_cases.h"
#include "optim/options.h"
#include "step/norm.h"
#include "support/emulated_launches.h"
#include "zero.h"

namespace zero {
namespace {

using State = StepState;
using test::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepContext context_of(const ParamProgress& of, const double* settings, int64_t step,
                       double factor) {
  return {settings, step, of.live_slots, factor, of.product};
}

void expect_same(const std::vector<ParamProgress>& progress,
                 const std::vector<ParamProgress>& expected) {
  for (size_t i = 0; i < progress.size(); i++) {
    ASSERT_EQ(progress[i].step, expected[i].step) << i;
    ASSERT_EQ(progress[i].live_slots, expected[i].live_slots) << i;
    ASSERT_EQ(progress[i].product, expected[i].product) << i;
  }
}

class LaunchState : public ::testing::TestWithParam<int32_t> {};

TEST_P(LaunchState, scalars_and_progress_of_every_step_are_the_rules_own) {
  constexpr size_t kParams = 1'700, kClasses = 1'600;  // more than the threads of all blocks
  constexpr size_t kGroups = 3;
  Random random(static_cast<uint64_t>(21 + GetParam()));
  const Rule& rule = *find_rule(GetParam());
  std::vector<double> settings;  // one row per class; the first are those of groups
  const std::vector<int32_t> rules(std::max(kGroups, kClasses), GetParam());
  std::vector<uint32_t> used;
  for (size_t group = 0; group < kGroups; group++) {
    const std::vector<double> more = test::random_settings(random, rule);
    settings.insert(settings.end(), more.begin(), more.end());
    used.push_back(rule.slots_used(more));
  }
  for (size_t i = 0; settings.size() < kClasses * kMaxSettings; i++)
    settings.push_back(settings[i]);
  std::vector<ParamProgress> progress(kParams, {0, 0, 0, 1}), expected = progress;
  std::vector<int32_t> groups;
  for (size_t i = 0; i < kParams; i++) groups.push_back(static_cast<int32_t>(random() % kGroups));
  State state{};
  for (int step = 0; step < 40; step++) {
    std::vector<uint8_t> present;
    for (size_t i = 0; i < kParams; i++) present.push_back(random() % 3 != 0);
    state.factor = 1.0 / (1 + step);
    state.skip = step % 7 == 6;
    std::vector<Scalars> scalars(kClasses);
    std::vector<int64_t> params;
    for (size_t cls = 0; cls < kClasses; cls++)
      params.push_back(static_cast<int64_t>(random() % kParams));
    test::emulate(launch::Prepare{.optimizers = rules.data(),
                                  .count = kClasses,
                                  .settings = settings.data(),
                                  .params = params.data(),
                                  .progress = progress.data(),
                                  .state = &state,
                                  .out = scalars.data()});
    for (size_t cls = 0; cls < kClasses; cls++) {
      const ParamProgress& of = expected[static_cast<size_t>(params[cls])];
      const Scalars own = rule.prepare(
          context_of(of, settings.data() + cls * kMaxSettings, of.step + 1, state.factor));
      ASSERT_EQ(std::memcmp(&scalars[cls].factor, &own.factor, sizeof own.factor), 0) << cls;
      ASSERT_EQ(std::memcmp(scalars[cls].value, own.value, sizeof own.value), 0) << cls;
      ASSERT_EQ(std::memcmp(scalars[cls].flag, own.flag, sizeof own.flag), 0) << cls;
    }

    test::emulate(launch::Advance{.optimizers = rules.data(),
                                  .count = kParams,
                                  .present = step % 5 == 0 ? nullptr : present.data(),
                                  .groups = groups.data(),
                                  .used = used.data(),
                                  .settings = settings.data(),
                                  .progress = progress.data(),
                                  .state = &state});
    for (size_t i = 0; i < kParams && state.skip == 0; i++) {
      if (step % 5 != 0 && present[i] == 0) continue;
      const auto group = static_cast<size_t>(groups[i]);
      expected[i].step++;
      if (rule.next_product != nullptr)
        expected[i].product = rule.next_product(
            context_of(expected[i], settings.data() + group * kMaxSettings, expected[i].step, 1));
      expected[i].live_slots |= used[group];
    }
    expect_same(progress, expected);
  }
  EXPECT_EQ(state.skipped, 5);
  EXPECT_EQ(state.steps, 35);
}

INSTANTIATE_TEST_SUITE_P(, LaunchState, ::testing::Range(0, kRuleCount),
                         [](const auto& rule) { return find_rule(rule.param)->name; });

// ---- Values in other memory

TEST(LaunchFetch, takes_every_value_times_its_factor) {
  constexpr size_t kCount = 2'000;
  std::vector<float> singles(kCount);
  std::vector<double> doubles(kCount), settings(2 * kCount, -1);
  std::vector<launch::Given> given;
  for (size_t i = 0; i < kCount; i++) {
    singles[i] = static_cast<float>(i) / 7;
    doubles[i] = static_cast<double>(i) / 3;
    given.push_back({&singles[i], &settings[2 * i], 2, DType::f32, Setting::positive_or_zero});
    given.push_back({&doubles[i], &settings[2 * i + 1], -1, DType::f64, Setting::positive_or_zero});
  }
  State state{};
  const auto fetch = [&] {
    test::emulate(launch::Fetch{
        .count = static_cast<uint32_t>(given.size()), .given = given.data(), .state = &state});
  };
  fetch();
  for (size_t i = 0; i < kCount; i++) {
    ASSERT_EQ(settings[2 * i], 2 * static_cast<double>(singles[i])) << i;
    ASSERT_EQ(settings[2 * i + 1], -doubles[i]) << i;
  }
  EXPECT_EQ(state.refusal, Refusal::none);
  singles[1'900] = doubles[3] = -1;  // two threads refuse
  fetch();
  EXPECT_EQ(state.refusal, Refusal::setting);
}

// ---- Decisions

/// Returns records of ranks with these sums of squares and counts.
std::vector<NormSums> records_of(const std::vector<double>& sums,
                                 std::vector<uint64_t> nonfinite = {}) {
  nonfinite.resize(sums.size());
  std::vector<NormSums> records;
  for (size_t i = 0; i < sums.size(); i++) {
    NormSums& record = records.emplace_back();
    record.sum.add(sums[i]);
    record.max = sums[i];
    record.nonfinite = nonfinite[i];
  }
  return records;
}

State state_with_scale(double scale) {
  State state{};
  state.loss_scale = scale;
  state.skip = 1;  // from an earlier step
  state.refusal = Refusal::nonfinite;
  state.factor = state.clip_factor = 77;
  state.nonfinite = 5;
  return state;
}

void decide(State& state, const std::vector<NormSums>& records, launch::Decide how) {
  how.world = static_cast<uint32_t>(records.size());
  how.records = records.empty() ? nullptr : records.data();
  how.state = &state;
  test::emulate(how);
}

TEST(LaunchDecide, norms_are_those_of_all_records) {
  Random random(31);
  for (const double p : {1.0, 2.0, kInfinity}) {
    for (const test::Kind kind : test::kKinds) {
      test::Elements drawn(random, DType::f64, 5, 0, kind, true);
      const std::vector<double> sums(drawn.as<double>(), drawn.as<double>() + drawn.count());
      ExactSum total;
      double largest = 0;
      for (const double sum : sums) {
        total.add(sum);
        largest = std::isnan(largest) || sum < largest ? largest : sum;
      }
      State state = state_with_scale(4);
      decide(state, records_of(sums), {.p = p, .factor = 0.5});
      const double sum = total.value();
      const double expected = p == 1 ? sum : p == 2 ? std::sqrt(sum) : largest;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(state.raw_norm));
      } else {
        EXPECT_EQ(state.raw_norm, expected);
        EXPECT_EQ(state.grad_norm, expected * 0.125);
      }
      EXPECT_EQ(state.factor, 0.125);
      EXPECT_EQ(state.clip_factor, 1);
    }
  }
}

// ---- The state after a step

TEST(LaunchAdvance, what_a_step_found_stays_when_the_next_one_is_refused) {
  State state{};
  state.nonfinite = 5;
  state.skip = 1;
  state.grad_norm = 2;
  state.clip_factor = 0.5;
  test::emulate(launch::Advance{.state = &state});
  state.nonfinite = 7;
  state.refusal = Refusal::nonfinite;
  state.grad_norm = 3;
  state.clip_factor = 1;
  test::emulate(launch::Advance{.state = &state});
  EXPECT_EQ(state.last_nonfinite, 5u);
  EXPECT_EQ(state.all_nonfinite, 5u);
  EXPECT_EQ(state.last_norm, 2);
  EXPECT_EQ(state.last_clip_factor, 0.5);
  EXPECT_EQ(state.skipped, 1);
}

}  // namespace
}  // namespace zero
