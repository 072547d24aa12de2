// SPDX-License-Identifier: Apache-2.0
// ZERO_REDUCE_ACCUMULATE: the owners add up micro-batches.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

/// Two parameters of one element and plain SGD with lr 1.
class Pair {
 public:
  explicit Pair(zero_comm* comm) {
    zero_options options = plain_sgd(kLr1);
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << zero_last_error();
    std::array<zero_param, 2> params;
    for (size_t i = 0; i < 2; i++) {
      ZERO_INIT(params[i]);
      params[i].name = i == 0 ? "a" : "b";
      params[i].data = &data[i];
      params[i].grad = &grad[i];
    }
    EXPECT_EQ(zero_register_params(optim_, nullptr, params.data(), 2, nullptr), ZERO_OK);
  }
  ~Pair() { zero_free(optim_); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  zero_status reduce(float a, float b, int32_t flags, bool has_b = true) {
    grad = {a, b};
    const std::array<void*, 2> given = {&grad[0], has_b ? &grad[1] : nullptr};
    return zero_reduce_grads(optim_, given.data(), 2, flags, nullptr);
  }
  zero_status step() { return zero_step(optim_, nullptr); }
  zero_optim* optim() { return optim_; }

  std::array<float, 2> data = {0, 0}, grad = {0, 0};

 private:
  zero_optim* optim_ = nullptr;
};

constexpr int32_t kMean = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
constexpr int32_t kSum = ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE;

void on_pairs(const std::function<void(Pair&, int rank)>& body) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
      Pair self(comm);
      body(self, rank);
    });
  }
}

TEST(Accumulate, a_mean_divides_by_ranks_once_and_never_by_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    const auto mine = static_cast<float>(rank);
    for (const float g : {1.0f, 2.0f, 4.0f})
      EXPECT_EQ(self.reduce(g + mine, 10 * g, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -(7.0f + 3 * 0.5f));
    EXPECT_EQ(self.data[1], -70.0f);
  });
}

TEST(Accumulate, the_last_micro_batch_may_come_with_the_step) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(1, 2, kSum), ZERO_OK) << zero_last_error();
    self.grad = {3, 4};
    auto options = initialized<zero_step_options>();
    options.reduce_flags = kSum;
    EXPECT_EQ(zero_step(self.optim(), &options), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -8.0f);
    EXPECT_EQ(self.data[1], -12.0f);
    EXPECT_EQ(zero_step(self.optim(), &options), ZERO_OK) << zero_last_error();  // a window of one
    EXPECT_EQ(self.data[0], -14.0f);
  });
}

TEST(Accumulate, a_parameter_is_absent_only_if_it_is_in_all_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, 6, kMean, rank == 1), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -3.0f);
    EXPECT_EQ(self.data[1], -3.0f);
    double steps = 0;
    EXPECT_EQ(self.reduce(1, INFINITY, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[1], -3.0f);  // the presence of the window before is forgotten
    EXPECT_EQ(zero_state_get(self.optim(), 1, "step", 0, 1, &steps), ZERO_OK);
    EXPECT_EQ(steps, 1);
  });
}

TEST(Accumulate, a_window_dropped_leaves_nothing_behind) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(zero_drop_grads(self.optim()), ZERO_OK);
    EXPECT_EQ(self.reduce(2, 2, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -2.0f);
  });
}

