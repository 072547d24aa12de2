// SPDX-License-Identifier: Apache-2.0
// What the calls of the training loop answer where tensors are on a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "support/expect.h"

namespace zero::test {
namespace {

/// One rank, on a device or the host, with one parameter or some.
class One {
 public:
  static constexpr int64_t kCount = 1500;

  One(const zero_options& options, std::shared_ptr<Device> device, size_t tensors = 1)
      : device_(std::move(device)) {
    comm_ = api::add_handle(create_solo({}, device_).value());
    if (device_ != nullptr) stream_ = make_stream(device_).value();
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 7) - 3;
    EXPECT_EQ(zero_create(&optim_, comm_, &options), ZERO_OK) << zero_last_error();
    const char* const names[] = {"w", "b"};
    std::vector<zero_param> params(tensors);
    for (size_t t = 0; t < tensors; t++) {
      data_.push_back(allocate());
      grads_.push_back(allocate());
      put(data_[t], values);
      ZERO_INIT(params[t]);
      params[t].name = names[t];
      params[t].shape = &kCount;
      params[t].ndim = 1;
      params[t].data = data_[t];
      params[t].grad = grads_[t];
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), tensors, nullptr), ZERO_OK)
        << zero_last_error();
  }
  ~One() {
    zero_free(optim_);
    zero_comm_free(comm_);
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;

  void give(float gradient, float last) {
    std::vector<float> values(kCount, gradient);
    values.back() = last;
    for (float* const grad : grads_) put(grad, values);
  }
  zero_status step(float gradient, float last) {
    give(gradient, last);
    return step();
  }
  zero_status reduce(float gradient, float last) {
    give(gradient, last);
    return zero_reduce_grads(optim_, nullptr, 0, ZERO_REDUCE_MEAN, stream());
  }
  /// Gradients of the first `present` parameters, to be added to.
  zero_status accumulate(size_t present) {
    std::vector<void*> given(grads_.begin(), grads_.end());
    std::fill(given.begin() + static_cast<ptrdiff_t>(present), given.end(), nullptr);
    return zero_reduce_grads(optim_, given.data(), given.size(), ZERO_REDUCE_ACCUMULATE, stream());
  }
  zero_status step() {
    auto options = initialized<zero_step_options>();
    options.stream = stream();
    return zero_step(optim_, &options);
  }
  zero_result result() {
    auto out = initialized<zero_result>();
    zero_step_result(optim_, &out);
    return out;
  }
  int64_t moved() const {
    auto out = initialized<zero_statistics>();
    EXPECT_EQ(zero_stats(optim_, &out), ZERO_OK) << zero_last_error();
    return out.moved_bytes;
  }
  std::vector<float> params() const { return params(stream()); }
  std::vector<float> params(void* stream) const {
    std::vector<float> all;
    for (const float* const data : data_) {
      std::vector<float> out(kCount);
      if (device_ == nullptr) {
        std::memcpy(out.data(), data, kCount * sizeof(float));
      } else {
        EXPECT_TRUE(device_->copy(stream, out.data(), data, kCount * sizeof(float)).ok());
      }
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }
  zero_optim* optim() const { return optim_; }
  void* stream() const { return stream_.handle(); }

 private:
  float* allocate() {
    if (device_ == nullptr) return host_.emplace_back(kCount).data();
    blocks_.push_back(DeviceMemory::allocate(device_, kCount * sizeof(float), "a tensor").value());
    return reinterpret_cast<float*>(blocks_.back().data());
  }
  void put(float* to, const std::vector<float>& values) const {
    if (device_ == nullptr) {
      std::memcpy(to, values.data(), kCount * sizeof(float));
    } else {
      EXPECT_TRUE(device_->copy(stream(), to, values.data(), kCount * sizeof(float)).ok());
    }
  }

  std::shared_ptr<Device> device_;
  Stream stream_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  std::deque<std::vector<float>> host_;
  std::vector<DeviceMemory> blocks_;
  std::vector<float*> data_, grads_;
};

zero_options defaults() {
  auto options = initialized<zero_options>();
  return options;
}

constexpr float kLast[] = {1, 2, INFINITY, 1, NAN, INFINITY, 3, 1, 1, -INFINITY, 2, 1};

void expect_same_end(One& device, One& host) {
  const zero_result a = device.result(), b = host.result();
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.nonfinite, b.nonfinite);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.clip_factor, b.clip_factor);
  const bool none = std::isnan(a.grad_norm) && std::isnan(b.grad_norm);
  EXPECT_TRUE(none || a.grad_norm == b.grad_norm) << a.grad_norm << " and " << b.grad_norm;
  const std::vector<float> ours = device.params(), theirs = host.params();
  for (size_t i = 0; i < ours.size(); i++) {
    if (std::isnan(ours[i]) && std::isnan(theirs[i])) continue;
    ASSERT_EQ(ours[i], theirs[i]) << "element " << i;
  }
}

