// SPDX-License-Identifier: Apache-2.0
// The results of the calls of a training loop if tensors are on a device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "floats.h"
#include "support/expect.h"

namespace zero::test {
namespace {

constexpr int64_t kCount = 1500;

zero_options defaults() { return initialized<zero_options>(); }

/// One rank on a device with that seed, or on the host, with one or two parameters.
class One : public Floats {
 public:
  One(const zero_options& options, uint64_t seed, size_t tensors = 1)
      : Floats(seed == 0 ? alone() : alone({.seed = seed}), options, tensors, kCount) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 7) - 3;
    put_all(values);
  }

  void give(float gradient, float last) {
    std::vector<float> values(kCount, gradient);
    values.back() = last;
    give_all(values);
  }
  using Floats::step;
  zero_status step(float gradient, float last) {
    give(gradient, last);
    return step();
  }
  zero_status reduce(float gradient, float last) {
    give(gradient, last);
    return reduce_with({}, ZERO_REDUCE_MEAN, stream());
  }
  /// Accumulates gradients of the first `present` parameters.
  zero_status accumulate(size_t present) {
    return reduce_with({grad(0), present > 1 ? grad(1) : nullptr}, ZERO_REDUCE_ACCUMULATE,
                       stream());
  }
};

constexpr float kLast[] = {1, 2, INFINITY, 1, NAN, INFINITY, 3, 1, 1, -INFINITY, 2, 1};

void expect_same_end(One& device, One& host) {
  const zero_result a = device.found(), b = host.found();
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.nonfinite, b.nonfinite);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.clip_factor, b.clip_factor);
  const bool none = std::isnan(a.grad_norm) && std::isnan(b.grad_norm);
  EXPECT_TRUE(none || a.grad_norm == b.grad_norm) << a.grad_norm << " and " << b.grad_norm;
  const std::vector<float> ours = device.values(), theirs = host.values();
  for (size_t i = 0; i < ours.size(); i++) {
    if (std::isnan(ours[i]) && std::isnan(theirs[i])) continue;
    ASSERT_EQ(ours[i], theirs[i]) << "element " << i;
  }
}

/// Compares the same steps on a device and on the host. Results are requested after each step, or
/// only at the end.
void compare(const zero_options& options, bool asks, uint64_t seed) {
  One device(options, seed), host(options, 0);
  for (size_t s = 0; s < std::size(kLast); s++) {
    const float gradient = 0.01f * static_cast<float>(s + 1);
    EXPECT_OK(device.step(gradient, kLast[s]));
    (void)host.step(gradient, kLast[s]);
    if (asks) expect_same_end(device, host);
  }
  expect_same_end(device, host);
}

TEST(DeviceCalls, steps_are_skipped_and_the_scale_follows_as_on_the_host) {
  uint64_t seed = 1;
  for (const bool asks : {true, false}) {
    zero_options options = defaults();
    options.loss_scale = 8;
    options.growth_interval = 2;
    options.growth_factor = 3;
    compare(options, asks, seed++);
    options.max_grad_norm = 0.5;
    compare(options, asks, seed++);
    options = defaults();
    options.nonfinite = ZERO_NONFINITE_SKIP;
    compare(options, asks, seed++);
    options.nonfinite = ZERO_NONFINITE_ERROR;
    compare(options, asks, seed++);
    options.optimizer = ZERO_OPTIMIZER_NADAM;
    compare(options, asks, seed++);
  }
}

/// Checks steps that clip values. `of_nonfinite` is the status of a step with gradients that are
/// not finite.
void expect_nothing_hidden(const zero_options& options, zero_status of_nonfinite, uint64_t seed) {
  One device(options, seed), host(options, 0);
  for (const float last : kLast) {
    const zero_status status = std::isfinite(last) ? ZERO_OK : of_nonfinite;
    for (One* const one : {&device, &host}) {
      EXPECT_OK(one->reduce(0.1f, last));
      EXPECT_OK(zero_clip_grad_norm(one->optim(), nullptr, 0, 3, 2, nullptr, one->stream()));
      EXPECT_OK(zero_clip_grad_value(one->optim(), 0.25, one->stream()));
      EXPECT_EQ(one->step(), one == &host ? status : ZERO_OK);
    }
    const zero_result found = device.found();
    EXPECT_EQ(found.status, status);
    // A refused step keeps the count of the step before.
    EXPECT_EQ(found.nonfinite, !std::isfinite(last) && status >= 0 ? 1 : 0);
    expect_same_end(device, host);
  }
}

TEST(DeviceCalls, limiting_values_hides_nothing_that_is_not_finite) {
  const std::pair<int32_t, zero_status> ends[] = {{ZERO_NONFINITE_IGNORE, ZERO_OK},
                                                  {ZERO_NONFINITE_SKIP, ZERO_SKIPPED},
                                                  {ZERO_NONFINITE_ERROR, ZERO_ERR_NONFINITE}};
  uint64_t seed = 40;
  for (const auto& [nonfinite, status] : ends) {
    for (const double most : {0.5, 0.0}) {
      zero_options options = defaults();
      options.nonfinite = nonfinite;
      options.max_grad_norm = most;
      expect_nothing_hidden(options, status, seed++);
    }
  }
}

