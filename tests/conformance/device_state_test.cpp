// SPDX-License-Identifier: Apache-2.0
// State, gradients and checkpoints of an optimizer whose tensors are on a device: the calls that
// wait give and take the bits that they do on the host, and never touch the device's memory
// themselves.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "comm/create.h"
#include "stored.h"
#include "support/chaos_device.h"
#include "support/emulated_launches.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

struct Tensor {
  std::string name;
  int64_t size;
  int32_t dtype = ZERO_FLOAT32;
  int32_t grad_dtype = ZERO_FLOAT32;
};

/// Of every dtype, one without elements, one that never gets a gradient, one of integers.
std::vector<Tensor> small() {
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
std::vector<Tensor> large() {
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

Place alone(uint64_t seed) {
  if (seed == 0) return {create_solo({}).value()};
  const auto device =
      ChaosWorld::create({.seed = seed, .emulate = emulate, .guarded = true})->make_device();
  return {create_solo({}, device).value(), device};
}

/// At first what every dtype holds: values that no step changes are never rounded to it.
double made_up(size_t tensor, size_t i, int turn) {
  const size_t number = i * 37 + tensor * 11 + static_cast<size_t>(turn) * 101;
  return static_cast<double>(number % 257) / (turn == 0 ? 256 : 259) - 0.5;
}

/// Tensors of one place, and an optimizer of them. Calls must succeed.
class Rank {
 public:
  explicit Rank(const Choices& choices) : Rank(choices, alone(choices.seed)) {}
  Rank(const Choices& choices, Place place) : tensors_(choices.tensors), device_(place.device) {
    api::note_process();
    comm_ = api::add_handle(std::move(place.comm));
    zero_options options;
    zero_options_init(&options, sizeof options);
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
    zero_step_options options;
    zero_step_options_init(&options, sizeof options);
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
    must(zero_state_get_scalar(optim, param, "step", &value), "get_scalar");
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
      zero_param_init(&params[t], sizeof params[t]);
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
    zero_buffer buffer;
    zero_buffer_init(&buffer, sizeof buffer);
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

void expect_same(Rank& a, Rank& b, const std::string& when) {
  const auto of_a = a.everything(), of_b = b.everything();
  ASSERT_EQ(of_a.size(), of_b.size()) << when;
  for (const auto& [name, bytes] : of_a) EXPECT_EQ(bytes == of_b.at(name), true) << name << when;
}

/// Rules and masters, each on a device of another seed.
std::vector<Choices> kinds() {
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
Choices on_host(Choices choices) {
  choices.seed = 0;
  return choices;
}

TEST(DeviceState, what_a_device_saved_trains_on_on_the_host) {
  const Scratch scratch;
  for (const Choices& choices : kinds()) {
    Rank device(choices), host(on_host(choices));
    device.steps(0, 3);
    device.set_buffer(9);
    device.save(scratch / std::to_string(choices.seed));
    host.load(scratch / std::to_string(choices.seed));
    expect_same(device, host, " as saved");
    device.steps(3, 2);
    host.steps(3, 2);
    expect_same(device, host, " trained on");
  }
}

TEST(DeviceState, what_the_host_saved_trains_on_on_a_device) {
  const Scratch scratch;
  for (const Choices& choices : kinds()) {
    Rank device(choices), host(on_host(choices));
    device.steps(7, 2);  // what was there is replaced
    host.steps(0, 3);
    host.set_buffer(9);
    host.save(scratch / std::to_string(choices.seed));
    device.load(scratch / std::to_string(choices.seed));
    expect_same(device, host, " as loaded");
    device.steps(3, 2);
    host.steps(3, 2);
    expect_same(device, host, " trained on");
  }
}

TEST(DeviceState, masters_that_a_checkpoint_has_not_are_its_parameters) {
  const Scratch scratch;
  Rank(Choices{.master = ZERO_MASTER_NONE}).save(scratch / "none");
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER}) {
    const Choices choices{.master = master, .seed = 5};
    Rank device(choices), host(on_host(choices));
    for (Rank* const rank : {&device, &host}) {
      rank->steps(7, 2);
      rank->load(scratch / "none");
      rank->steps(0, 2);
    }
    expect_same(device, host, "");
  }
}

TEST(DeviceState, what_was_taken_trains_on_where_it_is_set) {
  for (const Choices& choices : kinds()) {
    for (const bool to_device : {true, false}) {
      Rank from(to_device ? on_host(choices) : choices);
      Rank to(to_device ? choices : on_host(choices));
      from.steps(0, 3);
      to.step(9);
      Rank::must(zero_state_set_scalar(to.optim, ZERO_ALL_PARAMS, "step", 3), "set_scalar");
      for (size_t t = 0; t < from.floating(); t++) {
        to.set(t, nullptr, from.get(t, nullptr));
        for (const char* const name : from.names(t)) to.set(t, name, from.get(t, name));
        double step = 0;
        Rank::must(zero_state_get_scalar(from.optim, Rank::number(t), "step", &step), "get");
        Rank::must(zero_state_set_scalar(to.optim, Rank::number(t), "step", step), "set");
        if (choices.optimizer != ZERO_OPTIMIZER_NADAM) continue;
        Rank::must(zero_state_get_scalar(from.optim, Rank::number(t), "mu_product", &step), "get");
        Rank::must(zero_state_set_scalar(to.optim, Rank::number(t), "mu_product", step), "set");
      }
      Rank::must(zero_share_params(to.optim, ZERO_SHARE_KEEP_MASTERS, nullptr), "share");
      expect_same(from, to, " as set");
      from.steps(3, 2);
      to.steps(3, 2);
      expect_same(from, to, " trained on");
    }
  }
}

TEST(DeviceState, a_gather_gives_what_the_owner_has) {
  for (const Choices& choices : kinds()) {
    Rank rank(choices);
    rank.steps(0, 2);
    for (size_t t = 0; t < rank.floating(); t++) {
      EXPECT_EQ(rank.gather(t, nullptr), rank.get(t, nullptr));
      for (const char* const name : rank.names(t))
        EXPECT_EQ(rank.gather(t, name), rank.get(t, name));
    }
  }
}

TEST(DeviceState, parts_of_a_tensor_are_taken_and_set_alone) {
  const Choices choices{.master = ZERO_MASTER_REMAINDER, .seed = 3};
  Rank device(choices), host(on_host(choices));
  for (Rank* const rank : {&device, &host}) {
    rank->step(0);
    const std::vector<float> values(77, 0.3f);
    for (const int64_t param : {0, 3})
      Rank::must(zero_state_set(rank->optim, param, nullptr, 1001, 77, values.data()), "set");
    std::vector<float> part(79);
    Rank::must(zero_state_get(rank->optim, 3, "master", 1000, 79, part.data()), "get");
    EXPECT_EQ(part[1], 0.3f);
    EXPECT_EQ(part[77], 0.3f);
    EXPECT_NE(part[78], 0.3f);
  }
  expect_same(device, host, "");
}

TEST(DeviceState, tensors_larger_than_what_passes_at_once_lose_nothing) {
  const Scratch scratch;
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER}) {
    const Choices choices{.tensors = large(), .master = master, .seed = 2};
    Rank device(choices), host(on_host(choices)), copy(choices);
    device.step(0);
    host.step(0);
    expect_same(device, host, " after a step");
    const std::string from_device = scratch / ("device" + std::to_string(master));
    const std::string from_host = scratch / ("host" + std::to_string(master));
    device.save(from_device);
    host.save(from_host);
    host.load(from_device);
    copy.load(from_host);
    expect_same(device, host, " as saved");
    expect_same(copy, host, " as loaded");
    for (size_t t = 0; t < copy.tensors(); t++) {
      copy.set(t, nullptr, device.get(t, "exp_avg"));
      EXPECT_EQ(copy.get(t, nullptr), device.get(t, "exp_avg"));
      EXPECT_EQ(copy.gather(t, nullptr), device.get(t, "exp_avg"));
    }
    device.reduce(1);
    host.reduce(1);
    for (size_t t = 0; t < host.tensors(); t++) EXPECT_EQ(device.gradient(t), host.gradient(t));
  }
}

TEST(DeviceGradients, are_what_a_step_would_use) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const Choices choices{.seed = seed};
    Rank device(choices), host(on_host(choices));
    const auto expect_equal = [&](const char* when) {
      for (size_t t = 0; t < host.tensors(); t++) {
        if (!host.trains(t)) continue;
        EXPECT_EQ(device.gradient(t), host.gradient(t)) << when << t;
      }
    };
    for (Rank* const rank : {&device, &host}) {
      Rank::must(zero_loss_scale_set(rank->optim, 8), "loss scale");
      rank->reduce(0, ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE);
    }
    expect_equal("reduced");
    for (Rank* const rank : {&device, &host})
      rank->reduce(1, ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE);
    expect_equal("added to");
    for (Rank* const rank : {&device, &host})
      Rank::must(zero_clip_grad_norm(rank->optim, 0.01, 2, nullptr, nullptr), "clip");
    expect_equal("clipped");
    for (Rank* const rank : {&device, &host})
      Rank::must(zero_clip_grad_value(rank->optim, 1e-4, nullptr), "clip");
    expect_equal("clipped by value");
    float value = 7;
    EXPECT_EQ(zero_grad_get(device.optim, 6, 0, 1, &value), ZERO_ERR_STATE);
    EXPECT_NE(std::string(zero_last_error()).find("gradient for parameter 'still'"),
              std::string::npos);
    EXPECT_EQ(value, 7);
  }
}

