// SPDX-License-Identifier: Apache-2.0
// What a rank trains by calls and by launches of graphs, on a device or the host.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "stored.h"
#include "support/cuda_graph.h"
#include "support/expect.h"

namespace zero::test {

/// Of the chaos device, or of a GPU.
struct Graph {
  std::shared_ptr<const ChaosWorld::Graph> chaos = nullptr;
  std::shared_ptr<void> gpu = nullptr;
  bool made() const { return chaos != nullptr || gpu != nullptr; }
};

struct Tensor {
  const char* name;
  int64_t size;
  int32_t dtype = ZERO_FLOAT32;
};

inline constexpr Tensor kTensors[] = {{"w", 3001},
                                      {"b", 1},
                                      {"half", 2500, ZERO_BFLOAT16},
                                      {"f16", 300, ZERO_FLOAT16},
                                      {"f64", 700, ZERO_FLOAT64}};
inline constexpr size_t kCount = std::size(kTensors);
inline constexpr size_t kFirst = 2;  // of the second group

inline zero_options defaults() {
  auto options = initialized<zero_options>();
  options.bucket_bytes = 4096;
  return options;
}

/// What a rank trains, on a device or the host: two groups, one parameter with settings of its own.
class Model {
 public:
  Model(const zero_options& options, std::shared_ptr<Comm> seat)
      : device_(seat->device()), chaos_(std::dynamic_pointer_cast<ChaosDevice>(device_)) {
    comm_ = api::add_handle(std::move(seat));
    if (device_ != nullptr) stream_ = make_stream(device_).value();
    EXPECT_EQ(zero_create(&optim, comm_, &options), ZERO_OK) << zero_last_error();
    std::vector<zero_param> params(kCount);
    for (size_t t = 0; t < kCount; t++) {
      data_.push_back(made(encode(kTensors[t].dtype, values(t, 0))));
      grads_.push_back(made(encode(kTensors[t].dtype, values(t, 1))));
      ZERO_INIT(params[t]);
      params[t].name = kTensors[t].name;
      params[t].shape = &kTensors[t].size;
      params[t].ndim = 1;
      params[t].dtype = kTensors[t].dtype;
      params[t].data = data_[t].at;
      params[t].grad = grads_[t].at;
      if (t != 1) continue;
      params[t].flags = ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;
      params[t].lr_scale = 0.3;
      params[t].weight_decay = 0.125;
    }
    add(params.data(), kFirst);
    add(params.data() + kFirst, kCount - kFirst);
  }
  ~Model() {
    zero_free(optim);
    zero_comm_free(comm_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void* stream() const { return stream_.handle(); }
  ChaosDevice& device() const { return *chaos_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }

  /// New gradients, behind what the stream holds; one is infinite where `bad`.
  void give(int turn, bool bad = false) {
    for (size_t t = 0; t < kCount; t++) {
      std::vector<double> of = values(t, 10 + turn + 100 * zero_comm_rank(comm_));
      if (bad && t == 0) of[7] = INFINITY;
      put(grads_[t], encode(kTensors[t].dtype, of));
    }
  }
  /// Another value of a parameter than the other ranks have.
  void spoil() { write(data_[2].at, encode(kTensors[2].dtype, values(2, 7))); }
  zero_status step(void* stream) {
    auto with = initialized<zero_step_options>();
    with.stream = stream;
    return zero_step(optim, &with);
  }
  zero_status step() { return step(stream()); }
  /// No rank has a gradient of that parameter.
  zero_status step_without(size_t param) {
    std::vector<void*> grads;
    for (size_t t = 0; t < kCount; t++) grads.push_back(t == param ? nullptr : grads_[t].at);
    auto with = initialized<zero_step_options>();
    with.grads = grads.data();
    with.grad_count = kCount;
    with.stream = stream();
    return zero_step(optim, &with);
  }

  /// The graph of what `body` captures.
  template <class Body>
  Graph capture(const Body& body) {
    if (chaos_ == nullptr) {
      EXPECT_TRUE(begin_cuda_capture(stream()).ok());
      body();
      auto graph = end_cuda_capture(stream());
      EXPECT_TRUE(graph.ok()) << graph.failure().text();
      return {nullptr, graph.ok() ? *graph : nullptr};
    }
    EXPECT_TRUE(chaos_->begin_capture(stream()).ok());
    body();
    auto graph = chaos_->end_capture(stream());
    EXPECT_TRUE(graph.ok()) << graph.failure().text();
    return {graph.ok() ? *graph : nullptr, nullptr};
  }
  Graph capture_step() {
    return capture([&] { EXPECT_EQ(step(), ZERO_OK) << zero_last_error(); });
  }
  void launch(const Graph& graph) {
    const Status status = graph.gpu != nullptr ? launch_cuda_graph(graph.gpu, stream())
                                               : chaos_->launch_graph(*graph.chaos, stream());
    EXPECT_TRUE(status.ok()) << status.text();
  }
  /// What the stream holds is done.
  void await() {
    if (device_ == nullptr) return;
    const Event done = make_event(device_).value();
    EXPECT_TRUE(device_->record(done.handle(), stream()).ok());
    const Status status = zero::await(*device_, done.handle(), 30'000, "a test's work");
    EXPECT_TRUE(status.ok()) << status.text();
  }
  zero_result result() {
    await();
    auto out = initialized<zero_result>();
    (void)zero_step_result(optim, &out);
    return out;
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    if (device_ == nullptr)
      std::memcpy(to, bytes.data(), bytes.size());
    else
      EXPECT_TRUE(device_->copy(stream(), to, bytes.data(), bytes.size()).ok());
  }

  /// All that training goes on from, in words and bytes; the same on every rank.
  std::map<std::string, std::vector<std::byte>> everything() {
    const zero_result found = result();  // parameters may travel behind a step
    std::map<std::string, std::vector<std::byte>> all;
    for (size_t t = 0; t < kCount; t++) {
      const std::string name = kTensors[t].name;
      std::vector<std::byte>& data = all[name];
      data.resize(data_[t].bytes);
      if (device_ == nullptr)
        std::memcpy(data.data(), data_[t].at, data.size());
      else
        EXPECT_TRUE(device_->copy(stream(), data.data(), data_[t].at, data.size()).ok());
      unify_nans(kTensors[t].dtype, data);
      const auto param = static_cast<int64_t>(t);
      const char* slots[8];
      size_t count = 0;
      EXPECT_EQ(zero_state_info(optim, param, nullptr, slots, 8, &count), ZERO_OK);
      for (size_t s = 0; s < count; s++) {
        std::vector<std::byte>& state = all[name + "." + slots[s]];
        state.resize(static_cast<size_t>(kTensors[t].size) * sizeof(double));
        EXPECT_EQ(zero_state_gather(optim, param, slots[s], ZERO_ALL_RANKS, state.data(),
                                    static_cast<size_t>(kTensors[t].size)),
                  ZERO_OK)
            << zero_last_error();
        unify_nans(ZERO_FLOAT64, state);
      }
      number(all[name + " step"], scalar(param));
    }
    number(all["step"], static_cast<double>(found.step));
    number(all["skipped"], static_cast<double>(found.skipped));
    number(all["nonfinite"], static_cast<double>(found.nonfinite));
    number(all["status"], found.status);
    number(all["loss scale"], found.loss_scale);
    number(all["norm"], std::isnan(found.grad_norm) ? -3 : found.grad_norm);
    number(all["clip factor"], found.clip_factor);
    return all;
  }
  double scalar(int64_t param) const {
    double value = -1;
    EXPECT_EQ(zero_state_get(optim, param, "step", 0, 1, &value), ZERO_OK) << zero_last_error();
    return value;
  }

  zero_optim* optim = nullptr;

 private:
  struct Memory {
    std::vector<std::byte> host;
    DeviceMemory there;
    std::byte* at;
    size_t bytes;
  };

  static std::vector<double> values(size_t tensor, int turn) {
    std::vector<double> all(static_cast<size_t>(kTensors[tensor].size));
    for (size_t i = 0; i < all.size(); i++)
      all[i] = static_cast<double>((i * 37 + tensor * 11 + static_cast<size_t>(turn) * 101) % 257) /
                   259 -
               0.5;
    return all;
  }
  static void number(std::vector<std::byte>& to, double value) {
    to.resize(sizeof value);
    std::memcpy(to.data(), &value, sizeof value);
  }
  Memory made(const std::vector<std::byte>& bytes) {
    Memory memory;
    memory.bytes = bytes.size();
    memory.host.resize(device_ == nullptr ? bytes.size() : 0);
    if (device_ != nullptr)
      memory.there = DeviceMemory::allocate(device_, bytes.size(), "a tensor").value();
    memory.at = device_ == nullptr ? memory.host.data() : memory.there.data();
    put(memory, bytes);
    await();
    return memory;
  }
  void put(const Memory& memory, const std::vector<std::byte>& bytes) const {
    write(memory.at, bytes);
  }
  void add(const zero_param* params, size_t count) {
    EXPECT_EQ(zero_register_params(optim, nullptr, params, count, nullptr), ZERO_OK)
        << zero_last_error();
  }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<ChaosDevice> chaos_;
  Stream stream_;
  zero_comm* comm_ = nullptr;
  std::vector<Memory> data_, grads_;
};

inline void expect_same(Model& a, Model& b, const std::string& when) {
  const auto of_a = a.everything(), of_b = b.everything();
  ASSERT_EQ(of_a.size(), of_b.size()) << when;
  for (const auto& [name, bytes] : of_a)
    EXPECT_TRUE(bytes == of_b.at(name)) << name << ", " << when;
}

inline std::shared_ptr<Comm> alone(uint64_t seed) {
  return create_solo({}, seed == 0 ? nullptr : chaos(seed)->make_device()).value();
}

}  // namespace zero::test