void expect_results_of_the_latest_step(int32_t nonfinite, bool asks) {
  zero_options options = defaults();
  options.nonfinite = nonfinite;
  One device(options, 60), host(options, 0);
  for (One* const one : {&device, &host}) {
    (void)one->step(0.1f, INFINITY);
    EXPECT_OK(one->reduce(0.1f, 1));
  }
  if (asks) expect_same_end(device, host);
  for (One* const one : {&device, &host})
    EXPECT_EQ(one->step_with({nullptr}, ZERO_REDUCE_MEAN, one->stream()), ZERO_ERR_STATE) << last();
  expect_same_end(device, host);
  EXPECT_EQ(device.found().status, ZERO_ERR_STATE);
}

TEST(DeviceCalls, a_result_is_that_of_the_latest_step_whatever_came_after_it) {
  for (const int32_t nonfinite : {ZERO_NONFINITE_SKIP, ZERO_NONFINITE_ERROR}) {
    for (const bool asks : {true, false}) expect_results_of_the_latest_step(nonfinite, asks);
  }
}

TEST(DeviceCalls, a_parameter_that_is_waited_for_is_new_on_another_stream) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    for (const bool overlaps : {false, true}) {
      for (const bool reduces : {false, true}) {
        zero_options options = defaults();
        options.overlap_gather = overlaps;
        One one(options, seed), host(defaults(), 0);
        const Stream other = make_stream(one.device()).value();
        EXPECT_OK(one.step(0.1f, 1));
        EXPECT_OK(host.step(0.1f, 1));
        if (reduces) {
          EXPECT_OK(one.reduce(0.2f, 1));
        }
        EXPECT_OK(zero_param_wait(one.optim(), 0, other.handle()));
        ASSERT_EQ(one.values(other.handle()), host.values()) << seed;
      }
    }
  }
}

TEST(DeviceCalls, a_call_of_the_device_that_fails_once_ends_one_call_and_tells_no_untruth) {
  for (int64_t call = 0; call < 140; call++) {
    zero_options options = defaults();
    options.loss_scale = 8;
    One one(options, 1);
    const bool begun = call % 2 == 0;
    if (begun) {
      EXPECT_OK(one.step(0.1f, 1));
    }
    one.give(0.1f, 1);
    one.chaos().fail_once(call, Status(ZERO_ERR_SYSTEM, "the device has failed once"));
    const zero_status failed = one.step();
    one.chaos().fail_once(-1, Status());
    const zero_status next = one.step();
    const zero_result result = one.found();
    if (next != ZERO_OK) continue;  // the comm is broken
    EXPECT_EQ(result.step, begun + (failed == ZERO_OK) + 1) << call;
    EXPECT_EQ(result.loss_scale, 8) << call;
  }
}

TEST(DeviceCalls, a_reduction_that_fails_leaves_the_sums_before_it_to_the_step) {
  One host(defaults(), 0, 2);
  host.give(0.1f, 1);
  EXPECT_OK(host.accumulate(1));
  EXPECT_OK(host.step());
  int failures = 0;
  for (int64_t call = 0; call < 60; call++) {
    One one(defaults(), 1, 2);
    one.give(0.1f, 1);
    EXPECT_OK(one.accumulate(1));
    one.chaos().fail_once(call, Status(ZERO_ERR_MEMORY, "the device has failed once"));
    const zero_status failed = one.accumulate(2);
    one.chaos().fail_once(-1, Status());
    if (failed == ZERO_OK || one.step() != ZERO_OK) continue;  // otherwise the comm is broken
    failures++;
    EXPECT_EQ(one.values(), host.values()) << "call " << call;
  }
  EXPECT_GT(failures, 10);
}

TEST(DeviceCalls, a_learning_rate_set_between_steps_is_that_of_the_next_one) {
  One device(defaults(), 3), host(defaults(), 0);
  for (int s = 0; s < 9; s++) {
    for (One* const one : {&device, &host}) {
      one->set("lr", 0.01 / (1 + s));
      EXPECT_OK(one->step(0.1f, 1));
    }
  }
  expect_same_end(device, host);
  EXPECT_EQ(device.statistics().moved_bytes, host.statistics().moved_bytes);
}

