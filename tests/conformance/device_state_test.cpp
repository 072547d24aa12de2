// SPDX-License-Identifier: Apache-2.0
// State, gradients and checkpoints of an optimizer whose tensors are on a device: the calls that
// wait give and take the bits that they do on the host, and never touch the device's memory
// themselves.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device_rank.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/scalar.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

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
      Rank::must(set_scalar(to.optim, ZERO_ALL_PARAMS, "step", 3), "set_scalar");
      for (size_t t = 0; t < from.floating(); t++) {
        to.set(t, nullptr, from.get(t, nullptr));
        for (const char* const name : from.names(t)) to.set(t, name, from.get(t, name));
        double step = 0;
        Rank::must(zero_state_get(from.optim, Rank::number(t), "step", 0, 1, &step), "get");
        Rank::must(set_scalar(to.optim, Rank::number(t), "step", step), "set");
        if (choices.optimizer != ZERO_OPTIMIZER_NADAM) continue;
        Rank::must(zero_state_get(from.optim, Rank::number(t), "mu_product", 0, 1, &step), "get");
        Rank::must(set_scalar(to.optim, Rank::number(t), "mu_product", step), "set");
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
      Rank::must(zero_group_set(rank->optim, ZERO_ALL_GROUPS, "loss_scale", 8), "loss scale");
      rank->reduce(0, ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE);
    }
    expect_equal("reduced");
    for (Rank* const rank : {&device, &host})
      rank->reduce(1, ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE);
    expect_equal("added to");
    for (Rank* const rank : {&device, &host})
      Rank::must(zero_clip_grad_norm(rank->optim, nullptr, 0, 0.01, 2, nullptr, nullptr), "clip");
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
      Rank::must(zero_param_set_trainable(rank->optim, 0, 0), "freeze");
      Rank::must(zero_rebalance(rank->optim, nullptr, 0, nullptr), "rebalance");
      rank->steps(2, 1);
      Rank::must(zero_param_set_trainable(rank->optim, 0, 1), "thaw");
      rank->steps(3, 1);
    }
    expect_same(device, host, "");
  }
}

/// How ranks of a group reach each other.
enum class Over { host, nccl, memory, hosts, staging };

/// body(place) on ranks of one group, each on a device of its own, or all on the host.
void on_ranks(Over over, uint64_t seed, int world, const std::function<void(Place)>& body) {
  const std::string name = unique_name();
  std::optional<NcclRanks> ranks;
  if (over == Over::nccl) ranks.emplace(world, seed, true);
  const auto chaos = ChaosWorld::create({.seed = seed,
                                         .patience = INT64_MAX,
                                         .emulate = emulate,
                                         .guarded = true,
                                         .words = over != Over::hosts,
                                         .reaches = over != Over::staging});
  std::vector<std::shared_ptr<ChaosDevice>> devices;
  for (int rank = 0; rank < world; rank++) {
    devices.push_back(over == Over::host ? nullptr
                      : ranks            ? ranks->device(rank)
                                         : chaos->make_device(rank));
  }
  run_sound_ranks(RankKind::threads, world, [&](int rank) {
    const auto& device = devices[static_cast<size_t>(rank)];
    auto comm = ranks ? ranks->join(rank) : create_local(name, rank, world, {}, device);
    EXPECT_TRUE(comm.ok()) << comm.failure().text();
    if (comm.ok()) body({std::move(*comm), device});
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
  Rank::must(zero_param_set_trainable(rank.optim, 0, 0), "freeze");
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
      const std::map<Over, std::string> ways = {{Over::host, "host/"},
                                                {Over::nccl, "nccl/"},
                                                {Over::memory, "memory/"},
                                                {Over::hosts, "hosts/"},
                                                {Over::staging, "staging/"}};
      seed++;
      for (const auto& way : ways) {
        const std::string directory = scratch / way.second;
        std::filesystem::create_directory(directory);
        on_ranks(way.first, seed, world, [&](Place place) {
          Rank rank(choices, std::move(place));
          live(rank, partition == ZERO_PARTITION_MANUAL, directory);
        });
      }
      for (const Over over : {Over::nccl, Over::memory, Over::hosts, Over::staging}) {
        const std::string& directory = ways.at(over);
        Rank a(on_host(choices)), b(on_host(choices));
        for (const char* const number : {"1", "2", "3", "4"}) {
          a.load(scratch / directory + number);
          b.load(scratch / "host/" + number);
          expect_same(a, b, " of checkpoint " + directory + number);
        }
        for (size_t t = 0; t < a.floating(); t++) {
          const std::string name = "tensor " + std::to_string(t);
          EXPECT_EQ(read_file(scratch / directory + name), read_file(scratch / "host/" + name));
        }
        if (::testing::Test::HasFailure()) return;
      }
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
  ZERO_INIT(buffer);
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