/// A refused micro-batch, for whatever reason and on whichever rank, leaves the sums as they were.
TEST(Accumulate, a_failed_micro_batch_adds_nothing) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_EQ(self.reduce(1, 2, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_TRUE(ends(self.reduce(5, 5, kSum), ZERO_ERR_STATE, "reduce flags are 5"));
    EXPECT_EQ(self.reduce(5, 5, ZERO_REDUCE_MEAN), ZERO_ERR_STATE);
    EXPECT_EQ(self.reduce(5, 5, rank == 0 ? 103 : kMean),
              rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(zero_reduce_grads(self.optim(), nullptr, rank == 1 ? 3 : 0, kMean, nullptr),
              rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    const std::array<void*, 2> nothing = {nullptr, nullptr};
    EXPECT_EQ(zero_reduce_grads(self.optim(), nothing.data(), 2, kMean, nullptr), ZERO_ERR_STATE);
    EXPECT_EQ(self.reduce(1, 2, kMean, false), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[0], -2.0f);
    EXPECT_EQ(self.data[1], 0.0f);
  });
}

TEST(Accumulate, what_was_reduced_or_clipped_otherwise_takes_no_more) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(3, 4, ZERO_REDUCE_MEAN), ZERO_OK) << zero_last_error();
    EXPECT_TRUE(ends(self.reduce(1, 1, kMean), ZERO_ERR_STATE, "without ZERO_REDUCE_ACCUMULATE"));
    EXPECT_EQ(zero_drop_grads(self.optim()), ZERO_OK);
    EXPECT_EQ(self.reduce(3, 4, kMean), ZERO_OK) << zero_last_error();
    double norm = 0;
    EXPECT_EQ(zero_clip_grad_norm(self.optim(), nullptr, 0, INFINITY, 2, &norm, nullptr), ZERO_OK);
    EXPECT_EQ(norm, 5);
    EXPECT_TRUE(ends(self.reduce(1, 1, kMean), ZERO_ERR_STATE, "clipped already"));
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.data[1], -4.0f);
  });
}

