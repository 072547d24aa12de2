// SPDX-License-Identifier: Apache-2.0
// What cannot be captured, or is out of date when it is launched, says so, and spoils neither the
// capture nor the optimizer.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "captured_model.h"
#include "step/queued/queue.h"
#include "support/expect.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

TEST(DeviceCapture, calls_that_cannot_be_captured_say_so_and_leave_the_capture_as_it_is) {
  const Scratch scratch;
  Model host(defaults(), alone(0)), device(defaults(), alone(1));
  void* const stream = device.stream();
  const auto refused = [&](zero_status status, zero_status expected, const char* words) {
    EXPECT_EQ(status, expected) << words << ": " << zero_last_error();
    EXPECT_TRUE(says(words)) << zero_last_error();
  };
  device.capture([&] { refused(device.step(), ZERO_ERR_STATE, "zero_seal, or a step"); });
  EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
  const Graph graph = device.capture([&] {
    double norm = 0;
    zero_optim* const optim = device.optim;
    refused(zero_clip_grad_norm(optim, nullptr, 0, 1, 2, &norm, stream), ZERO_ERR_UNSUPPORTED,
            "must be NULL");
    refused(zero_grad_ready(optim, 0, nullptr, stream), ZERO_ERR_UNSUPPORTED, "being captured");
    refused(zero_broadcast_params(optim, 0, stream), ZERO_ERR_UNSUPPORTED, "being captured");
    refused(zero_param_wait(optim, 0, stream), ZERO_ERR_UNSUPPORTED, "being captured");
    refused(zero_share_params(optim, 0, stream), ZERO_ERR_UNSUPPORTED, "being captured");
    refused(zero_rebalance(optim, nullptr, 0, stream), ZERO_ERR_UNSUPPORTED, "being captured");
    EXPECT_EQ(device.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, ZERO_REDUCE_MEAN, stream), ZERO_OK);
    refused(zero_reduce_grads(optim, nullptr, 0, ZERO_REDUCE_MEAN, stream), ZERO_ERR_STATE,
            "gradients are reduced");
    EXPECT_EQ(zero_drop_grads(optim), ZERO_OK);
    const std::string path = scratch / "saved";
    EXPECT_EQ(zero_state_save(optim, path.c_str(), nullptr), ZERO_OK) << zero_last_error();
  });
  for (int turn = 0; turn < 3; turn++) {
    host.give(turn);
    device.give(turn);
    EXPECT_EQ(host.step(), ZERO_OK);
    device.launch(graph);
  }
  expect_same(host, device, "after refusals");
}

TEST(DeviceCapture, sums_of_a_capture_are_not_those_of_calls_outside_of_it) {
  Model device(defaults(), alone(1));
  EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
  const auto reduce = [&] {
    EXPECT_EQ(zero_reduce_grads(device.optim, nullptr, 0, ZERO_REDUCE_MEAN, device.stream()),
              ZERO_OK)
        << zero_last_error();
  };
  device.capture(reduce);
  EXPECT_TRUE(ends(device.step(), ZERO_ERR_STATE, "reduced in a capture"));
  float value = 0;
  EXPECT_TRUE(
      ends(zero_grad_get(device.optim, 0, 0, 1, &value), ZERO_ERR_STATE, "reduced in a capture"));
  device.capture([&] { EXPECT_EQ(device.step(), ZERO_ERR_STATE); });
  EXPECT_EQ(zero_drop_grads(device.optim), ZERO_OK);
  reduce();
  device.capture([&] { EXPECT_EQ(device.step(), ZERO_ERR_STATE); });
  EXPECT_TRUE(says("before the capture began"));
  EXPECT_EQ(device.step(), ZERO_OK) << zero_last_error();
  EXPECT_EQ(zero_grad_ready(device.optim, 0, nullptr, device.stream()), ZERO_OK);
  device.capture([&] { EXPECT_EQ(device.step(), ZERO_ERR_STATE); });
  EXPECT_TRUE(says("announced outside"));
}

TEST(DeviceCapture, a_graph_that_is_out_of_date_makes_no_step_and_says_so) {
  const auto outdated = [&](const char* what, int32_t optimizer, const auto& change) {
    zero_options options = defaults();
    options.optimizer = optimizer;
    Model device(options, alone(3));
    EXPECT_EQ(device.step(), ZERO_OK);
    const Graph graph = device.capture_step();
    device.launch(graph);
    EXPECT_EQ(device.result().step, 2) << what;
    const auto before = device.everything();
    change(device);
    device.launch(graph);
    EXPECT_EQ(device.result().status, ZERO_ERR_STATE) << what;
    auto after = device.everything();
    after["status"] = before.at("status");
    EXPECT_TRUE(after == before) << what;
    const Graph again = device.capture_step();
    device.launch(again);
    EXPECT_EQ(device.result().status, ZERO_OK) << what;
    EXPECT_EQ(device.result().step, 3) << what;
  };
  outdated("frozen", ZERO_OPTIMIZER_ADAMW,
           [](Model& model) { EXPECT_EQ(zero_param_set_trainable(model.optim, 0, 0), ZERO_OK); });
  outdated("bound", ZERO_OPTIMIZER_ADAMW, [](Model& model) {
    const std::vector<void*> data(kCount, nullptr);
    EXPECT_EQ(zero_bind_params(model.optim, data.data(), nullptr, kCount), ZERO_OK)
        << zero_last_error();
  });
  outdated("momentum", ZERO_OPTIMIZER_SGD, [](Model& model) {
    EXPECT_EQ(zero_group_set(model.optim, 1, "momentum", 0.5), ZERO_OK);
  });
  outdated("by pointer", ZERO_OPTIMIZER_ADAMW, [](Model& model) {
    EXPECT_EQ(zero_group_set_from(model.optim, 0, "lr", nullptr, ZERO_FLOAT32), ZERO_OK);
  });
}

