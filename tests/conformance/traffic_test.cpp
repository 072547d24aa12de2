// SPDX-License-Identifier: Apache-2.0
// The bytes of a model that travel in a step, counted in calls of an engine's collectives.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "few_tensors.h"
#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {
namespace {

/// One rank's engine, and the bytes that it sent to each other rank.
struct Counted {
  zero_comm_functions real;
  void* ctx;
  int64_t to_all = 0, gathered = 0;
  int exchanges = 0;
};

zero_status exchange(void* ctx, const void* send, void* recv, size_t bytes) {
  auto* const self = static_cast<Counted*>(ctx);
  self->exchanges++;
  return self->real.exchange(self->ctx, send, recv, bytes);
}
zero_status all_gather(void* ctx, const void* send, void* recv, size_t bytes, void* stream) {
  auto* const self = static_cast<Counted*>(ctx);
  self->gathered += static_cast<int64_t>(bytes);
  return self->real.all_gather(self->ctx, send, recv, bytes, stream);
}
zero_status all_to_all(void* ctx, const void* send, void* recv, size_t bytes, void* stream) {
  auto* const self = static_cast<Counted*>(ctx);
  self->to_all += static_cast<int64_t>(bytes);
  return self->real.all_to_all(self->ctx, send, recv, bytes, stream);
}

/// Runs body(comm, counted) on `world` threads.
void counting(int world, const std::function<void(zero_comm*, Counted&)>& body) {
  Engine engine(world);
  run_sound_ranks(RankKind::threads, world, [&](int rank) {
    Counted counted{as_public(Engine::functions()), engine.seat(rank)};
    auto functions = initialized<zero_comm_functions>();
    functions.exchange = exchange;
    functions.all_gather = all_gather;
    functions.all_to_all = all_to_all;
    zero_comm* comm = nullptr;
    EXPECT_OK(zero_comm_create_user(&comm, &functions, &counted, rank, world, nullptr));
    body(comm, counted);
    zero_comm_free(comm);
    counted.real.free(counted.ctx);
    return std::string();
  });
}

constexpr int64_t kSize = 4096;  // of a tensor
constexpr size_t kTensors = 12;

/// Tensors of one size, owned by ranks 0, 1, ... in turn.
class Model : public Optim {
 public:
  Model(zero_comm* comm, int32_t partition, int32_t share_dtype = 0)
      : Optim(comm, options_with([&](zero_options& o) {
                o.partition = partition;
                o.bucket_bytes = 65'536;
                o.share_dtype = share_dtype;
              })) {
    std::array<std::string, kTensors> names;
    std::vector<zero_param> params;
    for (size_t i = 0; i < kTensors; i++) {
      names[i] = std::to_string(i);
      params.push_back(parameter(names[i].c_str(), kSize, &data_[i * kSize], &grads_[i * kSize]));
      params[i].owner = static_cast<int32_t>(i) % world();
    }
    add(params);
  }
  ~Model() { free(); }

  void move() {
    before_ = std::exchange(data_, std::vector<float>(data_));
    std::array<void*, kTensors> data;
    for (size_t i = 0; i < kTensors; i++) data[i] = &data_[i * kSize];
    EXPECT_OK(zero_bind_params(optim(), data.data(), nullptr, kTensors));
  }

 private:
  std::vector<float> before_, data_ = std::vector<float>(kTensors * kSize, 1), grads_ = data_;
};

// In plain data parallel training, each rank sends 2 (W - 1) / W of the model in a step, and so
// does this: one half for the reduction, the other for the gather.
TEST(Traffic, of_a_step_is_that_of_one_all_reduce) {
  for (int world = 2; world <= 4; world++) {
    for (const int32_t partition : kPartitions) {
      counting(world, [&](zero_comm* comm, Counted& counted) {
        Model model(comm, partition);
        for (int step = 0; step < 3; step++) {
          counted.to_all = counted.gathered = 0;
          const int64_t before = model.statistics().sent_data_bytes;
          EXPECT_OK(model.step());
          EXPECT_EQ(model.statistics().sent_data_bytes - before,
                    (counted.to_all + counted.gathered) * (world - 1));
          const int64_t once = kSize * int64_t{kTensors} * 4 / world;
          EXPECT_EQ(counted.to_all, once) << "world " << world << ", partition " << partition;
          EXPECT_EQ(counted.gathered, once) << "world " << world << ", partition " << partition;
        }
      });
    }
  }
}

// Ranks enter the step, decide on the sums, and publish. A change on one rank costs all ranks one
// more vote.
TEST(Traffic, of_agreements_is_three_exchanges_in_a_step_like_the_last_one) {
  counting(3, [](zero_comm* comm, Counted& counted) {
    Model model(comm, ZERO_PARTITION_EVEN);
    const auto exchanges_of_step = [&] {
      counted.exchanges = 0;
      EXPECT_OK(model.step());
      return counted.exchanges;
    };
    EXPECT_GT(exchanges_of_step(), 4);  // the ranks seal
    EXPECT_EQ(exchanges_of_step(), 4);  // the seal has moved the state
    EXPECT_EQ(exchanges_of_step(), 3);
    if (model.rank() == 1) model.move();
    EXPECT_EQ(exchanges_of_step(), 4);
    EXPECT_EQ(exchanges_of_step(), 3);
  });
}

TEST(Traffic, of_what_is_frozen_is_none) {
  counting(2, [](zero_comm* comm, Counted& counted) {
    Model model(comm, ZERO_PARTITION_MANUAL);
    for (const int64_t trained : {12, 6, 2}) {
      for (int64_t param = trained; param < int64_t{kTensors}; param++) model.freeze(param);
      counted.to_all = counted.gathered = 0;
      EXPECT_OK(model.step());
      // Whole buckets travel. Each has two tensors of each rank.
      const int64_t tensors = trained == 6 ? 8 : trained == 2 ? 4 : trained;
      EXPECT_EQ(counted.to_all, tensors * kSize * 4 / 2);
      EXPECT_EQ(counted.gathered, tensors * kSize * 4 / 2);
    }
  });
}

TEST(Traffic, of_parameters_shared_in_16_bits_is_half_of_that) {
  for (const int32_t partition : kPartitions) {
    counting(3, [&](zero_comm* comm, Counted& counted) {
      Model model(comm, partition, ZERO_BFLOAT16);
      for (int step = 0; step < 2; step++) {
        counted.gathered = 0;
        EXPECT_OK(model.step());
        EXPECT_EQ(counted.gathered, kSize * int64_t{kTensors} * 2 / 3) << "partition " << partition;
      }
    });
  }
}

}  // namespace
}  // namespace zero::test
