// SPDX-License-Identifier: Apache-2.0
// Settings that the caller keeps in the device's memory: each step, called or launched, reads them
// when it is made.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "captured_model.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

TEST(DeviceCapture, settings_are_read_from_memory_when_a_step_is_made) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    Model host(defaults(), alone(0)), device(defaults(), alone(seed));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    const DeviceMemory memory =
        DeviceMemory::allocate_zeroed(device.shared_device(), 64, "settings").value();
    std::byte* const lr = memory.data();
    std::byte* const decay = memory.data() + 8;
    std::byte* const scale = memory.data() + 16;
    EXPECT_EQ(zero_group_set_from(device.optim, ZERO_ALL_GROUPS, "lr", lr, ZERO_FLOAT32), ZERO_OK)
        << zero_last_error();
    EXPECT_EQ(zero_group_set_from(device.optim, 1, "weight_decay", decay, ZERO_FLOAT64), ZERO_OK);
    EXPECT_EQ(zero_group_set_from(device.optim, ZERO_ALL_GROUPS, "loss_scale", scale, ZERO_FLOAT32),
              ZERO_OK);
    Graph graph;
    for (int turn = 0; turn < 8; turn++) {
      const double values[] = {static_cast<float>(0.01 * (turn + 1)), 0.1 * turn,
                               std::ldexp(1, turn)};
      EXPECT_EQ(zero_group_set(host.optim, ZERO_ALL_GROUPS, "lr", values[0]), ZERO_OK);
      EXPECT_EQ(zero_group_set(host.optim, 1, "weight_decay", values[1]), ZERO_OK);
      EXPECT_EQ(zero_group_set(host.optim, ZERO_ALL_GROUPS, "loss_scale", values[2]), ZERO_OK);
      if (turn == 2) graph = device.capture_step();
      device.write(lr, encode(ZERO_FLOAT32, {values[0]}));
      device.write(decay, encode(ZERO_FLOAT64, {values[1]}));
      device.write(scale, encode(ZERO_FLOAT32, {values[2]}));
      host.give(turn);
      device.give(turn);
      EXPECT_EQ(host.step(), ZERO_OK);
      if (graph.made() && turn != 5)
        device.launch(graph);
      else
        EXPECT_EQ(device.step(), ZERO_OK) << zero_last_error();
    }
    expect_same(host, device, "seed " + std::to_string(seed));
    device.write(lr, encode(ZERO_FLOAT32, {-1.0}));
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_ERR_ARGUMENT);
    EXPECT_EQ(device.result().step, 8);
    for (const char* const name : {"lr", "weight_decay"}) {
      EXPECT_EQ(zero_group_set_from(device.optim, ZERO_ALL_GROUPS, name, nullptr, ZERO_FLOAT32),
                ZERO_OK);
      double value = 0;
      EXPECT_EQ(zero_group_get(host.optim, 1, name, &value), ZERO_OK);
      EXPECT_EQ(zero_group_set(device.optim, 1, name, value), ZERO_OK);
      EXPECT_EQ(zero_group_get(host.optim, 0, name, &value), ZERO_OK);
      EXPECT_EQ(zero_group_set(device.optim, 0, name, value), ZERO_OK);
    }
    EXPECT_EQ(
        zero_group_set_from(device.optim, ZERO_ALL_GROUPS, "loss_scale", nullptr, ZERO_FLOAT32),
        ZERO_OK);
    EXPECT_EQ(host.step(), ZERO_OK);
    EXPECT_EQ(device.step(), ZERO_OK) << zero_last_error();
    expect_same(host, device, "by value again");
  }
}

TEST(DeviceCapture, a_load_leaves_settings_where_they_are_read) {
  const Scratch scratch;
  const std::string saved = scratch / "saved";
  Model host(defaults(), alone(0)), device(defaults(), alone(4));
  EXPECT_EQ(zero_group_set(host.optim, ZERO_ALL_GROUPS, "lr", 0.25), ZERO_OK);
  EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
  const DeviceMemory lr =
      DeviceMemory::allocate_zeroed(device.shared_device(), 64, "settings").value();
  device.write(lr.data(), encode(ZERO_FLOAT32, {0.25}));
  EXPECT_EQ(zero_group_set_from(device.optim, ZERO_ALL_GROUPS, "lr", lr.data(), ZERO_FLOAT32),
            ZERO_OK);
  const auto both = [&](const auto& body) {
    for (Model* const one : {&host, &device}) EXPECT_EQ(body(*one), ZERO_OK) << zero_last_error();
  };
  both([](Model& one) { return one.step(); });
  const Graph graph = device.capture_step();
  EXPECT_EQ(zero_state_save(host.optim, saved.c_str(), nullptr), ZERO_OK) << zero_last_error();
  both([&](Model& one) { return zero_state_load(one.optim, saved.c_str(), nullptr); });
  both([](Model& one) { return one.step(); });
  EXPECT_EQ(host.step(), ZERO_OK);
  device.launch(graph);
  expect_same(host, device, "after a load");
}