/// The same steps on a device and on the host, asked for after each step or in the end only.
void compare(const zero_options& options, bool asks, uint64_t seed) {
  const auto world = chaos(seed);
  One device(options, world->make_device()), host(options, nullptr);
  for (size_t s = 0; s < std::size(kLast); s++) {
    const float gradient = 0.01f * static_cast<float>(s + 1);
    EXPECT_EQ(device.step(gradient, kLast[s]), ZERO_OK) << zero_last_error();
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

TEST(DeviceCalls, limiting_values_hides_nothing_that_is_not_finite) {
  uint64_t seed = 40;
  for (const int32_t nonfinite :
       {ZERO_NONFINITE_IGNORE, ZERO_NONFINITE_SKIP, ZERO_NONFINITE_ERROR}) {
    for (const bool clips : {true, false}) {
      zero_options options = defaults();
      options.nonfinite = nonfinite;
      options.max_grad_norm = clips ? 0.5 : 0;
      One device(options, chaos(seed++)->make_device()), host(options, nullptr);
      for (const float last : kLast) {
        zero_status ends[2];
        for (One* const one : {&device, &host}) {
          EXPECT_EQ(one->reduce(0.1f, last), ZERO_OK) << zero_last_error();
          EXPECT_EQ(zero_clip_grad_norm(one->optim(), nullptr, 0, 3, 2, nullptr, one->stream()),
                    ZERO_OK);
          EXPECT_EQ(zero_clip_grad_value(one->optim(), 0.25, one->stream()), ZERO_OK);
          ends[one == &host] = one->step();
        }
        EXPECT_EQ(ends[0], ZERO_OK);
        expect_same_end(device, host);
      }
    }
  }
}

void expect_results_of_the_latest_step(int32_t nonfinite, bool asks) {
  zero_options options = defaults();
  options.nonfinite = nonfinite;
  One device(options, chaos(60)->make_device()), host(options, nullptr);
  for (One* const one : {&device, &host}) {
    (void)one->step(0.1f, INFINITY);
    EXPECT_EQ(one->reduce(0.1f, 1), ZERO_OK) << zero_last_error();
  }
  if (asks) expect_same_end(device, host);
  void* const grads[] = {nullptr};
  auto wrong = initialized<zero_step_options>();
  wrong.grads = grads;
  wrong.grad_count = 1;
  for (One* const one : {&device, &host}) {
    wrong.stream = one->stream();
    EXPECT_EQ(zero_step(one->optim(), &wrong), ZERO_ERR_STATE) << zero_last_error();
  }
  expect_same_end(device, host);
  EXPECT_EQ(device.result().status, ZERO_ERR_STATE);
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
        const std::shared_ptr<Device> device = chaos(seed)->make_device();
        One one(options, device), host(defaults(), nullptr);
        const Stream other = make_stream(device).value();
        EXPECT_EQ(one.step(0.1f, 1), ZERO_OK);
        EXPECT_EQ(host.step(0.1f, 1), ZERO_OK);
        if (reduces) {
          EXPECT_EQ(one.reduce(0.2f, 1), ZERO_OK);
        }
        EXPECT_EQ(zero_param_wait(one.optim(), 0, other.handle()), ZERO_OK);
        ASSERT_EQ(one.params(other.handle()), host.params()) << seed;
      }
    }
  }
}

TEST(DeviceCalls, a_call_of_the_device_that_fails_once_ends_one_call_and_tells_no_untruth) {
  for (int64_t call = 0; call < 140; call++) {
    const std::shared_ptr<ChaosDevice> device = chaos(1)->make_device();
    zero_options options = defaults();
    options.loss_scale = 8;
    One one(options, device);
    const bool begun = call % 2 == 0;
    if (begun) {
      EXPECT_EQ(one.step(0.1f, 1), ZERO_OK);
    }
    one.give(0.1f, 1);
    device->fail_once(call, Status(ZERO_ERR_SYSTEM, "the device has failed once"));
    const zero_status failed = one.step();
    device->fail_once(-1, Status());
    const zero_status next = one.step();
    auto result = initialized<zero_result>();
    (void)zero_step_result(one.optim(), &result);
    if (next != ZERO_OK) continue;  // the comm is broken
    EXPECT_EQ(result.step, begun + (failed == ZERO_OK) + 1) << call;
    EXPECT_EQ(result.loss_scale, 8) << call;
  }
}

