// SPDX-License-Identifier: Apache-2.0
// Calls that cannot be captured, and graphs that are out of date at their launch, report it. They
// damage neither the capture nor the optimizer.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "captured_model.h"
#include "step/queued/queue.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

TEST(DeviceCapture, calls_that_cannot_be_captured_say_so_and_leave_the_capture_as_it_is) {
  const Scratch scratch;
  Captured host(defaults(), alone(0)), device(defaults(), alone(1));
  void* const stream = device.stream();
  zero_optim* const optim = device.optim();
  device.capture(
      [&] { EXPECT_TRUE(ends(device.step(), ZERO_ERR_STATE, "call zero_seal, or take a step")); });
  device.seal();
  const Graph graph = device.capture([&] {
    double norm = 0;
    EXPECT_TRUE(ends(zero_clip_grad_norm(optim, nullptr, 0, 1, 2, &norm, stream),
                     ZERO_ERR_UNSUPPORTED, "must be NULL"));
    const auto refused = [](zero_status status) {
      EXPECT_TRUE(ends(status, ZERO_ERR_UNSUPPORTED, "being captured"));
    };
    refused(zero_grad_ready(optim, 0, nullptr, stream));
    refused(zero_broadcast_params(optim, 0, stream));
    refused(zero_param_wait(optim, 0, stream));
    refused(zero_share_params(optim, 0, stream));
    refused(zero_rebalance(optim, nullptr, 0, stream));
    EXPECT_OK(device.step());
    EXPECT_OK(device.reduce_with({}, ZERO_REDUCE_MEAN, stream));
    EXPECT_TRUE(ends(device.reduce_with({}, ZERO_REDUCE_MEAN, stream), ZERO_ERR_STATE,
                     "gradients are reduced"));
    EXPECT_OK(zero_drop_grads(optim));
    device.save(scratch / "saved");
  });
  for (int turn = 0; turn < 3; turn++) {
    host.give(turn);
    device.give(turn);
    EXPECT_OK(host.step());
    device.launch(graph);
  }
  expect_same(host.everything(), device.everything(), "after refusals");
}

TEST(DeviceCapture, sums_of_a_capture_are_not_those_of_calls_outside_of_it) {
  Captured device(defaults(), alone(1));
  device.seal();
  const auto reduce = [&] { EXPECT_OK(device.reduce_with({}, ZERO_REDUCE_MEAN, device.stream())); };
  const auto capture_refused = [&](const char* words) {
    device.capture([&] { EXPECT_EQ(device.step(), ZERO_ERR_STATE); });
    EXPECT_TRUE(says(words));
  };
  device.capture(reduce);
  EXPECT_TRUE(ends(device.step(), ZERO_ERR_STATE, "reduced in a capture"));
  float value = 0;
  EXPECT_TRUE(
      ends(zero_grad_get(device.optim(), 0, 0, 1, &value), ZERO_ERR_STATE, "reduced in a capture"));
  capture_refused("");
  EXPECT_OK(zero_drop_grads(device.optim()));
  reduce();
  capture_refused("before the capture began");
  EXPECT_OK(device.step());
  EXPECT_OK(zero_grad_ready(device.optim(), 0, nullptr, device.stream()));
  capture_refused("announced outside");
}

TEST(DeviceCapture, a_graph_that_is_out_of_date_makes_no_step_and_says_so) {
  const auto outdated = [&](const char* what, int32_t optimizer, const auto& change) {
    zero_options options = defaults();
    options.optimizer = optimizer;
    Captured device(options, alone(3));
    EXPECT_OK(device.step());
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
    EXPECT_OK(device.result().status) << what;
    EXPECT_EQ(device.result().step, 3) << what;
  };
  outdated("frozen", ZERO_OPTIMIZER_ADAMW, [](Captured& model) { model.freeze(0); });
  outdated("bound", ZERO_OPTIMIZER_ADAMW, [](Captured& model) {
    const std::vector<void*> data(model.size(), nullptr);
    EXPECT_OK(zero_bind_params(model.optim(), data.data(), nullptr, data.size()));
  });
  outdated("momentum", ZERO_OPTIMIZER_SGD, [](Captured& model) { model.set("momentum", 0.5, 1); });
  outdated("by pointer", ZERO_OPTIMIZER_ADAMW, [](Captured& model) {
    EXPECT_OK(zero_group_set_from(model.optim(), 0, "lr", nullptr, ZERO_FLOAT32));
  });
}

