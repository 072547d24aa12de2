// SPDX-License-Identifier: Apache-2.0
// Steps that are captured once and launched again and again: as many steps as calls would have
// made, with the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "step/queued/queue.h"
#include "stored.h"
#include "support/cuda_graph.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

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

constexpr Tensor kTensors[] = {{"w", 3001},
                               {"b", 1},
                               {"half", 2500, ZERO_BFLOAT16},
                               {"f16", 300, ZERO_FLOAT16},
                               {"f64", 700, ZERO_FLOAT64}};
constexpr size_t kCount = std::size(kTensors);
constexpr size_t kFirst = 2;  // of the second group

zero_options defaults() {
  zero_options options;
  zero_options_init(&options, sizeof options);
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
      zero_param_init(&params[t], sizeof params[t]);
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
  zero_status step(void* stream) {
    zero_step_options with;
    zero_step_options_init(&with, sizeof with);
    with.stream = stream;
    return zero_step(optim, &with);
  }
  zero_status step() { return step(stream()); }
  /// No rank has a gradient of that parameter.
  zero_status step_without(size_t param) {
    std::vector<void*> grads;
    for (size_t t = 0; t < kCount; t++) grads.push_back(t == param ? nullptr : grads_[t].at);
    zero_step_options with;
    zero_step_options_init(&with, sizeof with);
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
    zero_result out;
    zero_result_init(&out, sizeof out);
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
    EXPECT_EQ(zero_state_get_scalar(optim, param, "step", &value), ZERO_OK) << zero_last_error();
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

void expect_same(Model& a, Model& b, const std::string& when) {
  const auto of_a = a.everything(), of_b = b.everything();
  ASSERT_EQ(of_a.size(), of_b.size()) << when;
  for (const auto& [name, bytes] : of_a)
    EXPECT_TRUE(bytes == of_b.at(name)) << name << ", " << when;
}

std::shared_ptr<Comm> alone(uint64_t seed) {
  return create_solo({}, seed == 0 ? nullptr : chaos(seed)->make_device()).value();
}

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
  if (!gpu.ok()) GTEST_SKIP() << gpu.failure().text();
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
      EXPECT_EQ(zero_clip_grad_norm(model.optim, 0.5, 2, nullptr, stream), ZERO_OK);
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
    both([](zero_optim* optim) { return zero_loss_scale_set(optim, 4); });
    steps(1);
    const std::string saved = scratch / "device", of_host = scratch / "host";
    EXPECT_EQ(zero_state_save(host.optim, of_host.c_str(), nullptr), ZERO_OK);
    EXPECT_EQ(zero_state_save(device.optim, saved.c_str(), nullptr), ZERO_OK) << zero_last_error();
    steps(2);
    both([&](zero_optim* optim) { return zero_state_load(optim, saved.c_str(), nullptr); });
    steps(2);
    both([](zero_optim* optim) { return zero_state_set_scalar(optim, 0, "step", 40); });
    both([](zero_optim* optim) { return zero_group_set(optim, ZERO_ALL_GROUPS, "beta1", 0.5); });
    steps(2);
    expect_same(host, device, "seed " + std::to_string(seed));
  }
}

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
    EXPECT_EQ(zero_loss_scale_set_from(device.optim, scale, ZERO_FLOAT32), ZERO_OK);
    Graph graph;
    for (int turn = 0; turn < 8; turn++) {
      const double values[] = {static_cast<float>(0.01 * (turn + 1)), 0.1 * turn,
                               std::ldexp(1, turn)};
      EXPECT_EQ(zero_group_set(host.optim, ZERO_ALL_GROUPS, "lr", values[0]), ZERO_OK);
      EXPECT_EQ(zero_group_set(host.optim, 1, "weight_decay", values[1]), ZERO_OK);
      EXPECT_EQ(zero_loss_scale_set(host.optim, values[2]), ZERO_OK);
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
    EXPECT_EQ(zero_loss_scale_set_from(device.optim, nullptr, ZERO_FLOAT32), ZERO_OK);
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
  EXPECT_EQ(zero_loss_scale_set_from(dynamic.optim, nullptr, ZERO_FLOAT32), ZERO_ERR_STATE);
  EXPECT_TRUE(says("dynamic"));
}

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
    refused(zero_clip_grad_norm(optim, 1, 2, &norm, stream), ZERO_ERR_UNSUPPORTED, "must be NULL");
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
  EXPECT_EQ(device.step(), ZERO_ERR_STATE);
  EXPECT_TRUE(says("reduced in a capture"));
  float value = 0;
  EXPECT_EQ(zero_grad_get(device.optim, 0, 0, 1, &value), ZERO_ERR_STATE);
  EXPECT_TRUE(says("reduced in a capture"));
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
           [](Model& model) { EXPECT_EQ(zero_set_trainable(model.optim, 0, 0), ZERO_OK); });
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
