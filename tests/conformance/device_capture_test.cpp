// SPDX-License-Identifier: Apache-2.0
// Steps that are captured once and launched again and again: as many steps as calls would have
// made, with the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "captured_model.h"
#include "support/clock.h"
#include "support/emulated_launches.h"
#include "support/gpu_wanted.h"
#include "support/ranks.h"
#include "support/scalar.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

struct Feature {
  const char* name;
  std::function<void(zero_options&)> set;
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

/// Turns of which launches make some, calls the others.
struct Turns {
  uint64_t seed;
  int count = 12;
  bool bad(int turn) const { return turn % 4 == 2; }
  /// The first may be a launch.
  bool launched(int turn) const {
    return std::mt19937_64(seed * 64 + static_cast<uint64_t>(turn))() % 3 != 0;
  }
  bool asks(int turn) const {
    return std::mt19937_64(seed * 64 + 32 + static_cast<uint64_t>(turn))() % 4 == 0;
  }
};

void run(Model& model, const Turns& turns, bool captures) {
  Graph graph;
  for (int turn = 0; turn < turns.count; turn++) {
    const bool launched = captures && turns.launched(turn);
    if (launched && !graph.made()) graph = model.capture_step();
    model.give(turn, turns.bad(turn));
    if (launched) {
      // Parameters of a call before, with overlap_gather.
      EXPECT_EQ(zero_param_wait(model.optim, ZERO_ALL_PARAMS, model.stream()), ZERO_OK);
      model.launch(graph);
    } else {
      const zero_status status = model.step();
      EXPECT_GE(status == ZERO_ERR_NONFINITE ? 0 : status, 0) << zero_last_error();
    }
    if (turns.asks(turn)) (void)model.result();
  }
}

TEST(DeviceCapture, launches_end_with_the_bits_of_calls_on_the_host) {
  uint64_t seed = 1;
  for (const Feature& feature : kFeatures) {
    for (int repeat = 0; repeat < 4; repeat++, seed++) {
      zero_options options = defaults();
      feature.set(options);
      Model device(options, alone(seed));
      options.overlap_gather = 0;
      Model host(options, alone(0));
      EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
      run(host, {seed}, false);
      run(device, {seed}, true);
      expect_same(host, device, std::string(feature.name) + ", seed " + std::to_string(seed));
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
    zero_options options = defaults();
    feature.set(options);
    Model device(options, create_solo({}, *gpu).value());
    options.overlap_gather = 0;
    Model host(options, alone(0));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    run(host, {seed}, false);
    run(device, {seed}, true);
    expect_same(host, device, feature.name);
    seed++;
  }
}

TEST(DeviceCapture, a_call_that_leaves_a_gradient_out_comes_between_launches) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    Model host(defaults(), alone(0)), device(defaults(), alone(seed));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    const Graph graph = device.capture_step();
    for (int turn = 0; turn < 6; turn++) {
      host.give(turn);
      device.give(turn);
      if (turn % 3 == 1) {
        EXPECT_EQ(host.step_without(3), ZERO_OK) << zero_last_error();
        EXPECT_EQ(device.step_without(3), ZERO_OK) << zero_last_error();
      } else {
        EXPECT_EQ(host.step(), ZERO_OK);
        device.launch(graph);
      }
    }
    expect_same(host, device, "seed " + std::to_string(seed));
  }
}

TEST(DeviceCapture, calls_of_one_capture_on_two_streams_go_on_from_each_other) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    Model host(defaults(), alone(0)), device(defaults(), alone(seed));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    const Stream other = make_stream(device.shared_device()).value();
    const Event forked = make_event(device.shared_device()).value();
    const Event joined = make_event(device.shared_device()).value();
    const Graph graph = device.capture([&] {
      EXPECT_TRUE(device.device().record(forked.handle(), device.stream()).ok());
      EXPECT_EQ(zero_reduce_grads(device.optim, nullptr, 0, ZERO_REDUCE_MEAN, device.stream()),
                ZERO_OK);
      EXPECT_TRUE(device.device().wait(other.handle(), forked.handle(), "forked").ok());
      EXPECT_EQ(device.step(other.handle()), ZERO_OK) << zero_last_error();
      EXPECT_TRUE(device.device().record(joined.handle(), other.handle()).ok());
      EXPECT_TRUE(device.device().wait(device.stream(), joined.handle(), "joined").ok());
    });
    for (int turn = 0; turn < 3; turn++) {
      host.give(turn);
      device.give(turn);
      EXPECT_EQ(host.step(), ZERO_OK);
      device.launch(graph);
    }
    expect_same(host, device, "seed " + std::to_string(seed));
  }
}

using Ends = std::vector<std::map<std::string, std::vector<std::byte>>>;

/// The same turns of two ranks, by calls alone or by launches too.
Ends together(const zero_options& options, uint64_t seed, bool captures, const Join& join) {
  Ends ends(2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    Model model(options, join(rank).value());
    EXPECT_EQ(zero_seal(model.optim), ZERO_OK);
    run(model, {seed, 8}, captures);
    ends[static_cast<size_t>(rank)] = model.everything();
    return {};
  });
  return ends;
}

Ends over_nccl(const zero_options& options, uint64_t seed, bool captures) {
  const NcclRanks ranks(2, seed);
  Ends ends = together(options, seed, captures, [&](int rank) { return ranks.join(rank); });
  EXPECT_EQ(ranks.knobs().met, 0) << "reductions and gathers could run at once";
  return ends;
}

