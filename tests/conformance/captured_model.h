// SPDX-License-Identifier: Apache-2.0
// A replica that is trained by calls and by graph launches, on a device or the host.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "replica.h"
#include "support/chaos_device.h"
#include "support/comms.h"
#include "support/cuda_graph.h"
#include "support/expect.h"

namespace zero::test {

/// A graph of the chaos device or of a GPU.
struct Graph {
  std::shared_ptr<const ChaosWorld::Graph> chaos = nullptr;
  std::shared_ptr<void> gpu = nullptr;
  bool made() const { return chaos != nullptr || gpu != nullptr; }
};

inline zero_options defaults() {
  auto options = initialized<zero_options>();
  options.bucket_bytes = 4096;
  return options;
}

/// Returns a comm on a device with that seed, or on the host for 0.
inline std::shared_ptr<zero_comm> alone(uint64_t seed) {
  return seed == 0 ? alone() : alone(Devices{.seed = seed});
}

/// Two groups, and one parameter with its own settings.
class Captured : public Replica {
 public:
  template <class Seat>
  Captured(const zero_options& options, Seat comm)
      : Replica(comm, options, {}, true), chaos_(as_chaos(Replica::device())) {
    add_tensors({{"w", 3001}, {"b", 1, ZERO_FLOAT32, 0, true, true}});
    add_tensors(
        {{"half", 2500, ZERO_BFLOAT16}, {"f16", 300, ZERO_FLOAT16}, {"f64", 700, ZERO_FLOAT64}});
  }

  ChaosDevice& chaos() const { return *chaos_; }

  /// Queues new gradients on the stream. One of them is infinite if `bad`.
  void give(int turn, bool bad = false) {
    gradients(turn);
    if (!bad) return;
    std::vector<double> of = made_up(0, 3001, 10 + turn);
    of[7] = INFINITY;
    put(grad(0), encode(ZERO_FLOAT32, of));
  }
  /// Sets a parameter to a value that differs from the other ranks'.
  void spoil() { set_data(2, 7); }
  zero_status step(void* stream) { return Optim::step(ZERO_REDUCE_MEAN, stream); }
  zero_status step() { return step(stream()); }
  /// Takes a step in which no rank has a gradient of that parameter.
  zero_status step_without(size_t param) {
    std::vector<void*> grads;
    for (size_t t = 0; t < size(); t++) grads.push_back(t == param ? nullptr : grad(t).at());
    return step_with(grads, ZERO_REDUCE_MEAN, stream());
  }

  /// Returns the graph that `body` captures.
  template <class Body>
  Graph capture(const Body& body) {
    if (chaos_ == nullptr) {
      EXPECT_OK(begin_cuda_capture(stream()));
      body();
      auto graph = end_cuda_capture(stream());
      EXPECT_TRUE(graph.ok()) << graph.failure().text();
      return {nullptr, graph.ok() ? *graph : nullptr};
    }
    EXPECT_OK(chaos_->begin_capture(stream()));
    body();
    auto graph = chaos_->end_capture(stream());
    EXPECT_TRUE(graph.ok()) << graph.failure().text();
    return {graph.ok() ? *graph : nullptr, nullptr};
  }
  Graph capture_step() {
    return capture([&] { EXPECT_OK(step()); });
  }
  void launch(const Graph& graph) {
    EXPECT_OK(graph.gpu != nullptr ? launch_cuda_graph(graph.gpu, stream())
                                   : chaos_->launch_graph(*graph.chaos, stream()));
  }
  zero_result result() const {
    finish();
    return found();
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    move_bytes(device(), stream(), to, bytes.data(), bytes.size());
  }

  /// Includes the result of the latest step.
  Contents everything() const {
    const zero_result end = result();  // parameters may arrive after the step
    Contents all = Replica::everything();
    all["result step"] = bytes_of(static_cast<double>(end.step));
    all["skipped"] = bytes_of(static_cast<double>(end.skipped));
    all["nonfinite"] = bytes_of(static_cast<double>(end.nonfinite));
    all["status"] = bytes_of(end.status);
    all["loss scale"] = bytes_of(end.loss_scale);
    all["norm"] = bytes_of(std::isnan(end.grad_norm) ? -3 : end.grad_norm);
    all["clip factor"] = bytes_of(end.clip_factor);
    return all;
  }

 private:
  const std::shared_ptr<ChaosDevice> chaos_;
};

/// The same model on the host, where steps are calls, and on a device.
struct Both {
  explicit Both(std::shared_ptr<zero_comm> comm, zero_options options = defaults())
      : device(options, std::move(comm)), host((options.overlap_gather = 0, options), alone()) {
    device.seal();
  }
  explicit Both(uint64_t seed, const zero_options& options = defaults())
      : Both(alone(seed), options) {}

  void give(int turn) {
    for (Captured* const one : {&host, &device}) one->give(turn);
  }
  void launch(int turn, const Graph& graph) {
    give(turn);
    EXPECT_OK(host.step());
    device.launch(graph);
  }
  template <class Call>
  void call(const Call& call) {
    for (Captured* const one : {&host, &device}) EXPECT_OK(call(*one));
  }
  void expect_same(const std::string& when) const {
    test::expect_same(host.everything(), device.everything(), when);
  }

  Captured device, host;
};

/// Runs body(both) with devices of many seeds, and checks that the results are the same.
template <class Body>
void on_both(uint64_t seeds, const zero_options& options, const Body& body) {
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    Both both(seed, options);
    body(both);
    both.expect_same("seed " + std::to_string(seed));
  }
}

}  // namespace zero::test