TEST(DeviceCapture, good_steps_are_counted_anew_from_a_loss_scale_that_is_set) {
  zero_options options = defaults();
  options.loss_scale = 8;
  options.growth_interval = 3;
  Model host(options, alone(0)), device(options, alone(4));
  for (int turn = 0; turn < 9; turn++) {
    for (Model* const one : {&host, &device}) {
      if (turn == 2) {
        EXPECT_EQ(zero_group_set(one->optim, ZERO_ALL_GROUPS, "loss_scale", 16), ZERO_OK)
            << zero_last_error();
      }
      one->give(turn);
      EXPECT_EQ(one->step(), ZERO_OK) << zero_last_error();
    }
    EXPECT_EQ(host.result().loss_scale, turn < 2 ? 8 : turn < 4 ? 16 : turn < 7 ? 32 : 64) << turn;
    EXPECT_EQ(device.result().loss_scale, host.result().loss_scale) << turn;
  }
}

TEST(DeviceCapture, launches_after_a_load_that_failed_half_way_make_no_step) {
  const Scratch scratch;
  const std::string saved = scratch / "saved";
  Model device(defaults(), alone(3));
  EXPECT_EQ(device.step(), ZERO_OK);
  EXPECT_EQ(zero_state_save(device.optim, saved.c_str(), nullptr), ZERO_OK) << zero_last_error();
  const Graph graph = device.capture_step();
  const auto fail = [&](int64_t call) {
    device.device().fail_once(call, Status(ZERO_ERR_SYSTEM, "the device has failed"));
  };
  constexpr int64_t kNever = int64_t{1} << 40;
  int half = 0;
  for (int64_t call = 0; call < 200; call += 3) {
    fail(call);
    (void)zero_state_load(device.optim, saved.c_str(), nullptr);
    fail(kNever);
    float value = 0;
    if (zero_state_get(device.optim, 0, nullptr, 0, 1, &value) != ZERO_ERR_NOT_LOADED) continue;
    half++;
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_ERR_STATE) << call;
    EXPECT_EQ(zero_state_load(device.optim, saved.c_str(), nullptr), ZERO_OK) << zero_last_error();
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_OK) << call;
  }
  EXPECT_GT(half, 0);
}

TEST(DeviceCapture, a_setting_that_cannot_be_read_from_memory_is_refused_by_name) {
  zero_options options = defaults();
  options.optimizer = ZERO_OPTIMIZER_SGD;
  Model host(options, alone(0)), device(options, alone(1));
  const DeviceMemory memory =
      DeviceMemory::allocate_zeroed(device.shared_device(), 64, "settings").value();
  const auto refused = [&](Model& model, zero_status status, const char* name, const void* at,
                           int32_t dtype, const char* words) {
    EXPECT_EQ(zero_group_set_from(model.optim, 0, name, at, dtype), status) << words;
    EXPECT_TRUE(says(words)) << zero_last_error();
  };
  float number = 1;
  refused(host, ZERO_ERR_UNSUPPORTED, "lr", &number, ZERO_FLOAT32, "on the host set its value");
  refused(device, ZERO_ERR_ARGUMENT, "lr", &number, ZERO_FLOAT32,
          "setting 'lr' is memory of the host");
  refused(device, ZERO_ERR_ARGUMENT, "lr", memory.data(), ZERO_BFLOAT16, "dtype is 5");
  refused(device, ZERO_ERR_ARGUMENT, "lr", memory.data() + 4, ZERO_FLOAT64, "not aligned");
  refused(device, ZERO_ERR_ARGUMENT, "rate", memory.data(), ZERO_FLOAT32, "no setting 'rate'");
  refused(device, ZERO_ERR_UNSUPPORTED, "momentum", memory.data(), ZERO_FLOAT32,
          "'momentum' decides");
  refused(device, ZERO_ERR_UNSUPPORTED, "nesterov", memory.data(), ZERO_FLOAT32,
          "'nesterov' decides");
  options.loss_scale = 8;
  Model dynamic(options, alone(2));
  EXPECT_EQ(
      zero_group_set_from(dynamic.optim, ZERO_ALL_GROUPS, "loss_scale", nullptr, ZERO_FLOAT32),
      ZERO_ERR_STATE);
  EXPECT_TRUE(says("dynamic"));
}

}  // namespace
}  // namespace zero::test