TEST(DeviceCalls, a_reduction_that_fails_leaves_the_sums_before_it_to_the_step) {
  One host(defaults(), nullptr, 2);
  host.give(0.1f, 1);
  EXPECT_EQ(host.accumulate(1), ZERO_OK);
  EXPECT_EQ(host.step(), ZERO_OK);
  int failures = 0;
  for (int64_t call = 0; call < 60; call++) {
    const std::shared_ptr<ChaosDevice> device = chaos(1)->make_device();
    One one(defaults(), device, 2);
    one.give(0.1f, 1);
    EXPECT_EQ(one.accumulate(1), ZERO_OK) << zero_last_error();
    device->fail_once(call, Status(ZERO_ERR_MEMORY, "the device has failed once"));
    const zero_status failed = one.accumulate(2);
    device->fail_once(-1, Status());
    if (failed == ZERO_OK || one.step() != ZERO_OK) continue;  // or the comm is broken
    failures++;
    EXPECT_EQ(one.params(), host.params()) << "call " << call;
  }
  EXPECT_GT(failures, 10);
}

TEST(DeviceCalls, a_learning_rate_set_between_steps_is_that_of_the_next_one) {
  One device(defaults(), chaos(3)->make_device()), host(defaults(), nullptr);
  for (int s = 0; s < 9; s++) {
    for (One* const one : {&device, &host}) {
      EXPECT_EQ(zero_group_set(one->optim(), ZERO_ALL_GROUPS, "lr", 0.01 / (1 + s)), ZERO_OK);
      EXPECT_EQ(one->step(0.1f, 1), ZERO_OK);
    }
  }
  expect_same_end(device, host);
  EXPECT_EQ(device.moved(), host.moved());
}

TEST(DeviceCalls, what_a_device_cannot_do_is_refused_when_it_is_asked_for) {
  const std::shared_ptr<Device> device = chaos(1)->make_device();
  zero_comm* const comm = api::add_handle(create_solo({}, device).value());
  const auto refused = [&](const zero_options& options, const char* word) {
    zero_optim* optim = nullptr;
    EXPECT_TRUE(ends(zero_create(&optim, comm, &options), ZERO_ERR_UNSUPPORTED, word)) << word;
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
  zero_comm_free(comm);

  One one(defaults(), device);
  EXPECT_TRUE(ends(zero_step_begin(one.optim(), nullptr), ZERO_ERR_UNSUPPORTED, "zero_step_begin"));
  const int64_t param = 0;
  EXPECT_EQ(zero_clip_grad_norm(one.optim(), &param, 1, 1.0, 2.0, nullptr, nullptr),
            ZERO_ERR_UNSUPPORTED);
  EXPECT_TRUE(ends(zero_clip_grad_norm(one.optim(), nullptr, 0, 1.0, 3.0, nullptr, nullptr),
                   ZERO_ERR_UNSUPPORTED, "norm_type is 3"));
  EXPECT_EQ(one.step(0.1f, 1), ZERO_OK) << zero_last_error();
}

TEST(DeviceCalls, memory_and_streams_of_elsewhere_are_refused_by_name) {
  const std::shared_ptr<Device> device = chaos(1)->make_device();
  One one(defaults(), device);
  std::vector<float> on_host(One::kCount);
  void* const grads[] = {on_host.data()};
  auto options = initialized<zero_step_options>();
  options.grads = grads;
  options.grad_count = 1;
  options.stream = one.stream();
  EXPECT_TRUE(
      ends(zero_step(one.optim(), &options), ZERO_ERR_ARGUMENT, "the gradient of parameter 'w'"));
  EXPECT_EQ(one.result().status, ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(
      ends(zero_bind_params(one.optim(), grads, nullptr, 1), ZERO_ERR_ARGUMENT, "parameter 'w'"));
  int no_stream = 0;
  options.grads = nullptr;
  options.grad_count = 0;
  options.stream = &no_stream;
  EXPECT_EQ(zero_step(one.optim(), &options), ZERO_ERR_ARGUMENT) << zero_last_error();
  EXPECT_EQ(one.step(0.1f, 1), ZERO_OK) << zero_last_error();
  EXPECT_EQ(one.result().status, ZERO_OK);
  EXPECT_EQ(one.result().step, 1);
}

}  // namespace
}  // namespace zero::test
