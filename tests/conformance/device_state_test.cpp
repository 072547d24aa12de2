// SPDX-License-Identifier: Apache-2.0
// State, gradients and checkpoints of an optimizer whose tensors are on a device. Calls that wait
// return and accept bitwise the same values as on the host, and the host never touches device
// memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "replica.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

std::vector<Tensor> with_integers() {
  std::vector<Tensor> tensors = small_tensors();
  tensors.push_back({"table", 33, ZERO_INT64, 0, false});
  return tensors;
}

/// Returns tensors that need several transfers, of which the last is partial.
std::vector<Tensor> large() { return {{"wide", 300'011}, {"half", 530'003, ZERO_BFLOAT16}}; }

struct Choices {
  StateCase of = {};
  uint64_t seed = 0;  // of the device; 0: the host
  std::vector<Tensor> tensors = with_integers();
};

/// A sealed optimizer with a buffer.
class Rank : public Replica {
 public:
  explicit Rank(const Choices& choices)
      : Rank(choices,
             choices.seed == 0 ? alone() : alone({.seed = choices.seed, .guarded = true})) {}
  template <class Seat>
  Rank(const Choices& choices, Seat comm)
      : Replica(comm, choices.of.options(), choices.of.settings()),
        chaos_(as_chaos(device())),
        buffer_(device(), 800) {
    set_buffer(7);
    add_tensors(choices.tensors);
    const std::vector<int64_t> shape = {100};
    EXPECT_OK(add_buffer(test::buffer("mean", shape, buffer_.at(), ZERO_FLOAT64)));
    seal();
  }
  ~Rank() { free(); }

  ChaosDevice& chaos() { return *chaos_; }
  std::vector<std::byte> buffer() const { return buffer_.read(); }
  void set_buffer(int value) {
    put(buffer_, std::vector<std::byte>(800, static_cast<std::byte>(value)));
  }
  Contents everything() const {
    Contents all = Replica::everything();
    all["buffer"] = buffer();
    return all;
  }

 private:
  const std::shared_ptr<ChaosDevice> chaos_;
  const Memory buffer_;
};

Choices on_host(Choices choices) {
  choices.seed = 0;
  return choices;
}

/// The same model on a device and on the host.
struct Twins {
  explicit Twins(const Choices& choices) : device(choices), host(on_host(choices)) {}
  void each(const std::function<void(Rank&)>& body) {
    for (Rank* const rank : {&device, &host}) body(*rank);
  }
  void steps(int first, int count) {
    each([&](Rank& rank) { rank.steps(first, count); });
  }
  void expect_same(const std::string& when) const {
    test::expect_same(device.everything(), host.everything(), when);
  }
  void expect_same_gradients(const std::string& when) const {
    for (size_t t = 0; t < host.size(); t++) {
      if (!host.tensor(t).trains) continue;
      EXPECT_EQ(device.gradient(t), host.gradient(t)) << when << t;
    }
  }

  Rank device, host;
};

/// Returns combinations of rules and master weights, each on a device with another seed.
std::vector<Choices> kinds() {
  std::vector<Choices> all;
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER, ZERO_MASTER_NONE}) {
    all.push_back({{.master = master}});
    all.push_back({{.optimizer = ZERO_OPTIMIZER_SGD, .master = master, .momentum = 0.5}});
    all.push_back({{.optimizer = ZERO_OPTIMIZER_NADAM, .master = master}});
    all.push_back({{.master = master, .share_dtype = ZERO_BFLOAT16}});
  }
  for (size_t i = 0; i < all.size(); i++) all[i].seed = i + 1;
  return all;
}

TEST(DeviceState, what_one_saved_trains_on_on_the_other) {
  const Scratch scratch;
  for (const Choices& choices : kinds()) {
    for (const bool to_device : {true, false}) {
      Twins twins(choices);
      Rank& from = to_device ? twins.host : twins.device;
      Rank& to = to_device ? twins.device : twins.host;
      const std::string path = scratch / std::to_string(2 * choices.seed + to_device);
      to.steps(7, 2);  // the load replaces this
      from.steps(0, 3);
      from.set_buffer(9);
      from.save(path);
      to.load(path);
      twins.expect_same("as loaded");
      twins.steps(3, 2);
      twins.expect_same("trained on");
    }
  }
}

TEST(DeviceState, masters_that_a_checkpoint_has_not_are_its_parameters) {
  const Scratch scratch;
  Rank(Choices{{.master = ZERO_MASTER_NONE}}).save(scratch / "none");
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER}) {
    Twins twins({{.master = master}, 5});
    twins.each([&](Rank& rank) {
      rank.steps(7, 2);
      rank.load(scratch / "none");
      rank.steps(0, 2);
    });
    twins.expect_same("");
  }
}