TEST(DeviceState, a_step_by_hand_is_shared_and_its_masters_are_taken) {
  for (const Choices& choices : kinds()) {
    Rank device(choices), host(on_host(choices));
    for (Rank* const rank : {&device, &host}) {
      rank->step(0);
      rank->reduce(1);
      for (size_t t = 0; t < rank->floating(); t++) rank->set_data(t, 5);
      Rank::must(zero_share_params(rank->optim, 0, nullptr), "share");
    }
    expect_same(device, host, " as shared");
    device.step(2);
    host.step(2);
    expect_same(device, host, " trained on");
  }
}

TEST(DeviceState, what_is_dealt_out_anew_trains_on) {
  for (const Choices& choices : kinds()) {
    Rank device(choices), host(on_host(choices));
    for (Rank* const rank : {&device, &host}) {
      rank->steps(0, 2);
      Rank::must(zero_set_trainable(rank->optim, 0, 0), "freeze");
      Rank::must(zero_rebalance(rank->optim, nullptr, 0, nullptr), "rebalance");
      rank->steps(2, 1);
      Rank::must(zero_set_trainable(rank->optim, 0, 1), "thaw");
      rank->steps(3, 1);
    }
    expect_same(device, host, "");
  }
}

/// body(place) on ranks of one group, each on a device of its own, or all on the host.
void on_ranks(const Choices& choices, int world, const std::function<void(Place)>& body) {
  const std::string name = unique_name();
  std::optional<NcclRanks> devices;
  if (choices.seed != 0) devices.emplace(world, choices.seed, true);
  run_sound_ranks(RankKind::threads, world, [&](int rank) {
    auto comm = devices ? devices->join(rank) : create_local(name, rank, world, {});
    EXPECT_TRUE(comm.ok()) << comm.failure().text();
    if (comm.ok()) body({std::move(*comm), devices ? devices->device(rank) : nullptr});
    return "";
  });
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Every call that moves tensors, and a checkpoint after each.
void live(Rank& rank, bool by_hand, const std::string& directory) {
  rank.steps(0, 2);
  rank.set_buffer(3 + rank.rank());
  Rank::must(zero_broadcast_buffers(rank.optim, rank.world() - 1, nullptr), "buffers");
  EXPECT_EQ(rank.buffer()[5], static_cast<std::byte>(2 + rank.world()));
  rank.save(directory + "/1");
  Rank::must(zero_set_trainable(rank.optim, 0, 0), "freeze");
  std::vector<int32_t> owners(rank.tensors());
  for (size_t t = 0; t < owners.size(); t++) owners[t] = static_cast<int32_t>(t + 1) % rank.world();
  Rank::must(zero_rebalance(rank.optim, by_hand ? owners.data() : nullptr,
                            by_hand ? owners.size() : 0, nullptr),
             "rebalance");
  rank.step(2);
  rank.save(directory + "/2");
  rank.reduce(3);
  for (size_t t = 0; t < rank.floating(); t++) rank.set_data(t, 5 + rank.rank());
  Rank::must(zero_share_params(rank.optim, 0, nullptr), "share");
  rank.save(directory + "/3");
  const int32_t last = rank.world() - 1;
  for (size_t t = 0; t < rank.floating(); t++) {
    std::string told = text_of(rank.gather(t, nullptr, last));
    for (const char* const slot : rank.names(t)) told += text_of(rank.gather(t, slot));
    if (rank.rank() == last) write_file(directory + "/tensor " + std::to_string(t), told);
  }
  rank.load(directory + "/1");
  rank.step(4);
  rank.save(directory + "/4");
}

TEST(DeviceState, groups_on_devices_leave_what_groups_on_the_host_do) {
  uint64_t seed = 0;
  for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                                  ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL}) {
    for (const int world : {2, 3}) {
      Choices choices = kinds()[seed];
      choices.partition = partition;
      const Scratch scratch;
      for (const uint64_t of : {uint64_t{0}, ++seed}) {
        choices.seed = of;
        const std::string directory = scratch / (of == 0 ? "host" : "device");
        std::filesystem::create_directory(directory);
        on_ranks(choices, world, [&](Place place) {
          Rank rank(choices, std::move(place));
          live(rank, partition == ZERO_PARTITION_MANUAL, directory);
        });
      }
      Rank a(on_host(choices)), b(on_host(choices));
      for (const char* const number : {"1", "2", "3", "4"}) {
        a.load(scratch / "device/" + number);
        b.load(scratch / "host/" + number);
        expect_same(a, b, std::string(" of checkpoint ") + number);
      }
      for (size_t t = 0; t < a.floating(); t++) {
        const std::string name = "tensor " + std::to_string(t);
        EXPECT_EQ(read_file(scratch / "device/" + name), read_file(scratch / "host/" + name));
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(DeviceState, buffers_of_one_rank_stay) {
  Rank rank(Choices{.seed = 1});
  rank.set_buffer(3);
  Rank::must(zero_broadcast_buffers(rank.optim, 0, nullptr), "broadcast");
  EXPECT_EQ(rank.buffer(), std::vector<std::byte>(800, std::byte{3}));
}

TEST(DeviceState, a_buffer_elsewhere_is_refused_by_name) {
  Rank rank(Choices{.seed = 1});
  const std::vector<float> elsewhere(4);
  const int64_t size = 4;
  zero_buffer buffer;
  zero_buffer_init(&buffer, sizeof buffer);
  buffer.name = "count";
  buffer.data = const_cast<float*>(elsewhere.data());
  buffer.shape = &size;
  buffer.ndim = 1;
  EXPECT_EQ(zero_register_buffers(rank.optim, &buffer, 1), ZERO_ERR_ARGUMENT);
  EXPECT_NE(std::string(zero_last_error()).find("buffer 'count' is memory of the host"),
            std::string::npos)
      << zero_last_error();
}

TEST(DeviceState, a_device_that_fails_is_the_calls_failure) {
  const Scratch scratch;
  Rank rank(Choices{.seed = 1});
  rank.step(0);
  rank.save(scratch / "sound");
  rank.device().fail({ZERO_ERR_SYSTEM, "the device fell off the bus"});
  std::vector<float> values(3082);
  EXPECT_EQ(zero_state_get(rank.optim, 0, nullptr, 0, 3082, values.data()), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_set(rank.optim, 0, nullptr, 0, 3082, values.data()), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_save(rank.optim, (scratch / "broken").c_str(), nullptr), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_load(rank.optim, (scratch / "sound").c_str(), nullptr), ZERO_ERR_SYSTEM);
  EXPECT_NE(std::string(zero_last_error()).find("fell off the bus"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch / "broken"));
  EXPECT_EQ(zero_state_get(rank.optim, 0, nullptr, 0, 1, values.data()), ZERO_ERR_NOT_LOADED);
}

}  // namespace
}  // namespace zero::test
