// SPDX-License-Identifier: Apache-2.0
// Groups whose state is stored in bf16: that results are the same in any world and on devices, what
// the state costs, how close it stays to full state, and its checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "equivalence.h"
#include "kernels/narrow_element.h"
#include "own_rules.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/optim.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

/// All ranks pass the same reduced gradients, so that all worlds take the same steps.
Training of_world(const Optimizer& rule, int world) {
  Training run = base(world);
  run.seed = 3;
  run.optimizer = rule.number;
  run.settings = rule.settings;
  run.state_dtype = ZERO_STATE_DTYPE_BFLOAT16;
  run.dtypes = {{ZERO_FLOAT32, ZERO_FLOAT32}, {ZERO_BFLOAT16, ZERO_BFLOAT16}, {ZERO_FLOAT16}};
  run.reduced = true;
  run.toggled = true;
  run.steps = 8;
  return run;
}

void expect_same(const Outcome& one, const Outcome& other, const std::string& what) {
  ASSERT_EQ(one.error, "") << what;
  ASSERT_EQ(other.error, "") << what;
  ASSERT_FALSE(one.params.empty());
  EXPECT_TRUE(one.params == other.params) << what;
}

class StateDtype : public ::testing::TestWithParam<size_t> {};

TEST_P(StateDtype, any_world_ends_with_the_same_bits) {
  const Optimizer& rule = kOptimizers[GetParam()];
  Training alone = of_world(rule, 1);
  alone.keeps_state = true;
  const Outcome expected = run(alone)[0];
  int turn = static_cast<int>(GetParam());
  for (const int world : {1, 2, 3, 4}) {
    Training training = of_world(rule, world);
    training.keeps_state = true;
    training.partition = kPartitions[++turn % 4];
    training.where = static_cast<Where>(turn % 3);
    training.padded = training.where != Where::foreign && turn % 2 == 0;
    training.threads = 1 + turn % 2 * 2;
    training.bucket_bytes = turn % 2 == 0 ? 8192 : 4096;
    if (turn % 3 == 0) training.deals = {0, 3, 4};
    if (world == 4 && training.where == Where::foreign) training.instances = 2;
    const CommKind kind = turn % 2 == 0 ? CommKind::local : CommKind::user;
    for (const Outcome& rank : run(training, kind))
      expect_same(rank, expected, text(rule.name, ", world ", world));
  }
}

TEST_P(StateDtype, devices_end_with_the_bits_of_the_host) {
  const Optimizer& rule = kOptimizers[GetParam()];
  if (takes_whole_tensors(rule.number)) return;  // not on devices
  const Outcome expected = run(of_world(rule, 1))[0];
  for (const CommKind kind :
       {CommKind::device, CommKind::gates, CommKind::hosts, CommKind::staged}) {
    const int world = kind == CommKind::device ? 1 : 2;
    for (const Outcome& rank : run(of_world(rule, world), kind))
      expect_same(rank, expected, text(rule.name, ", world ", world));
  }
}

INSTANTIATE_TEST_SUITE_P(, StateDtype, ::testing::Range(size_t{0}, kOptimizers.size()));

// ---- Its size, and how close it stays to full state.

zero_group_options with_state(int32_t dtype) {
  auto options = initialized<zero_group_options>();
  options.state_dtype = dtype;
  return options;
}

/// One rank's optimizer with one parameter, and state in bf16 or full.
class OneParam : public Optim {
 public:
  OneParam(zero_comm* comm, int32_t dtype, int64_t count, const Settings& settings = {})
      : Optim(comm, initialized<zero_options>(), settings),
        count_(count),
        data_(static_cast<size_t>(count), 1.0f),
        grad_(static_cast<size_t>(count)) {
    const zero_group_options options = with_state(dtype);
    const zero_param param = parameter("p", count_, data_.data(), grad_.data());
    EXPECT_OK(zero_register_params(optim(), &options, &param, 1, nullptr));
  }
  ~OneParam() { free(); }