TEST(DeviceState, what_was_taken_trains_on_where_it_is_set) {
  for (const Choices& choices : kinds()) {
    for (const bool to_device : {true, false}) {
      Twins twins(choices);
      Rank& from = to_device ? twins.host : twins.device;
      Rank& to = to_device ? twins.device : twins.host;
      from.steps(0, 3);
      to.steps(9, 1);
      move_state(from, to);
      twins.expect_same("as set");
      twins.steps(3, 2);
      twins.expect_same("trained on");
    }
  }
}

TEST(DeviceState, a_gather_gives_what_the_owner_has) {
  for (const Choices& choices : kinds()) {
    Rank rank(choices);
    rank.steps(0, 2);
    for (size_t t = 0; t < rank.floating(); t++) {
      EXPECT_EQ(rank.gather(t, nullptr), rank.get(t, nullptr));
      for (const char* const name : rank.state_names(Rank::number(t)))
        EXPECT_EQ(rank.gather(t, name), rank.get(t, name));
    }
  }
}

TEST(DeviceState, parts_of_a_tensor_are_taken_and_set_alone) {
  Twins twins({{.master = ZERO_MASTER_REMAINDER}, 3});
  twins.each([](Rank& rank) {
    rank.steps(0, 1);
    const std::vector<float> values(77, 0.3f);
    for (const int64_t param : {0, 3})
      EXPECT_OK(zero_state_set(rank.optim(), param, nullptr, 1001, 77, values.data()));
    std::vector<float> part(79);
    EXPECT_OK(zero_state_get(rank.optim(), 3, "master", 1000, 79, part.data()));
    EXPECT_EQ(part[1], 0.3f);
    EXPECT_EQ(part[77], 0.3f);
    EXPECT_NE(part[78], 0.3f);
  });
  twins.expect_same("");
}

TEST(DeviceState, tensors_larger_than_what_passes_at_once_lose_nothing) {
  const Scratch scratch;
  for (const int32_t master : {ZERO_MASTER_FLOAT32, ZERO_MASTER_REMAINDER}) {
    const Choices choices{{.master = master}, 2, large()};
    Twins twins(choices);
    Rank copy(choices);
    twins.steps(0, 1);
    twins.expect_same("after a step");
    const std::string from_device = scratch / ("device" + std::to_string(master));
    const std::string from_host = scratch / ("host" + std::to_string(master));
    twins.device.save(from_device);
    twins.host.save(from_host);
    twins.host.load(from_device);
    copy.load(from_host);
    twins.expect_same("as saved");
    expect_same(copy.everything(), twins.host.everything(), "as loaded");
    for (size_t t = 0; t < copy.size(); t++) {
      const std::vector<std::byte> average = twins.device.get(t, "exp_avg");
      copy.set_state(t, nullptr, average);
      EXPECT_EQ(copy.get(t, nullptr), average);
      EXPECT_EQ(copy.gather(t, nullptr), average);
    }
    twins.each([](Rank& rank) { rank.reduce(1); });
    twins.expect_same_gradients("");
  }
}

TEST(DeviceGradients, are_what_a_step_would_use) {
  constexpr int32_t kFlags = ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Twins twins({.seed = seed});
    twins.each([](Rank& rank) {
      rank.set("loss_scale", 8);
      rank.reduce(0, kFlags);
    });
    twins.expect_same_gradients("reduced");
    twins.each([](Rank& rank) { rank.reduce(1, kFlags); });
    twins.expect_same_gradients("added to");
    twins.each([](Rank& rank) {
      EXPECT_OK(zero_clip_grad_norm(rank.optim(), nullptr, 0, 0.01, 2, nullptr, nullptr));
    });
    twins.expect_same_gradients("clipped");
    twins.each([](Rank& rank) { EXPECT_OK(zero_clip_grad_value(rank.optim(), 1e-4, nullptr)); });
    twins.expect_same_gradients("clipped by value");
    float value = 7;
    EXPECT_TRUE(ends(zero_grad_get(twins.device.optim(), 6, 0, 1, &value), ZERO_ERR_STATE,
                     "gradient for parameter 'still'"));
    EXPECT_EQ(value, 7);
  }
}