void expect_no_captures(const Abilities& abilities, const char* why) {
  const auto world = chaos(5, abilities);
  const std::string name = unique_name();
  const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    Model model(defaults(), create_local(name, rank, 2, {}, devices[rank]).value());
    EXPECT_EQ(zero_seal(model.optim), ZERO_OK);
    const auto refused = [&](zero_status status) {
      EXPECT_TRUE(ends(status, ZERO_ERR_UNSUPPORTED,
                       "the stream is being captured, and no step of this comm can be: "));
      EXPECT_TRUE(says(why)) << zero_last_error();
    };
    model.capture([&] {
      refused(model.step());
      refused(zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, model.stream()));
      refused(zero_clip_grad_norm(model.optim, nullptr, 0, 1, 2, nullptr, model.stream()));
      refused(zero_clip_grad_value(model.optim, 1, model.stream()));
    });
    EXPECT_EQ(model.step(), ZERO_OK) << zero_last_error();
    return {};
  });
}

TEST(DeviceCapture, where_hosts_wait_in_every_step_no_call_can_be_captured) {
  expect_no_captures({.words = false}, "the host waits, as streams cannot (rank 0: ");
  expect_no_captures({.reaches = false}, "devices do not reach each other's (rank 0: ");
}

TEST(DeviceCapture, ranks_that_differ_about_it_are_told) {
  const NcclRanks ranks(2, 5);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    Model model(defaults(), ranks.join(rank).value());
    EXPECT_EQ(zero_seal(model.optim), ZERO_OK);
    const auto step = [&] {
      EXPECT_EQ(model.step(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH);
      EXPECT_TRUE(says("rank 1 has a call that is not captured, rank 0 has a captured call"))
          << zero_last_error();
    };
    if (rank == 0)
      model.capture(step);
    else
      step();
    EXPECT_EQ(model.step(), ZERO_OK) << zero_last_error();
    model.await();
    return {};
  });
}

TEST(DeviceCapture, a_stream_that_is_left_out_of_the_capture_ends_it) {
  for (const char* const rule : {queued::order::kForked, queued::order::kJoined}) {
    const NcclRanks ranks(2, 6);
    ranks.chaos().forget(rule);
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      Model model(defaults(), ranks.join(rank).value());
      EXPECT_EQ(zero_seal(model.optim), ZERO_OK);
      EXPECT_TRUE(model.device().begin_capture(model.stream()).ok());
      bool queued =
          zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, model.stream()) == ZERO_OK;
      queued = zero_clip_grad_value(model.optim, 1, model.stream()) == ZERO_OK && queued;
      const bool ended = model.device().end_capture(model.stream()).ok();
      EXPECT_FALSE(queued && ended) << rule;
      (void)zero_drop_grads(model.optim);
      return {};
    });
  }
}

TEST(DeviceCapture, a_failure_of_the_device_leaves_the_optimizer_as_it_was) {
  int failures = 0;
  for (int64_t call = 0; call < 80; call++) {
    Model host(defaults(), alone(0)), device(defaults(), alone(1));
    EXPECT_EQ(host.step(), ZERO_OK);
    EXPECT_EQ(device.step(), ZERO_OK);
    EXPECT_TRUE(device.device().begin_capture(device.stream()).ok());
    device.device().fail_once(call, Status(ZERO_ERR_MEMORY, "the device has failed once"));
    const zero_status status = device.step();
    device.device().fail_once(-1, Status());
    const auto graph = device.device().end_capture(device.stream());
    if (status != ZERO_OK) failures++;
    if (status == ZERO_OK) {
      ASSERT_TRUE(graph.ok()) << graph.failure().text();
      device.launch({*graph, nullptr});
    } else {
      EXPECT_EQ(device.step(), ZERO_OK) << zero_last_error();
    }
    EXPECT_EQ(host.step(), ZERO_OK);
    expect_same(host, device, "call " + std::to_string(call));
  }
  EXPECT_GT(failures, 20);
}

TEST(DeviceCapture, what_graphs_hold_is_given_back_with_the_optimizer) {
  const auto world = chaos(4);
  {
    Model device(defaults(), create_solo({}, world->make_device()).value());
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    for (int i = 0; i < 3; i++) device.launch(device.capture_step());
    EXPECT_EQ(device.result().step, 3);
  }
  EXPECT_EQ(world->living(), 0);
}

}  // namespace
}  // namespace zero::test
