// SPDX-License-Identifier: Apache-2.0
// Settings that the caller keeps in device memory. Each step reads them when it runs, whether it is
// a call or a launch.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "captured_model.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

DeviceMemory zeros_of(const Captured& model) {
  return DeviceMemory::allocate_zeroed(model.device(), 64, "settings").value();
}

TEST(DeviceCapture, settings_are_read_from_memory_when_a_step_is_made) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    Both both(seed);
    auto& [device, host] = both;
    const DeviceMemory memory = zeros_of(device);
    const auto read_from = [&](int32_t group, const char* name, const void* at, int32_t dtype) {
      EXPECT_OK(zero_group_set_from(both.device.optim(), group, name, at, dtype));
    };
    std::byte* const lr = memory.data();
    std::byte* const decay = memory.data() + 8;
    std::byte* const scale = memory.data() + 16;
    read_from(ZERO_ALL_GROUPS, "lr", lr, ZERO_FLOAT32);
    read_from(1, "weight_decay", decay, ZERO_FLOAT64);
    read_from(ZERO_ALL_GROUPS, "loss_scale", scale, ZERO_FLOAT32);
    Graph graph;
    for (int turn = 0; turn < 8; turn++) {
      const double values[] = {static_cast<float>(0.01 * (turn + 1)), 0.1 * turn,
                               std::ldexp(1, turn)};
      host.set("lr", values[0]);
      host.set("weight_decay", values[1], 1);
      host.set("loss_scale", values[2]);
      if (turn == 2) graph = device.capture_step();
      device.write(lr, encode(ZERO_FLOAT32, {values[0]}));
      device.write(decay, encode(ZERO_FLOAT64, {values[1]}));
      device.write(scale, encode(ZERO_FLOAT32, {values[2]}));
      both.give(turn);
      EXPECT_OK(host.step());
      if (graph.made() && turn != 5)
        device.launch(graph);
      else
        EXPECT_OK(device.step());
    }
    both.expect_same("seed " + std::to_string(seed));
    device.write(lr, encode(ZERO_FLOAT32, {-1.0}));
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_ERR_ARGUMENT);
    EXPECT_EQ(device.result().step, 8);
    for (const char* const name : {"lr", "weight_decay"}) {
      read_from(ZERO_ALL_GROUPS, name, nullptr, ZERO_FLOAT32);
      for (const int32_t group : {1, 0}) device.set(name, host.setting(name, group), group);
    }
    read_from(ZERO_ALL_GROUPS, "loss_scale", nullptr, ZERO_FLOAT32);
    both.call([](Captured& one) { return one.step(); });
    both.expect_same("by value again");
  }
}

TEST(DeviceCapture, a_load_leaves_settings_where_they_are_read) {
  const Scratch scratch;
  Both both(4);
  auto& [device, host] = both;
  host.set("lr", 0.25);
  const DeviceMemory lr = zeros_of(device);
  device.write(lr.data(), encode(ZERO_FLOAT32, {0.25}));
  EXPECT_OK(zero_group_set_from(device.optim(), ZERO_ALL_GROUPS, "lr", lr.data(), ZERO_FLOAT32));
  both.call([](Captured& one) { return one.step(); });
  const Graph graph = device.capture_step();
  host.save(scratch / "saved");
  for (Captured* const one : {&host, &device}) one->load(scratch / "saved");
  both.call([](Captured& one) { return one.step(); });
  EXPECT_OK(host.step());
  device.launch(graph);
  both.expect_same("after a load");
}

TEST(DeviceCapture, good_steps_are_counted_anew_from_a_loss_scale_that_is_set) {
  zero_options options = defaults();
  options.loss_scale = 8;
  options.growth_interval = 3;
  Both both(4, options);
  for (int turn = 0; turn < 9; turn++) {
    if (turn == 2) {
      for (Captured* const one : {&both.host, &both.device}) one->set("loss_scale", 16);
    }
    both.give(turn);
    both.call([](Captured& one) { return one.step(); });
    const double scale = both.host.result().loss_scale;
    EXPECT_EQ(scale, turn < 2 ? 8 : turn < 4 ? 16 : turn < 7 ? 32 : 64) << turn;
    EXPECT_EQ(both.device.result().loss_scale, scale) << turn;
  }
}

TEST(DeviceCapture, launches_after_a_load_that_failed_half_way_make_no_step) {
  const Scratch scratch;
  const std::string saved = scratch / "saved";
  Captured device(defaults(), alone(3));
  EXPECT_OK(device.step());
  device.save(saved);
  const Graph graph = device.capture_step();
  const auto fail = [&](int64_t call) {
    device.chaos().fail_once(call, Status(ZERO_ERR_SYSTEM, "the device has failed"));
  };
  constexpr int64_t kNever = int64_t{1} << 40;
  int half = 0;
  for (int64_t call = 0; call < 200; call += 3) {
    fail(call);
    (void)zero_state_load(device.optim(), saved.c_str(), nullptr);
    fail(kNever);
    float value = 0;
    if (zero_state_get(device.optim(), 0, nullptr, 0, 1, &value) != ZERO_ERR_NOT_LOADED) continue;
    half++;
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_ERR_STATE) << call;
    device.load(saved);
    device.launch(graph);
    EXPECT_OK(device.result().status) << call;
  }
  EXPECT_GT(half, 0);
}

TEST(DeviceCapture, a_setting_that_cannot_be_read_from_memory_is_refused_by_name) {
  zero_options options = defaults();
  options.optimizer = ZERO_OPTIMIZER_SGD;
  Captured host(options, alone(0)), device(options, alone(1));
  const DeviceMemory memory = zeros_of(device);
  const auto refused = [&](Captured& model, zero_status status, const char* name, const void* at,
                           int32_t dtype, const char* words) {
    EXPECT_TRUE(ends(zero_group_set_from(model.optim(), 0, name, at, dtype), status, words));
  };
  float number = 1;
  refused(host, ZERO_ERR_UNSUPPORTED, "lr", &number, ZERO_FLOAT32, "on the host, set its value");
  refused(device, ZERO_ERR_ARGUMENT, "lr", &number, ZERO_FLOAT32, "setting 'lr' is host memory");
  refused(device, ZERO_ERR_ARGUMENT, "lr", memory.data(), ZERO_BFLOAT16, "dtype is 5");
  refused(device, ZERO_ERR_ARGUMENT, "lr", memory.data() + 4, ZERO_FLOAT64, "not aligned");
  refused(device, ZERO_ERR_ARGUMENT, "rate", memory.data(), ZERO_FLOAT32, "no setting 'rate'");
  refused(device, ZERO_ERR_UNSUPPORTED, "momentum", memory.data(), ZERO_FLOAT32,
          "'momentum' determines");
  refused(device, ZERO_ERR_UNSUPPORTED, "nesterov", memory.data(), ZERO_FLOAT32,
          "'nesterov' determines");
  options.loss_scale = 8;
  Captured dynamic(options, alone(2));
  EXPECT_TRUE(ends(
      zero_group_set_from(dynamic.optim(), ZERO_ALL_GROUPS, "loss_scale", nullptr, ZERO_FLOAT32),
      ZERO_ERR_STATE, "dynamic"));
}

}  // namespace
}  // namespace zero::test