  void step_with_all(float gradient) {
    std::ranges::fill(grad_, gradient);
    EXPECT_OK(step());
  }
  void steps(int first, int count) {
    for (int step = first; step < first + count; step++) {
      for (size_t i = 0; i < grad_.size(); i++)
        grad_[i] = std::sin(static_cast<float>(i % 97) + static_cast<float>(step));
      EXPECT_OK(Optim::step(ZERO_REDUCE_NONE));
    }
  }
  std::vector<float> state(const char* name) const {
    std::vector<float> values(data_.size());
    EXPECT_OK(zero_state_get(optim(), 0, name, 0, count_, values.data()));
    return values;
  }
  const std::vector<float>& data() const { return data_; }

 private:
  const int64_t count_;
  std::vector<float> data_, grad_;
};

TEST(StateInBf16, state_has_half_the_bytes) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    int64_t bytes[2] = {};
    for (const int32_t dtype : {ZERO_STATE_DTYPE_FULL, ZERO_STATE_DTYPE_BFLOAT16}) {
      OneParam optim(comm, dtype, 1 << 16);
      optim.steps(0, 1);
      bytes[dtype] = optim.statistics().state_bytes;
    }
    EXPECT_EQ(bytes[0], (1 << 16) * 8);
    EXPECT_EQ(bytes[1], (1 << 16) * 4);
  });
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

TEST(StateInBf16, a_second_moment_falls_after_a_spike_as_full_state_does) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    OneParam full(comm, ZERO_STATE_DTYPE_FULL, 4096), half(comm, ZERO_STATE_DTYPE_BFLOAT16, 4096);
    for (OneParam* const optim : {&full, &half}) {
      optim->step_with_all(10);
      for (int step = 0; step < 2000; step++) optim->step_with_all(0.001f);
    }
    const double expected = mean_of(full.state("exp_avg_sq"));
    EXPECT_LT(expected, 0.1 * 0.14);  // (1 - beta2) * 10^2 * 0.999^2000
    EXPECT_NEAR(mean_of(half.state("exp_avg_sq")), expected, 0.01 * expected);
  });
}

// ---- Checkpoints and single tensors.

TEST(StateInBf16, a_checkpoint_continues_in_any_world) {
  const Scratch scratch;
  std::vector<float> expected;
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) {
    OneParam optim(comm, ZERO_STATE_DTYPE_BFLOAT16, 5000);
    optim.steps(0, 6);
    expected = optim.data();
  });
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int) {
    OneParam optim(comm, ZERO_STATE_DTYPE_BFLOAT16, 5000);
    optim.steps(0, 3);
    optim.save(scratch / "saved");
  });
  const std::string manifest = read_file(scratch / "saved/zero.json");
  EXPECT_NE(manifest.find("\"zero_format\":2,"), std::string::npos);
  EXPECT_NE(manifest.find("{\"state_dtype\":\"bfloat16\",\"settings\""), std::string::npos);
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    OneParam optim(comm, ZERO_STATE_DTYPE_BFLOAT16, 5000);
    optim.load(scratch / "saved");
    optim.steps(3, 3);
    EXPECT_EQ(optim.data(), expected);
  });
}

TEST(StateInBf16, a_checkpoint_with_another_state_dtype_is_refused_by_the_group) {
  const Scratch scratch;
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    const std::string directory = scratch / "saved";
    OneParam half(comm, ZERO_STATE_DTYPE_BFLOAT16, 5000), full(comm, ZERO_STATE_DTYPE_FULL, 5000);
    half.steps(0, 1);
    half.save(directory);
    EXPECT_TRUE(ends(zero_state_load(full.optim(), directory.c_str(), nullptr),
                     ZERO_ERR_CKPT_MISMATCH,
                     "group 0 has state_dtype bfloat16 in the checkpoint, but is registered with "
                     "full"));
  });
}

