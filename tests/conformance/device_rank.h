// SPDX-License-Identifier: Apache-2.0
// One rank that trains a few tensors of all dtypes through the public header, on a device whose
// memory the host cannot touch, or on the host.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "comm/create.h"
#include "stored.h"
#include "support/chaos_device.h"
#include "support/emulated_launches.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {

struct Tensor {
  std::string name;
  int64_t size;
  int32_t dtype = ZERO_FLOAT32;
  int32_t grad_dtype = ZERO_FLOAT32;
};

/// Of every dtype, one without elements, one that never gets a gradient, one of integers.
inline std::vector<Tensor> small() {
  return {{"matrix", 3082},
          {"one", 1},
          {"none", 0},
          {"bf16", 5003, ZERO_BFLOAT16, ZERO_BFLOAT16},
          {"f16", 301, ZERO_FLOAT16, ZERO_FLOAT32},
          {"f64", 2500, ZERO_FLOAT64, ZERO_FLOAT64},
          {"still", 40},
          {"table", 33, ZERO_INT64}};
}
/// More than passes at once, with a rest.
inline std::vector<Tensor> large() {
  return {{"wide", 300'011}, {"half", 530'003, ZERO_BFLOAT16, ZERO_BFLOAT16}};
}

struct Choices {
  std::vector<Tensor> tensors = small();
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t share_dtype = 0;
  double momentum = -1;  // of SGD
  int32_t partition = ZERO_PARTITION_EVEN;
  uint64_t seed = 0;  // of the device; 0: the host
};

/// Where a rank is: in a group, with its tensors on a device or on the host.
struct Place {
  std::shared_ptr<Comm> comm;
  std::shared_ptr<ChaosDevice> device = nullptr;  // null: the host
};

inline Place alone(uint64_t seed) {
  if (seed == 0) return {create_solo({}).value()};
  const auto device =
      ChaosWorld::create({.seed = seed, .emulate = emulate, .guarded = true})->make_device();
  return {create_solo({}, device).value(), device};
}

/// At first what every dtype holds: values that no step changes are never rounded to it.
inline double made_up(size_t tensor, size_t i, int turn) {
  const size_t number = i * 37 + tensor * 11 + static_cast<size_t>(turn) * 101;
  return static_cast<double>(number % 257) / (turn == 0 ? 256 : 259) - 0.5;
}

