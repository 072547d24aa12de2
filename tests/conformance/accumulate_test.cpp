// SPDX-License-Identifier: Apache-2.0
// ZERO_REDUCE_ACCUMULATE: owners add up micro-batches.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "memory.h"
#include "stored.h"
#include "support/optim.h"

namespace zero::test {
namespace {

/// Two parameters with one element each, and plain SGD with lr 1.
class Pair : public Optim {
 public:
  explicit Pair(zero_comm* comm) : Optim(comm, plain_sgd(kLr1)) {
    add(std::array{parameter("a", kOne, &data[0], &grad[0]),
                   parameter("b", kOne, &data[1], &grad[1])});
  }
  ~Pair() { free(); }

  using Optim::reduce;
  zero_status reduce(float a, float b, int32_t flags, bool has_b = true) {
    grad = {a, b};
    return reduce_with({&grad[0], has_b ? &grad[1] : nullptr}, flags);
  }

  std::array<float, 2> data = {0, 0}, grad = {0, 0};
};

constexpr int32_t kMean = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
constexpr int32_t kSum = ZERO_REDUCE_SUM | ZERO_REDUCE_ACCUMULATE;

void on_pairs(const std::function<void(Pair&, int rank)>& body) {
  on_each_comm(2, [&](zero_comm* comm, int rank) {
    Pair self(comm);
    body(self, rank);
  });
}

TEST(Accumulate, a_mean_divides_by_ranks_once_and_never_by_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    const auto mine = static_cast<float>(rank);
    for (const float g : {1.0f, 2.0f, 4.0f}) EXPECT_OK(self.reduce(g + mine, 10 * g, kMean));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0], -(7.0f + 3 * 0.5f));
    EXPECT_EQ(self.data[1], -70.0f);
  });
}

TEST(Accumulate, the_last_micro_batch_may_come_with_the_step) {
  on_pairs([](Pair& self, int) {
    EXPECT_OK(self.reduce(1, 2, kSum));
    self.grad = {3, 4};
    EXPECT_OK(self.step(kSum));
    EXPECT_EQ(self.data[0], -8.0f);
    EXPECT_EQ(self.data[1], -12.0f);
    EXPECT_OK(self.step(kSum));  // a window of one
    EXPECT_EQ(self.data[0], -14.0f);
  });
}

TEST(Accumulate, a_parameter_is_absent_only_if_it_is_in_all_micro_batches) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_OK(self.reduce(1, INFINITY, kMean, false));
    EXPECT_OK(self.reduce(1, 6, kMean, rank == 1));
    EXPECT_OK(self.reduce(1, INFINITY, kMean, false));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0], -3.0f);
    EXPECT_EQ(self.data[1], -3.0f);
    EXPECT_OK(self.reduce(1, INFINITY, kMean, false));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[1], -3.0f);  // the previous window does not count
    EXPECT_EQ(self.scalar(1), 1);
  });
}

TEST(Accumulate, a_window_dropped_leaves_nothing_behind) {
  on_pairs([](Pair& self, int) {
    EXPECT_OK(self.reduce(1, 1, kMean));
    EXPECT_OK(zero_drop_grads(self.optim()));
    EXPECT_OK(self.reduce(2, 2, kMean));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0], -2.0f);
  });
}

/// A refused micro-batch leaves the sums unchanged, whatever the reason and the rank.
TEST(Accumulate, a_failed_micro_batch_adds_nothing) {
  on_pairs([](Pair& self, int rank) {
    EXPECT_OK(self.reduce(1, 2, kMean, false));
    EXPECT_TRUE(ends(self.reduce(5, 5, kSum), ZERO_ERR_STATE, "reduce flags are 5"));
    EXPECT_EQ(self.reduce(5, 5, ZERO_REDUCE_MEAN), ZERO_ERR_STATE);
    EXPECT_EQ(self.reduce(5, 5, rank == 0 ? 103 : kMean),
              rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(zero_reduce_grads(self.optim(), nullptr, rank == 1 ? 3 : 0, kMean, nullptr),
              rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_EQ(self.reduce_with({nullptr, nullptr}, kMean), ZERO_ERR_STATE);
    EXPECT_OK(self.reduce(1, 2, kMean, false));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[0], -2.0f);
    EXPECT_EQ(self.data[1], 0.0f);
  });
}

TEST(Accumulate, what_was_reduced_or_clipped_otherwise_takes_no_more) {
  on_pairs([](Pair& self, int) {
    EXPECT_OK(self.reduce(3, 4, ZERO_REDUCE_MEAN));
    EXPECT_TRUE(ends(self.reduce(1, 1, kMean), ZERO_ERR_STATE, "without ZERO_REDUCE_ACCUMULATE"));
    EXPECT_OK(zero_drop_grads(self.optim()));
    EXPECT_OK(self.reduce(3, 4, kMean));
    EXPECT_EQ(self.clip(INFINITY, 2), 5);
    EXPECT_TRUE(ends(self.reduce(1, 1, kMean), ZERO_ERR_STATE, "already clipped"));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.data[1], -4.0f);
  });
}