TEST(StateInBf16, values_are_read_as_fp32_and_rounded_to_nearest_when_they_are_set) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    OneParam optim(comm, ZERO_STATE_DTYPE_BFLOAT16, 3000);
    optim.seal();
    std::vector<float> values, rounded;
    for (uint32_t i = 0; i < 3000; i++) {
      values.push_back(1 + static_cast<float>(i) * 0x1p-12f);
      rounded.push_back(Bf16::of(values.back()).value());
    }
    EXPECT_OK(zero_state_set(optim.optim(), 0, "exp_avg", 0, 3000, values.data()));
    EXPECT_EQ(optim.state("exp_avg"), rounded);
  });
}

/// Trains two parameters, of which the second is registered after a seal if `later`.
std::vector<float> two_params(zero_comm* comm, bool later) {
  std::vector<float> data(8000, 1.0f), grad(8000);
  const int64_t sizes[] = {3000, 5000};
  Optim optim(comm);
  for (size_t i = 0; i < 2; i++) {
    const zero_group_options options = with_state(ZERO_STATE_DTYPE_BFLOAT16);
    const zero_param param =
        parameter(i == 0 ? "a" : "b", sizes[i], &data[i * 3000], &grad[i * 3000]);
    EXPECT_OK(zero_register_params(optim.optim(), &options, &param, 1, nullptr));
    if (later) optim.seal();
  }
  for (int step = 0; step < 5; step++) {
    for (size_t i = 0; i < grad.size(); i++)
      grad[i] = std::sin(static_cast<float>(i % 97) + static_cast<float>(step));
    EXPECT_OK(optim.step(ZERO_REDUCE_NONE));
  }
  return data;
}

TEST(StateInBf16, parameters_that_are_registered_later_are_rounded_alike) {
  std::vector<float> together;
  on_ranks(CommKind::local, 1, [&](zero_comm* comm, int) { together = two_params(comm, false); });
  on_ranks(CommKind::local, 2,
           [&](zero_comm* comm, int) { EXPECT_EQ(two_params(comm, true), together); });
}

// ---- What is refused.

TEST(StateInBf16, a_group_that_cannot_have_it_is_refused_and_nothing_is_added) {
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    OneParam optim(comm, ZERO_STATE_DTYPE_FULL, 100);
    const auto add = [&](zero_group_options options, int32_t dtype = 0) {
      static double data[3] = {};
      static const int64_t size = 3;
      const zero_param param = parameter("more", size, data, nullptr, dtype);
      return zero_register_params(optim.optim(), &options, &param, 1, nullptr);
    };
    EXPECT_TRUE(ends(add(with_state(ZERO_STATE_DTYPE_BFLOAT16), ZERO_FLOAT64), ZERO_ERR_UNSUPPORTED,
                     "parameter 'more' is float64: its state cannot be bfloat16"));
    EXPECT_TRUE(ends(add(with_state(7)), ZERO_ERR_ARGUMENT,
                     "state_dtype is 7; no ZERO_STATE_DTYPE_* has that number"));
    auto reserved = with_state(ZERO_STATE_DTYPE_FULL);
    reserved.reserved = 1;
    EXPECT_TRUE(ends(add(reserved), ZERO_ERR_ARGUMENT, "reserved is 1, not 0"));
    const OwnRule rule = own_adamw();
    Declared declared(rule);
    auto own = with_state(ZERO_STATE_DTYPE_BFLOAT16);
    own.custom = &declared.custom();
    EXPECT_TRUE(ends(add(own), ZERO_ERR_UNSUPPORTED, "is your own function"));
    int64_t number = -1;
    EXPECT_EQ(zero_param_index(optim.optim(), "more", &number), ZERO_ERR_ARGUMENT);
    optim.steps(0, 1);
  });
}

TEST(StateInBf16, ranks_that_differ_are_told_which_group) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    OneParam optim(comm, rank, 100);
    EXPECT_TRUE(ends(zero_seal(optim.optim()), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH,
                     "group 0 with optimizer adamw and state in bfloat16"));
  });
}

}  // namespace
}  // namespace zero::test