/// Tensors of one place, and an optimizer of them. Calls must succeed.
class Rank {
 public:
  explicit Rank(const Choices& choices) : Rank(choices, alone(choices.seed)) {}
  Rank(const Choices& choices, Place place) : tensors_(choices.tensors), device_(place.device) {
    comm_ = api::add_handle(std::move(place.comm));
    auto options = initialized<zero_options>();
    options.optimizer = choices.optimizer;
    options.master = choices.master;
    options.partition = choices.partition;
    options.bucket_bytes = 8192;
    options.share_dtype = choices.share_dtype;
    options.threads = 1;
    const char* const names[] = {"lr", "momentum"};
    const double values[] = {0.0625, choices.momentum};
    options.names = names;
    options.values = values;
    options.setting_count = choices.momentum < 0 ? 1 : 2;
    must(zero_create(&optim, comm_, &options), "zero_create");
    for (size_t t = 0; t < tensors_.size(); t++) {
      data_.push_back(made(encoded(t, tensors_[t].dtype, 0)));
      grads_.push_back(made(encoded(t, tensors_[t].grad_dtype, 0)));
    }
    buffers_.push_back(made(std::vector<std::byte>(800, std::byte{7})));
    add_all();
  }
  ~Rank() {
    zero_free(optim);
    zero_comm_free(comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  static void must(zero_status status, const char* what) {
    ASSERT_EQ(status, ZERO_OK) << what << ": " << zero_last_error();
  }

  ChaosDevice& device() { return *device_; }
  int32_t rank() const { return zero_comm_rank(comm_); }
  int32_t world() const { return zero_comm_world(comm_); }
  bool trains(size_t t) const {
    return tensors_[t].dtype != ZERO_INT64 && tensors_[t].name != "still";
  }
  std::vector<void*> gradients(int turn) {
    std::vector<void*> pointers;
    for (size_t t = 0; t < tensors_.size(); t++) {
      put(grads_[t], encoded(t, tensors_[t].grad_dtype, 10 + turn + 50 * rank()));
      pointers.push_back(trains(t) ? grads_[t].at : nullptr);
    }
    return pointers;
  }
  void step(int turn) {
    const std::vector<void*> grads = gradients(turn);
    auto options = initialized<zero_step_options>();
    options.grads = grads.data();
    options.grad_count = grads.size();
    must(zero_step(optim, &options), "zero_step");
  }
  void steps(int first, int count) {
    for (int turn = first; turn < first + count; turn++) step(turn);
  }
  void reduce(int turn, int32_t flags = ZERO_REDUCE_MEAN) {
    const std::vector<void*> grads = gradients(turn);
    must(zero_reduce_grads(optim, grads.data(), grads.size(), flags, nullptr), "reduce");
  }
  void save(const std::string& to) { must(zero_state_save(optim, to.c_str(), nullptr), "save"); }
  void load(const std::string& from) {
    must(zero_state_load(optim, from.c_str(), nullptr), "load");
  }

  std::vector<const char*> names(size_t t) const {
    const char* found[8];
    size_t count = 0;
    must(zero_state_info(optim, number(t), nullptr, found, 8, &count), "info");
    return {found, found + count};
  }
  /// A tensor of the state by zero_state_get; null: the values that are updated.
  std::vector<std::byte> get(size_t t, const char* name) const {
    std::vector<std::byte> out(state_bytes(t));
    must(zero_state_get(optim, number(t), name, 0, tensors_[t].size, out.data()), "get");
    return out;
  }
  std::vector<std::byte> gather(size_t t, const char* name, int32_t to = ZERO_ALL_RANKS) const {
    std::vector<std::byte> out(state_bytes(t));
    must(zero_state_gather(optim, number(t), name, to, out.data(),
                           static_cast<size_t>(tensors_[t].size)),
         "gather");
    return out;
  }
  void set(size_t t, const char* name, const std::vector<std::byte>& values) {
    must(zero_state_set(optim, number(t), name, 0, tensors_[t].size, values.data()), "set");
  }
  std::vector<std::byte> gradient(size_t t) const {
    std::vector<std::byte> out(state_bytes(t));
    must(zero_grad_get(optim, number(t), 0, tensors_[t].size, out.data()), "grad_get");
    return out;
  }
  std::vector<std::byte> data(size_t t) { return taken(data_[t]); }
  void set_data(size_t t, int turn) { put(data_[t], encoded(t, tensors_[t].dtype, turn)); }
  std::vector<std::byte> buffer() { return taken(buffers_[0]); }
  void set_buffer(int value) {
    put(buffers_[0], std::vector<std::byte>(800, static_cast<std::byte>(value)));
  }
  size_t tensors() const { return tensors_.size(); }
  size_t floating() const { return tensors_.size() - (tensors_.back().dtype == ZERO_INT64); }
  static int64_t number(size_t t) { return static_cast<int64_t>(t); }

  /// All that training goes on from, and its names.
  std::map<std::string, std::vector<std::byte>> everything() {
    std::map<std::string, std::vector<std::byte>> all;
    for (size_t t = 0; t < tensors_.size(); t++) {
      const std::string& name = tensors_[t].name;
      all[name] = data(t);
      all[name + " itself"] = get(t, nullptr);
      for (const char* const slot : names(t)) all[name + "." + slot] = get(t, slot);
      if (t < floating()) all[name + " step"] = scalar(number(t));
    }
    all["buffer"] = buffer();
    all["step"] = scalar(ZERO_ALL_PARAMS);
    return all;
  }

  zero_optim* optim = nullptr;

 private:
  struct Memory {
    std::vector<std::byte> host;
    DeviceMemory there;
    std::byte* at;
    size_t bytes;
  };

  size_t state_bytes(size_t t) const {
    const int32_t dtype = tensors_[t].dtype;
    const size_t element = dtype == ZERO_FLOAT64 || dtype == ZERO_INT64 ? 8 : 4;
    return static_cast<size_t>(tensors_[t].size) * element;
  }
  std::vector<std::byte> scalar(int64_t param) const {
    double value = -1;
    must(zero_state_get(optim, param, "step", 0, 1, &value), "get_scalar");
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    return {bytes, bytes + sizeof value};
  }
  std::vector<std::byte> encoded(size_t t, int32_t dtype, int turn) const {
    const auto count = static_cast<size_t>(tensors_[t].size);
    if (dtype == ZERO_INT64)
      return std::vector<std::byte>(count * 8, static_cast<std::byte>(turn + 1));
    std::vector<double> values(count);
    for (size_t i = 0; i < count; i++) values[i] = made_up(t, i, turn);
    return encode(dtype, values);
  }
  Memory made(const std::vector<std::byte>& bytes) {
    Memory memory;
    memory.bytes = bytes.size();
    if (device_ == nullptr) {
      memory.host.resize(bytes.size() + 8);  // memory, also for no elements
      memory.at = memory.host.data();
    } else {
      auto there = DeviceMemory::allocate(device_, bytes.size() + 8, "a tensor of a test");
      EXPECT_TRUE(there.ok());
      memory.there = std::move(*there);
      memory.at = memory.there.data();
    }
    put(memory, bytes);
    return memory;
  }
  /// Behind what the library did on the same stream, by the device.
  void move(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    const Event moved = make_event(device_).value();
    EXPECT_TRUE(device_->copy(nullptr, to, from, bytes).ok());
    EXPECT_TRUE(device_->record(moved.handle(), nullptr).ok());
    EXPECT_TRUE(await(*device_, moved.handle(), 30'000, "a test's copy").ok());
  }
  void put(Memory& memory, const std::vector<std::byte>& bytes) const {
    if (device_ == nullptr) {
      std::copy(bytes.begin(), bytes.end(), memory.at);
    } else {
      move(memory.at, bytes.data(), bytes.size());
    }
  }
  std::vector<std::byte> taken(const Memory& memory) const {
    std::vector<std::byte> bytes(memory.bytes);
    if (device_ == nullptr) {
      std::copy_n(memory.at, memory.bytes, bytes.begin());
    } else {
      move(bytes.data(), memory.at, memory.bytes);
    }
    return bytes;
  }
  void add_all() {
    std::vector<zero_param> params(tensors_.size());
    for (size_t t = 0; t < params.size(); t++) {
      const Tensor& tensor = tensors_[t];
      ZERO_INIT(params[t]);
      params[t].name = tensor.name.c_str();
      params[t].data = data_[t].at;
      params[t].shape = &tensor.size;
      params[t].ndim = 1;
      params[t].dtype = tensor.dtype;
      params[t].grad_dtype = tensor.grad_dtype;
      params[t].owner = static_cast<int32_t>(t) % world();
      if (tensor.dtype == ZERO_INT64) params[t].flags = ZERO_PARAM_FROZEN;
    }
    must(zero_register_params(optim, nullptr, params.data(), params.size(), nullptr), "register");
    auto buffer = initialized<zero_buffer>();
    const int64_t size = 100;
    buffer.name = "mean";
    buffer.shape = &size;
    buffer.ndim = 1;
    buffer.dtype = ZERO_FLOAT64;
    buffer.data = buffers_[0].at;
    must(zero_register_buffers(optim, &buffer, 1), "buffers");
    must(zero_seal(optim), "seal");
  }

  const std::vector<Tensor> tensors_;
  const std::shared_ptr<ChaosDevice> device_;
  zero_comm* comm_ = nullptr;
  std::vector<Memory> data_, grads_, buffers_;
};

inline void expect_same(Rank& a, Rank& b, const std::string& when) {
  const auto of_a = a.everything(), of_b = b.everything();
  ASSERT_EQ(of_a.size(), of_b.size()) << when;
  for (const auto& [name, bytes] : of_a) EXPECT_EQ(bytes == of_b.at(name), true) << name << when;
}

/// Rules and masters, each on a device of another seed.
inline std::vector<Choices> kinds() {
  std::vector<Choices> all;
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER, ZERO_MASTER_NONE}) {
    all.push_back({.master = master});
    all.push_back({.optimizer = ZERO_OPTIMIZER_SGD, .master = master, .momentum = 0.5});
    all.push_back({.optimizer = ZERO_OPTIMIZER_NADAM, .master = master});
    all.push_back({.master = master, .share_dtype = ZERO_BFLOAT16});
  }
  for (size_t i = 0; i < all.size(); i++) all[i].seed = i + 1;
  return all;
}
inline Choices on_host(Choices choices) {
  choices.seed = 0;
  return choices;
}

}  // namespace zero::test