/// Infinities that cancel are found in the sum. The count is of elements, not of micro-batches.
TEST(Accumulate, elements_that_are_not_finite_count_once) {
  on_pairs([](Pair& self, int) {
    EXPECT_OK(self.reduce(INFINITY, 1, kMean));
    EXPECT_OK(self.reduce(-INFINITY, 1, kMean));
    EXPECT_OK(self.reduce(1, 1, kMean));
    EXPECT_OK(self.step());
    EXPECT_EQ(self.result().nonfinite, 1);
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

constexpr int64_t kSize = 5003;

/// Returns numbers whose sum depends on the order. A mean divides by the world only, so its loss is
/// scaled to divide by all batches of the step.
std::vector<std::byte> micro_batch(const Way& way, int world, int batch) {
  const bool mean = (way.flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_MEAN;
  const float scale = mean ? static_cast<float>(world) / kBatches : 1;
  std::vector<double> values(kSize);
  uint32_t state = static_cast<uint32_t>(batch) * 7919 + 1;
  for (double& value : values) {
    state = state * 1664525 + 1013904223;
    const float wide = (static_cast<float>(state >> 8) / (1 << 23) - 1) *
                       static_cast<float>(1u << (state >> 5 & 7)) * scale;
    value = wide;
  }
  return encode(way.grad_dtype, values);
}

/// Runs one rank's part of a training whose micro-batches are numbered over all ranks.
std::string trained(const Way& way, zero_comm* comm) {
  const std::shared_ptr<Device> device = device_of(comm);
  const Stream own = device != nullptr ? make_stream(device).value() : Stream();
  void* const stream = own.handle();
  auto options = initialized<zero_options>();
  options.wire_dtype = way.wire_dtype;
  options.predivide_factor = way.predivide_factor;
  options.max_grad_norm = way.max_grad_norm;
  options.bucket_bytes = 8192;
  const Arena data(comm, kSize * sizeof(float)), grad(comm, kSize * sizeof(float));
  Optim optim(comm, options);
  zero_param param = parameter("w", kSize, data.floats(), grad.floats());
  param.grad_dtype = way.grad_dtype;
  optim.add(param);
  const int world = optim.world(), turns = kBatches / world;
  for (int step = 0; step < 3; step++) {
    for (int turn = 0; turn < turns; turn++) {
      const auto bytes = micro_batch(way, world, step * kBatches + turn * world + optim.rank());
      move_bytes(device, stream, grad.floats(), bytes.data(), bytes.size());
      if (turn + 1 == turns) break;
      EXPECT_OK(optim.reduce(way.flags, stream));
    }
    EXPECT_OK(optim.step(way.flags, stream));
  }
  (void)optim.result();
  std::string end(kSize * sizeof(float), '\0');
  move_bytes(device, stream, end.data(), data.floats(), end.size());
  return end;
}

/// Trains with this number of ranks, and checks that all end with the same values.
std::string spread(CommKind kind, const Way& way, int world) {
  const auto ends = results_of(Meeting(kind, world, {.seed = 11}),
                               [&](zero_comm* comm, int) { return trained(way, comm); });
  for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
  return ends[0];
}

TEST(Accumulate, micro_batches_have_the_same_bits_however_they_are_spread_over_ranks) {
  for (const Way& way : kWays) {
    const std::string alone = spread(CommKind::local, way, 1);
    for (const int world : {2, 4}) {
      for (const CommKind kind :
           {CommKind::local, CommKind::user, CommKind::gates, CommKind::staged}) {
        if (on_devices(kind) && way.predivide_factor != 1) continue;
        EXPECT_TRUE(spread(kind, way, world) == alone)
            << name_of(kind) << ", " << world << ", way " << &way - kWays;
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