TEST(DeviceCalls, a_new_stream_with_the_handle_of_a_freed_one_is_another_stream) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    One device(defaults(), seed, 2), host(defaults(), 0, 2);
    EXPECT_OK(device.step(0.1f, 1));
    EXPECT_OK(host.step(0.1f, 1));
    (void)device.values();  // the step has read the gradients
    const Stream side = make_stream(device.device()).value();
    constexpr int kByte = 0x3D;
    float gradient;
    std::memset(&gradient, kByte, sizeof gradient);
    for (int64_t param = 0; param < 2; param++) {
      float* const grad = device.grad(static_cast<size_t>(param));
      EXPECT_TRUE(device.device()->fill(side.handle(), grad, kByte, kCount * sizeof(float)).ok());
      EXPECT_OK(zero_grad_ready(device.optim(), param, grad, side.handle()));
      device.chaos().replace_stream(side.handle());
    }
    EXPECT_OK(device.step());
    device.chaos().replace_stream(device.stream());  // the next step waits for this one
    EXPECT_OK(device.step());
    EXPECT_OK(host.step(gradient, gradient));
    EXPECT_OK(host.step(gradient, gradient));
    expect_same_end(device, host);
    if (HasFailure()) return;
  }
}

TEST(DeviceCalls, what_a_device_cannot_do_is_refused_when_it_is_asked_for) {
  const std::shared_ptr<zero_comm> comm = alone({.seed = 1});
  const auto refused = [&](const zero_options& options, const char* word) {
    zero_optim* optim = nullptr;
    EXPECT_TRUE(ends(zero_create(&optim, comm.get(), &options), ZERO_ERR_UNSUPPORTED, word))
        << word;
    EXPECT_TRUE(says("chaos device"));
  };
  zero_options options = defaults();
  options.optimizer = ZERO_OPTIMIZER_LAMB;
  refused(options, "lamb");
  options.optimizer = ZERO_OPTIMIZER_LARS;
  refused(options, "lars");
  options = defaults();
  options.uneven_inputs = ZERO_UNEVEN_WORLD;
  refused(options, "uneven_inputs");
  options = defaults();
  options.wire_dtype = ZERO_FLOAT16;
  options.predivide_factor = 4;
  refused(options, "predivide_factor");

  One one(defaults(), 1);
  auto group = initialized<zero_group_options>();
  group.optimizer = "lamb";
  EXPECT_TRUE(ends(zero_register_params(one.optim(), &group, nullptr, 0, nullptr),
                   ZERO_ERR_UNSUPPORTED, "optimizer lamb is not supported on a chaos device"));
  EXPECT_TRUE(ends(zero_step_begin(one.optim(), nullptr), ZERO_ERR_UNSUPPORTED, "zero_step_begin"));
  const int64_t param = 0;
  EXPECT_EQ(zero_clip_grad_norm(one.optim(), &param, 1, 1.0, 2.0, nullptr, nullptr),
            ZERO_ERR_UNSUPPORTED);
  EXPECT_TRUE(ends(zero_clip_grad_norm(one.optim(), nullptr, 0, 1.0, 3.0, nullptr, nullptr),
                   ZERO_ERR_UNSUPPORTED, "norm_type is 3"));
  EXPECT_OK(one.step(0.1f, 1));
}

TEST(DeviceCalls, tools_see_calls_and_what_they_queue_as_ranges_within_each_other) {
  zero_options options = defaults();
  One one(options, 1);
  EXPECT_OK(one.step(0.1f, 1));
  (void)one.chaos().take_ranges();
  EXPECT_OK(one.step(0.1f, 1));
  EXPECT_EQ(one.chaos().take_ranges(), "zero_step(enter() ready() gather() apply() publish())");
  EXPECT_OK(one.reduce(0.1f, 1));
  EXPECT_EQ(one.chaos().take_ranges(), "zero_reduce_grads(enter() ready() gather() measure())");
  options.max_grad_norm = 1;
  One clips(options, 1);
  EXPECT_OK(clips.step(0.1f, 1));
  (void)clips.chaos().take_ranges();
  EXPECT_OK(clips.step(0.1f, INFINITY));
  EXPECT_EQ(clips.chaos().take_ranges(),
            "zero_step(enter() ready() gather() measure() apply() publish())");
}

TEST(DeviceCalls, memory_and_streams_of_elsewhere_are_refused_by_name) {
  One one(defaults(), 1);
  std::vector<float> on_host(kCount);
  void* const grads[] = {on_host.data()};
  EXPECT_TRUE(ends(one.step_with({grads[0]}, ZERO_REDUCE_MEAN, one.stream()), ZERO_ERR_ARGUMENT,
                   "the gradient of parameter 'w'"));
  EXPECT_EQ(one.found().status, ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(
      ends(zero_bind_params(one.optim(), grads, nullptr, 1), ZERO_ERR_ARGUMENT, "parameter 'w'"));
  int no_stream = 0;
  EXPECT_EQ(one.step_with({}, ZERO_REDUCE_MEAN, &no_stream), ZERO_ERR_ARGUMENT) << last();
  EXPECT_OK(one.step(0.1f, 1));
  EXPECT_OK(one.found().status);
  EXPECT_EQ(one.found().step, 1);
}

}  // namespace
}  // namespace zero::test
