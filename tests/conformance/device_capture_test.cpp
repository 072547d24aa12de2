// SPDX-License-Identifier: Apache-2.0
// Steps that are captured once and launched repeatedly give bitwise the same results as the same
// number of calls.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "api/handles.h"
#include "captured_model.h"
#include "comm/create.h"
#include "support/clock.h"
#include "support/gpu_wanted.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

struct Feature {
  const char* name;
  std::function<void(zero_options&)> set;

  zero_options options() const {
    zero_options made = defaults();
    set(made);
    return made;
  }
};

const std::vector<Feature> kFeatures = {
    {"plain", [](zero_options&) {}},
    {"clip", [](zero_options& o) { o.max_grad_norm = 0.5; }},
    {"clip by the largest",
     [](zero_options& o) { o.max_grad_norm = 0.1, o.grad_norm_type = INFINITY; }},
    {"loss scale",
     [](zero_options& o) { o.loss_scale = 1024, o.growth_interval = 2, o.max_grad_norm = 0.5; }},
    {"skip", [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_SKIP; }},
    {"error", [](zero_options& o) { o.nonfinite = ZERO_NONFINITE_ERROR; }},
    {"remainders",
     [](zero_options& o) { o.master = ZERO_MASTER_REMAINDER, o.max_grad_norm = 0.5; }},
    {"no masters", [](zero_options& o) { o.master = ZERO_MASTER_NONE; }},
    {"nadam", [](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_NADAM; }},
    {"lion",
     [](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_LION, o.share_dtype = ZERO_BFLOAT16; }},
    {"sgd", [](zero_options& o) { o.optimizer = ZERO_OPTIMIZER_SGD; }},
    {"overlap", [](zero_options& o) { o.overlap_gather = 1; }},
    {"wire", [](zero_options& o) { o.wire_dtype = ZERO_BFLOAT16; }},
};

/// The turns of a training. Launches run some of them, and calls run the others.
struct Turns {
  uint64_t seed;
  int count = 12;
  bool bad(int turn) const { return turn % 4 == 2; }
  /// The first turn may be a launch.
  bool launched(int turn) const {
    return std::mt19937_64(seed * 64 + static_cast<uint64_t>(turn))() % 3 != 0;
  }
  bool asks(int turn) const {
    return std::mt19937_64(seed * 64 + 32 + static_cast<uint64_t>(turn))() % 4 == 0;
  }
};

void run(Captured& model, const Turns& turns, bool captures) {
  Graph graph;
  for (int turn = 0; turn < turns.count; turn++) {
    const bool launched = captures && turns.launched(turn);
    if (launched && !graph.made()) graph = model.capture_step();
    model.give(turn, turns.bad(turn));
    if (launched) {
      // An earlier call may still gather parameters with overlap_gather.
      model.wait(ZERO_ALL_PARAMS, model.stream());
      model.launch(graph);
    } else {
      const zero_status status = model.step();
      EXPECT_GE(status == ZERO_ERR_NONFINITE ? 0 : status, 0) << zero_last_error();
    }
    if (turns.asks(turn)) (void)model.result();
  }
}

/// Runs turns as calls on the host, and partly as launches on the device.
void expect_launches_equal_host(Both& both, const Feature& feature, uint64_t seed) {
  run(both.host, {seed}, false);
  run(both.device, {seed}, true);
  both.expect_same(std::string(feature.name) + ", seed " + std::to_string(seed));
}

TEST(DeviceCapture, launches_end_with_the_bits_of_calls_on_the_host) {
  uint64_t seed = 1;
  for (const Feature& feature : kFeatures) {
    for (int repeat = 0; repeat < 4; repeat++, seed++) {
      Both both(seed, feature.options());
      expect_launches_equal_host(both, feature, seed);
    }
  }
}

TEST(DeviceCapture, launches_on_a_gpu_end_with_the_bits_of_the_host) {
  const Result<std::shared_ptr<Device>> gpu = open_cuda(0);
  if (!gpu.ok()) {
    ASSERT_FALSE(gpu_is_wanted()) << gpu.failure().text();
    GTEST_SKIP() << gpu.failure().text();
  }
  uint64_t seed = 1;
  for (const Feature& feature : kFeatures) {
    zero_comm* const comm = api::add_handle(create_solo({}, *gpu).value());
    Both both({comm, zero_comm_free}, feature.options());
    expect_launches_equal_host(both, feature, seed++);
  }
}

TEST(DeviceCapture, a_call_that_leaves_a_gradient_out_comes_between_launches) {
  on_both(10, defaults(), [](Both& both) {
    const Graph graph = both.device.capture_step();
    for (int turn = 0; turn < 6; turn++) {
      if (turn % 3 != 1) {
        both.launch(turn, graph);
        continue;
      }
      both.give(turn);
      both.call([](Captured& one) { return one.step_without(3); });
    }
  });
}