TEST(DeviceState, a_step_by_hand_is_shared_and_its_masters_are_taken) {
  for (const Choices& choices : kinds()) {
    Twins twins(choices);
    twins.each([](Rank& rank) {
      rank.steps(0, 1);
      rank.reduce(1);
      for (size_t t = 0; t < rank.floating(); t++) rank.set_data(t, 5);
      EXPECT_OK(zero_share_params(rank.optim(), 0, nullptr));
    });
    twins.expect_same("as shared");
    twins.steps(2, 1);
    twins.expect_same("trained on");
  }
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Makes every call that moves tensors, with a checkpoint after each.
void live(Rank& rank, bool by_hand, const std::string& directory) {
  rank.steps(0, 2);
  rank.set_buffer(3 + rank.rank());
  EXPECT_OK(zero_broadcast_buffers(rank.optim(), rank.world() - 1, nullptr));
  EXPECT_EQ(rank.buffer()[5], static_cast<std::byte>(2 + rank.world()));
  rank.save(directory + "1");
  rank.freeze(0);
  std::vector<int32_t> owners(rank.size());
  for (size_t t = 0; t < owners.size(); t++) owners[t] = static_cast<int32_t>(t + 1) % rank.world();
  EXPECT_OK(zero_rebalance(rank.optim(), by_hand ? owners.data() : nullptr,
                           by_hand ? owners.size() : 0, nullptr));
  rank.steps(2, 1);
  rank.save(directory + "2");
  rank.reduce(3);
  for (size_t t = 0; t < rank.floating(); t++) rank.set_data(t, 5 + rank.rank());
  EXPECT_OK(zero_share_params(rank.optim(), 0, nullptr));
  rank.save(directory + "3");
  const int32_t last = rank.world() - 1;
  for (size_t t = 0; t < rank.floating(); t++) {
    std::string told = text_of(rank.gather(t, nullptr, last));
    for (const char* const slot : rank.state_names(Rank::number(t)))
      told += text_of(rank.gather(t, slot));
    if (rank.rank() == last) write_file(directory + "tensor " + std::to_string(t), told);
  }
  rank.load(directory + "1");
  rank.steps(4, 1);
  EXPECT_OK(zero_state_save_begin(rank.optim(), (directory + "4").c_str(), nullptr));
  rank.steps(5, 2);
  EXPECT_OK(zero_state_save_wait(rank.optim()));
}

TEST(DeviceState, groups_on_devices_leave_what_groups_on_the_host_do) {
  uint64_t seed = 0;
  for (const int32_t partition : kPartitions) {
    for (const int world : {2, 3}) {
      Choices choices = kinds()[seed];
      choices.of.partition = partition;
      const Scratch scratch;
      seed++;
      const auto directory = [&](CommKind kind) { return scratch / name_of(kind) + "/"; };
      for (const CommKind kind :
           {CommKind::local, CommKind::nccl, CommKind::gates, CommKind::hosts, CommKind::staged}) {
        std::filesystem::create_directory(directory(kind));
        on_ranks(Meeting(kind, world, {.seed = seed, .guarded = true}), [&](zero_comm* comm, int) {
          Rank rank(choices, comm);
          live(rank, partition == ZERO_PARTITION_MANUAL, directory(kind));
        });
      }
      for (const CommKind kind :
           {CommKind::nccl, CommKind::gates, CommKind::hosts, CommKind::staged}) {
        const std::string of_host = directory(CommKind::local), of_devices = directory(kind);
        Rank a(on_host(choices)), b(on_host(choices));
        for (const char* const number : {"1", "2", "3", "4"}) {
          a.load(of_devices + number);
          b.load(of_host + number);
          expect_same(a.everything(), b.everything(), of_devices + number);
        }
        for (size_t t = 0; t < a.floating(); t++) {
          const std::string name = "tensor " + std::to_string(t);
          EXPECT_EQ(read_file(of_devices + name), read_file(of_host + name));
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(DeviceState, buffers_of_one_rank_stay) {
  Rank rank(Choices{.seed = 1});
  rank.set_buffer(3);
  EXPECT_OK(zero_broadcast_buffers(rank.optim(), 0, nullptr));
  EXPECT_EQ(rank.buffer(), std::vector<std::byte>(800, std::byte{3}));
}

TEST(DeviceState, a_buffer_elsewhere_is_refused_by_name) {
  Rank rank(Choices{.seed = 1});
  std::vector<float> elsewhere(4);
  const std::vector<int64_t> shape = {4};
  const zero_buffer count = buffer("count", shape, elsewhere.data(), ZERO_FLOAT32);
  EXPECT_TRUE(ends(rank.add_buffer(count), ZERO_ERR_ARGUMENT, "buffer 'count' is host memory"));
}

TEST(DeviceState, a_device_that_fails_is_the_calls_failure) {
  const Scratch scratch;
  Rank rank(Choices{.seed = 1});
  rank.steps(0, 1);
  rank.save(scratch / "sound");
  rank.chaos().fail({ZERO_ERR_SYSTEM, "the device fell off the bus"});
  std::vector<float> values(3082);
  EXPECT_EQ(zero_state_get(rank.optim(), 0, nullptr, 0, 3082, values.data()), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_set(rank.optim(), 0, nullptr, 0, 3082, values.data()), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_save(rank.optim(), (scratch / "broken").c_str(), nullptr), ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_save_begin(rank.optim(), (scratch / "broken").c_str(), nullptr),
            ZERO_ERR_SYSTEM);
  EXPECT_EQ(zero_state_load(rank.optim(), (scratch / "sound").c_str(), nullptr), ZERO_ERR_SYSTEM);
  EXPECT_TRUE(says("fell off the bus"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "broken"));
  EXPECT_EQ(zero_state_get(rank.optim(), 0, nullptr, 0, 1, values.data()), ZERO_ERR_NOT_LOADED);
}

}  // namespace
}  // namespace zero::test