Ends over_memory(const zero_options& options, uint64_t seed, bool captures) {
  const auto world = chaos(seed);
  const std::string name = unique_name();
  const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
  return together(options, seed, captures,
                  [&](int rank) { return create_local(name, rank, 2, {}, devices[rank]); });
}

void expect_launches_equal_calls(Ends (*way)(const zero_options&, uint64_t, bool)) {
  uint64_t seed = 1;
  for (const Feature& feature : kFeatures) {
    zero_options options = defaults();
    feature.set(options);
    for (int repeat = 0; repeat < 2; repeat++, seed++) {
      const Ends calls = way(options, seed, false);
      EXPECT_TRUE(calls == way(options, seed + 1000, false)) << feature.name;
      EXPECT_TRUE(calls == way(options, seed, true)) << feature.name << ", " << seed;
    }
  }
}

TEST(DeviceCapture, launches_of_two_ranks_over_nccl_end_with_the_bits_of_calls) {
  expect_launches_equal_calls(over_nccl);
}

TEST(DeviceCapture, launches_of_two_ranks_over_memory_end_with_the_bits_of_calls) {
  expect_launches_equal_calls(over_memory);
}

TEST(DeviceCapture, calls_of_one_capture_go_on_from_each_other) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    Model host(defaults(), alone(0)), device(defaults(), alone(seed));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    const auto calls = [](Model& model, void* stream) {
      EXPECT_EQ(zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, stream), ZERO_OK)
          << zero_last_error();
      EXPECT_EQ(zero_clip_grad_norm(model.optim, nullptr, 0, 0.5, 2, nullptr, stream), ZERO_OK);
      EXPECT_EQ(zero_clip_grad_value(model.optim, 0.01, stream), ZERO_OK);
      EXPECT_EQ(model.step(stream), ZERO_OK) << zero_last_error();
    };
    const Graph graph = device.capture([&] { calls(device, device.stream()); });
    for (int turn = 0; turn < 5; turn++) {
      host.give(turn);
      device.give(turn);
      calls(host, nullptr);
      device.launch(graph);
    }
    expect_same(host, device, "seed " + std::to_string(seed));
  }
}

TEST(DeviceCapture, what_the_host_changes_reaches_later_launches) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    const Scratch scratch;
    zero_options options = defaults();
    options.nonfinite = ZERO_NONFINITE_SKIP;
    Model host(options, alone(0)), device(options, alone(seed));
    EXPECT_EQ(zero_seal(device.optim), ZERO_OK);
    const Graph graph = device.capture_step();
    int turn = 0;
    const auto steps = [&](int count) {
      for (const int end = turn + count; turn < end; turn++) {
        host.give(turn);
        device.give(turn);
        EXPECT_EQ(host.step(), ZERO_OK);
        device.launch(graph);
      }
      device.await();
    };
    const auto both = [&](const auto& body) {
      for (Model* const one : {&host, &device})
        EXPECT_EQ(body(one->optim), ZERO_OK) << zero_last_error();
    };
    steps(2);
    both([](zero_optim* optim) { return zero_group_set(optim, 0, "lr", 0.25); });
    steps(2);
    both([](zero_optim* optim) { return zero_group_set(optim, ZERO_ALL_GROUPS, "loss_scale", 4); });
    steps(1);
    const std::string saved = scratch / "device", of_host = scratch / "host";
    EXPECT_EQ(zero_state_save(host.optim, of_host.c_str(), nullptr), ZERO_OK);
    EXPECT_EQ(zero_state_save(device.optim, saved.c_str(), nullptr), ZERO_OK) << zero_last_error();
    steps(2);
    both([&](zero_optim* optim) { return zero_state_load(optim, saved.c_str(), nullptr); });
    steps(2);
    both([](zero_optim* optim) { return set_scalar(optim, 0, "step", 40); });
    both([](zero_optim* optim) { return zero_group_set(optim, ZERO_ALL_GROUPS, "beta1", 0.5); });
    steps(2);
    expect_same(host, device, "seed " + std::to_string(seed));
  }
}

TEST(DeviceCapture, a_rank_that_is_late_at_every_launch_is_waited_for_each_time_anew) {
  constexpr int64_t kLimitMs = 300;
  const Clock clock;
  const std::string name = unique_name();
  const auto device_of = [](uint64_t seed) {
    return ChaosWorld::create({.seed = seed, .patience = INT64_MAX, .emulate = emulate})
        ->make_device();
  };
  const std::shared_ptr<ChaosDevice> devices[] = {device_of(1), device_of(2)};
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    CommOptions options;
    options.timeout_ms = options.late_ms = kLimitMs;
    options.rendezvous_ms = 20'000;
    std::shared_ptr<Comm> comm = create_local(name, rank, 2, options, devices[rank]).value();
    Model model(defaults(), comm);
    EXPECT_EQ(zero_seal(model.optim), ZERO_OK);
    const Graph graph = model.capture_step();
    const Event done = make_event(devices[rank]).value();
    for (int step = 0; step < 10; step++) {
      if (rank == 1) Clock::pass(kLimitMs / 2, 1);
      model.launch(graph);
      EXPECT_TRUE(devices[rank]->record(done.handle(), model.stream()).ok());
      EXPECT_TRUE(await(*devices[rank], done.handle(), 20'000, "a launch").ok());
    }
    EXPECT_FALSE(comm->aborted()) << comm->failure().text;
    return "";
  });
}

}  // namespace
}  // namespace zero::test