/// Infinities that cancel are found in the sum, and a count is of elements, not of micro-batches.
TEST(Accumulate, elements_that_are_not_finite_count_once) {
  on_pairs([](Pair& self, int) {
    EXPECT_EQ(self.reduce(INFINITY, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(-INFINITY, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.reduce(1, 1, kMean), ZERO_OK) << zero_last_error();
    EXPECT_EQ(self.step(), ZERO_OK) << zero_last_error();
    auto result = initialized<zero_result>();
    zero_step_result(self.optim(), &result);
    EXPECT_EQ(result.nonfinite, 1);
  });
}

/// How micro-batches are reduced.
struct Way {
  int32_t flags;
  int32_t grad_dtype = ZERO_FLOAT32;
  int32_t wire_dtype = 0;
  double predivide_factor = 1;
  double max_grad_norm = 0;
};
constexpr Way kWays[] = {
    {.flags = kSum},
    {.flags = kMean, .max_grad_norm = 0.5},
    {.flags = kSum, .grad_dtype = ZERO_BFLOAT16, .max_grad_norm = 0.5},
    {.flags = kMean, .wire_dtype = ZERO_BFLOAT16},
    {.flags = kSum, .wire_dtype = ZERO_FLOAT16, .predivide_factor = 8},
};
constexpr int kBatches = 4;  // of a step, over all ranks

/// One rank's part of a training whose micro-batches are numbered over all ranks.
class Part {
 public:
  Part(const Way& way, std::shared_ptr<Comm> seat)
      : way_(way), device_(seat->device()), world_(seat->world()), rank_(seat->rank()) {
    comm_ = api::add_handle(std::move(seat));
    if (device_ != nullptr) stream_ = make_stream(device_).value();
    auto options = initialized<zero_options>();
    options.wire_dtype = way.wire_dtype;
    options.predivide_factor = way.predivide_factor;
    options.max_grad_norm = way.max_grad_norm;
    options.bucket_bytes = 8192;
    EXPECT_EQ(zero_create(&optim_, comm_, &options), ZERO_OK) << zero_last_error();
    void* memory[2];
    for (void*& one : memory)
      EXPECT_EQ(zero_arena_alloc(comm_, kSize * sizeof(float), ZERO_MEMORY_PER_RANK, &one),
                ZERO_OK);
    data_ = static_cast<float*>(memory[0]);
    grad_ = memory[1];
    auto param = initialized<zero_param>();
    param.name = "w";
    param.data = data_;
    param.grad = grad_;
    param.shape = &kSize;
    param.ndim = 1;
    param.grad_dtype = way.grad_dtype;
    EXPECT_EQ(zero_register_params(optim_, nullptr, &param, 1, nullptr), ZERO_OK)
        << zero_last_error();
  }
  ~Part() {
    zero_free(optim_);
    EXPECT_EQ(zero_arena_free(data_), ZERO_OK);
    EXPECT_EQ(zero_arena_free(grad_), ZERO_OK);
    zero_comm_free(comm_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  std::string train() {
    for (int step = 0; step < 3; step++) {
      const int turns = kBatches / world_;
      for (int turn = 0; turn < turns; turn++) {
        give(step * kBatches + turn * world_ + rank_);
        if (turn + 1 < turns) {
          EXPECT_EQ(zero_reduce_grads(optim_, nullptr, 0, way_.flags, stream_.handle()), ZERO_OK)
              << zero_last_error();
        }
      }
      auto options = initialized<zero_step_options>();
      options.reduce_flags = way_.flags;
      options.stream = stream_.handle();
      EXPECT_EQ(zero_step(optim_, &options), ZERO_OK) << zero_last_error();
    }
    std::string end(kSize * sizeof(float), '\0');
    auto result = initialized<zero_result>();
    EXPECT_EQ(zero_step_result(optim_, &result), ZERO_OK) << zero_last_error();
    copy(end.data(), data_, end.size());
    return end;
  }

 private:
  static constexpr int64_t kSize = 5003;

  /// Numbers whose sum depends on the order; a mean's are of a loss that is divided by what it is
  /// not itself divided by.
  void give(int batch) {
    const bool mean = (way_.flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_MEAN;
    const float scale = mean ? static_cast<float>(world_) / kBatches : 1;
    std::vector<float> wide(kSize);
    std::vector<uint16_t> half(kSize);
    uint32_t state = static_cast<uint32_t>(batch) * 7919 + 1;
    for (size_t i = 0; i < wide.size(); i++) {
      state = state * 1664525 + 1013904223;
      wide[i] = (static_cast<float>(state >> 8) / (1 << 23) - 1) *
                static_cast<float>(1u << (state >> 5 & 7)) * scale;
      half[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(wide[i]) >> 16);
    }
    if (way_.grad_dtype == ZERO_BFLOAT16)
      copy(grad_, half.data(), half.size() * sizeof half[0]);
    else
      copy(grad_, wide.data(), wide.size() * sizeof wide[0]);
  }
  void copy(void* to, const void* from, size_t bytes) {
    if (device_ == nullptr)
      std::memcpy(to, from, bytes);
    else
      EXPECT_TRUE(device_->copy(stream_.handle(), to, from, bytes).ok());
  }

  const Way way_;
  const std::shared_ptr<Device> device_;
  const int world_, rank_;
  Stream stream_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  float* data_;
  void* grad_;
};

/// Ranks of one way to spread them, each with the seat that `join` finds for it: all with the same
/// end.
std::string spread(const Way& way, int world,
                   const std::function<std::shared_ptr<Comm>(int rank)>& join) {
  const auto ends = run_sound_ranks(RankKind::threads, world,
                                    [&](int rank) { return Part(way, join(rank)).train(); });
  for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
  return ends[0];
}

std::string spread_on(CommKind kind, const Way& way, int world) {
  const Meeting meeting(kind, world);
  return spread(way, world, [&](int rank) { return api::take_handle(meeting.join(rank)).value(); });
}

std::string spread_on_devices(const Abilities& abilities, const Way& way, int world) {
  const auto devices = chaos(11, abilities);
  std::vector<std::shared_ptr<Device>> of;
  for (int rank = 0; rank < world; rank++) of.push_back(devices->make_device(rank));
  const std::string name = unique_name();
  return spread(way, world, [&](int rank) {
    return create_local(name, rank, world, {}, of[static_cast<size_t>(rank)]).value();
  });
}

TEST(Accumulate, micro_batches_have_the_same_bits_however_they_are_spread_over_ranks) {
  for (const Way& way : kWays) {
    const std::string alone = spread_on(CommKind::local, way, 1);
    for (const int world : {2, 4}) {
      for (const CommKind kind : kCommKinds)
        EXPECT_TRUE(spread_on(kind, way, world) == alone)
            << name_of(kind) << ", " << world << ", way " << &way - kWays;
      if (way.predivide_factor != 1) continue;  // not on a device
      for (const bool reaches : {true, false})
        EXPECT_TRUE(spread_on_devices({.reaches = reaches}, way, world) == alone)
            << "devices, " << world << ", way " << &way - kWays << (reaches ? "" : ", staged");
    }
  }
}

}  // namespace
}  // namespace zero::test