void expect_no_captures(CommKind kind, const char* why) {
  on_ranks(Meeting(kind, 2, {.seed = 5}), [&](zero_comm* comm, int) {
    Captured model(defaults(), comm);
    model.seal();
    void* const stream = model.stream();
    const auto refused = [&](zero_status status) {
      EXPECT_TRUE(ends(status, ZERO_ERR_UNSUPPORTED,
                       "the stream is being captured, but steps of this comm cannot be: "));
      EXPECT_TRUE(says(why));
    };
    model.capture([&] {
      refused(model.step());
      refused(model.reduce_with({}, ZERO_REDUCE_MEAN, stream));
      refused(zero_clip_grad_norm(model.optim(), nullptr, 0, 1, 2, nullptr, stream));
      refused(zero_clip_grad_value(model.optim(), 1, stream));
    });
    EXPECT_OK(model.step());
  });
}

TEST(DeviceCapture, where_hosts_wait_in_every_step_no_call_can_be_captured) {
  expect_no_captures(CommKind::hosts, "because streams cannot wait (rank 0: ");
  expect_no_captures(CommKind::staged, "devices cannot access each other's memory (rank 0: ");
}

TEST(DeviceCapture, ranks_that_differ_about_it_are_told) {
  on_ranks(Meeting(CommKind::nccl, 2, {.seed = 5}), [&](zero_comm* comm, int rank) {
    Captured model(defaults(), comm);
    model.seal();
    const auto step = [&] {
      EXPECT_TRUE(ends(model.step(), rank == 0 ? ZERO_ERR_PEER : ZERO_ERR_MISMATCH,
                       "rank 1 has a call that is not captured, rank 0 has a captured call"));
    };
    if (rank == 0)
      model.capture(step);
    else
      step();
    EXPECT_OK(model.step());
    model.finish();
  });
}

TEST(DeviceCapture, a_stream_that_is_left_out_of_the_capture_ends_it) {
  for (const char* const rule : {queued::order::kForked, queued::order::kJoined}) {
    const Meeting meeting(CommKind::nccl, 2, {.seed = 6, .forgotten = rule});
    on_ranks(meeting, [&](zero_comm* comm, int) {
      Captured model(defaults(), comm);
      model.seal();
      EXPECT_OK(model.chaos().begin_capture(model.stream()));
      bool queued = model.reduce_with({}, ZERO_REDUCE_MEAN, model.stream()) == ZERO_OK;
      queued = zero_clip_grad_value(model.optim(), 1, model.stream()) == ZERO_OK && queued;
      const bool ended = model.chaos().end_capture(model.stream()).ok();
      EXPECT_FALSE(queued && ended) << rule;
      (void)zero_drop_grads(model.optim());
    });
  }
}

TEST(DeviceCapture, a_failure_of_the_device_leaves_the_optimizer_as_it_was) {
  int failures = 0;
  for (int64_t call = 0; call < 80; call++) {
    Captured host(defaults(), alone(0)), device(defaults(), alone(1));
    EXPECT_OK(host.step());
    EXPECT_OK(device.step());
    EXPECT_OK(device.chaos().begin_capture(device.stream()));
    device.chaos().fail_once(call, Status(ZERO_ERR_MEMORY, "the device has failed once"));
    const zero_status status = device.step();
    device.chaos().fail_once(-1, Status());
    const auto graph = device.chaos().end_capture(device.stream());
    if (status == ZERO_OK) {
      ASSERT_TRUE(graph.ok()) << graph.failure().text();
      device.launch({*graph, nullptr});
    } else {
      failures++;
      EXPECT_OK(device.step());
    }
    EXPECT_OK(host.step());
    expect_same(host.everything(), device.everything(), "call " + std::to_string(call));
  }
  EXPECT_GT(failures, 20);
}

TEST(DeviceCapture, what_graphs_hold_is_given_back_with_the_optimizer) {
  const Meeting meeting(CommKind::device, 1, {.seed = 4});
  on_ranks(meeting, [](zero_comm* comm, int) {
    Captured device(defaults(), comm);
    device.seal();
    for (int i = 0; i < 3; i++) device.launch(device.capture_step());
    EXPECT_EQ(device.result().step, 3);
  });
  EXPECT_EQ(meeting.chaos().living(), 0);
}

}  // namespace
}  // namespace zero::test