TEST(DeviceCapture, calls_of_one_capture_on_two_streams_go_on_from_each_other) {
  on_both(20, defaults(), [](Both& both) {
    Captured& device = both.device;
    const Stream other = make_stream(device.device()).value();
    const Event forked = make_event(device.device()).value();
    const Event joined = make_event(device.device()).value();
    const Graph graph = device.capture([&] {
      EXPECT_OK(device.chaos().record(forked.handle(), device.stream()));
      EXPECT_OK(device.reduce_with({}, ZERO_REDUCE_MEAN, device.stream()));
      EXPECT_OK(device.chaos().wait(other.handle(), forked.handle(), "forked"));
      EXPECT_OK(device.step(other.handle()));
      EXPECT_OK(device.chaos().record(joined.handle(), other.handle()));
      EXPECT_OK(device.chaos().wait(device.stream(), joined.handle(), "joined"));
    });
    for (int turn = 0; turn < 3; turn++) both.launch(turn, graph);
  });
}

/// Runs the same turns on two ranks, with calls only or with launches too.
std::vector<Contents> together(CommKind kind, const zero_options& options, uint64_t seed,
                               bool captures) {
  const Meeting meeting(kind, 2, {.seed = seed});
  std::vector<Contents> ends(2);
  on_ranks(meeting, [&](zero_comm* comm, int rank) {
    Captured model(options, comm);
    model.seal();
    run(model, {seed, 8}, captures);
    ends[static_cast<size_t>(rank)] = model.everything();
  });
  if (kind == CommKind::nccl) {
    EXPECT_EQ(meeting.nccl().knobs().met, 0) << "reductions and gathers could run at once";
  }
  return ends;
}

void expect_launches_equal_calls(CommKind kind) {
  uint64_t seed = 1;
  for (const Feature& feature : kFeatures) {
    const zero_options options = feature.options();
    for (int repeat = 0; repeat < 2; repeat++, seed++) {
      const std::vector<Contents> calls = together(kind, options, seed, false);
      EXPECT_TRUE(calls == together(kind, options, seed + 1000, false)) << feature.name;
      EXPECT_TRUE(calls == together(kind, options, seed, true)) << feature.name << ", " << seed;
    }
  }
}

TEST(DeviceCapture, launches_of_two_ranks_over_nccl_end_with_the_bits_of_calls) {
  expect_launches_equal_calls(CommKind::nccl);
}

TEST(DeviceCapture, launches_of_two_ranks_over_memory_end_with_the_bits_of_calls) {
  expect_launches_equal_calls(CommKind::gates);
}

TEST(DeviceCapture, calls_of_one_capture_go_on_from_each_other) {
  on_both(10, defaults(), [](Both& both) {
    const auto calls = [](Captured& model) {
      void* const stream = model.stream();
      EXPECT_OK(model.reduce_with({}, ZERO_REDUCE_MEAN, stream));
      EXPECT_OK(zero_clip_grad_norm(model.optim(), nullptr, 0, 0.5, 2, nullptr, stream));
      EXPECT_OK(zero_clip_grad_value(model.optim(), 0.01, stream));
      EXPECT_OK(model.step());
    };
    const Graph graph = both.device.capture([&] { calls(both.device); });
    for (int turn = 0; turn < 5; turn++) {
      both.give(turn);
      calls(both.host);
      both.device.launch(graph);
    }
  });
}

TEST(DeviceCapture, what_the_host_changes_reaches_later_launches) {
  zero_options options = defaults();
  options.nonfinite = ZERO_NONFINITE_SKIP;
  on_both(10, options, [](Both& both) {
    const Scratch scratch;
    const Graph graph = both.device.capture_step();
    int turn = 0;
    const auto steps = [&](int count) {
      for (const int end = turn + count; turn < end; turn++) both.launch(turn, graph);
      both.device.finish();
    };
    const auto set = [&](const char* name, double value, int32_t group = ZERO_ALL_GROUPS) {
      for (Captured* const one : {&both.host, &both.device}) one->set(name, value, group);
    };
    steps(2);
    set("lr", 0.25, 0);
    steps(2);
    set("loss_scale", 4);
    steps(1);
    both.host.save(scratch / "host");
    both.device.save(scratch / "device");
    steps(2);
    for (Captured* const one : {&both.host, &both.device}) one->load(scratch / "device");
    steps(2);
    both.call([](Captured& one) { return one.set_scalar(0, "step", 40); });
    set("beta1", 0.5);
    steps(2);
  });
}

TEST(DeviceCapture, a_rank_that_is_late_at_every_launch_is_waited_for_each_time_anew) {
  constexpr int64_t kLimitMs = 300;
  const Clock clock;
  CommOptions options;
  options.timeout_ms = options.late_ms = kLimitMs;
  options.rendezvous_ms = 20'000;
  on_ranks(Meeting(CommKind::gates, 2, {.seed = 2, .options = options}),
           [&](zero_comm* comm, int rank) {
             Captured model(defaults(), comm);
             model.seal();
             const Graph graph = model.capture_step();
             for (int step = 0; step < 10; step++) {
               if (rank == 1) Clock::pass(kLimitMs / 2, 1);
               model.launch(graph);
               model.finish();
             }
             auto failure = initialized<zero_failure>();
             EXPECT_OK(zero_comm_failure(comm, &failure));
             EXPECT_OK(failure.status) << failure.text;
           });
}

}  // namespace
}  // namespace zero::test
