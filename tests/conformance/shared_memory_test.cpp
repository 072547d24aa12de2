// SPDX-License-Identifier: Apache-2.0
// Memory of which all ranks have one copy: uses that would be wrong are refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "api/handles.h"
#include "support/comms.h"
#include "support/optim.h"

namespace zero::test {
namespace {

constexpr int64_t kSizes[] = {3000, 5000};
constexpr size_t kFloats = 8192;  // of an arena
constexpr size_t kBytes = kFloats * sizeof(float);

/// One rank with parameters "a" and "b". It registers as many of them as it has memory for. SGD, lr
/// 1.
class Pair : public Optim {
 public:
  explicit Pair(zero_comm* comm) : Optim(comm, plain_sgd(kLr1)) {}
  ~Pair() { free(); }

  zero_status add(const char* name, float* data, float* grad) {
    const zero_param param = parameter(name, kSizes[*name == 'b'], data, grad);
    return zero_register_params(optim(), nullptr, &param, 1, nullptr);
  }
  zero_status bind(const std::vector<void*>& data, const std::vector<void*>& grads) {
    return zero_bind_params(optim(), data.empty() ? nullptr : data.data(),
                            grads.empty() ? nullptr : grads.data(),
                            std::max(data.size(), grads.size()));
  }

 private:
  /// In the same order on all ranks.
  const Arena one_{comm(), kBytes, ZERO_MEMORY_SHARED},
      another_{comm(), kBytes, ZERO_MEMORY_SHARED};
  const Arena third_{comm(), kBytes}, fourth_{comm(), kBytes};

 public:
  float* const data = one_.floats();  // all ranks share it
  float* const shared = another_.floats();
  float* const own = third_.floats();
  float* const spare = fourth_.floats();
};

void fill(float* values, size_t count, float value) { std::fill(values, values + count, value); }

void on_pairs(int world, const std::function<void(Pair&, int rank)>& body) {
  on_ranks(CommKind::local, world, [&](zero_comm* comm, int rank) {
    Pair self(comm);
    body(self, rank);
  });
}

/// Checks that a step is right with separate gradients, 1 on each rank.
void expect_sound_step(Pair& self, const float* data, float* grad, int world) {
  fill(grad, kFloats, 1);
  const float before = data[0];
  EXPECT_OK(self.step_with({grad}, ZERO_REDUCE_SUM));
  EXPECT_EQ(data[0], before - static_cast<float>(world));
  EXPECT_EQ(data[kSizes[0] - 1], before - static_cast<float>(world));
}

constexpr const char* kOfTwo =
    "the gradient of parameter 'a' of rank 0 overlaps the gradient of parameter 'a' of rank 1 in a "
    "ZERO_MEMORY_SHARED arena";

/// The ranks that the error names are at fault, and all others get ZERO_ERR_PEER.
void expect_refused(zero_status status, int rank, const char* words) {
  EXPECT_TRUE(ends(status, rank < 2 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER, words));
  EXPECT_TRUE(says("ZERO_MEMORY_PER_RANK"));
}

TEST(SharedMemory, registered_gradients_that_ranks_would_overwrite_are_refused_by_the_seal) {
  for (const int world : {2, 3}) {
    on_pairs(world, [&](Pair& self, int rank) {
      EXPECT_OK(self.add("a", self.data, self.shared));
      expect_refused(zero_seal(self.optim()), rank, kOfTwo);
      expect_refused(zero_broadcast_params(self.optim(), 0, nullptr), rank, kOfTwo);
      expect_refused(self.step(), rank, kOfTwo);
      EXPECT_OK(self.bind({}, {self.own}));
      expect_sound_step(self, self.data, self.own, world);
    });
  }
}

TEST(SharedMemory, a_gradient_of_a_frozen_parameter_is_looked_at_when_it_thaws) {
  on_pairs(2, [](Pair& self, int rank) {
    EXPECT_OK(self.add("a", self.data, self.shared));
    self.freeze(0);
    self.seal();
    self.freeze(0, false);
    expect_refused(self.step(), rank, kOfTwo);
  });
}

TEST(SharedMemory, gradients_given_to_a_call_that_ranks_would_overwrite_are_not_read) {
  on_pairs(3, [](Pair& self, int rank) {
    EXPECT_OK(self.add("a", self.data, nullptr));
    self.seal();
    expect_refused(self.step_with({self.shared}, ZERO_REDUCE_SUM), rank, kOfTwo);
    expect_refused(self.reduce_with({self.shared}), rank, kOfTwo);
    expect_refused(self.reduce_with({self.shared}, ZERO_REDUCE_ACCUMULATE), rank, kOfTwo);
    expect_sound_step(self, self.data, self.own, 3);
    expect_refused(self.step_with({self.shared}, ZERO_REDUCE_SUM), rank, kOfTwo);
    expect_sound_step(self, self.data, self.own, 3);
  });
}

TEST(SharedMemory, gradients_announced_that_ranks_would_overwrite_are_not_read) {
  for (const bool begins : {false, true}) {
    on_pairs(2, [&](Pair& self, int rank) {
      EXPECT_OK(self.add("a", self.data, self.own));
      expect_sound_step(self, self.data, self.own, 2);
      if (begins) {
        EXPECT_OK(zero_step_begin(self.optim(), nullptr));
      }
      EXPECT_OK(zero_grad_ready(self.optim(), 0, self.shared, nullptr));
      usleep(20'000);
      expect_refused(self.step(), rank, kOfTwo);
      EXPECT_EQ(self.statistics().early_elements, 0);
      EXPECT_EQ(self.data[0], -2);
      if (begins) return;
      EXPECT_OK(zero_drop_grads(self.optim()));
      expect_sound_step(self, self.data, self.own, 2);
    });
  }
}

TEST(SharedMemory, the_gradient_of_one_rank_may_not_overlap_another_one_of_another_rank) {
  on_pairs(2, [](Pair& self, int rank) {
    EXPECT_OK(self.add("a", self.data, rank == 0 ? self.shared : self.own));
    EXPECT_OK(self.add("b", self.data + 3000, rank == 1 ? self.shared + 2999 : self.own + 3000));
    expect_refused(zero_seal(self.optim()), rank,
                   "the gradient of parameter 'a' of rank 0 overlaps the gradient of parameter 'b' "
                   "of rank 1");
    EXPECT_OK(self.bind({}, {rank == 0 ? self.shared : self.own,
                             rank == 1 ? self.shared + 3000 : self.own + 3000}));
    self.seal();
  });
}

TEST(SharedMemory, a_gradient_may_not_overlap_a_parameter_of_another_rank) {
  on_pairs(2, [](Pair& self, int rank) {
    std::vector<float> foreign(3000);
    EXPECT_OK(rank == 0 ? self.add("a", self.data, self.own)
                        : self.add("a", foreign.data(), self.data + 10));
    expect_refused(zero_seal(self.optim()), rank,
                   "parameter 'a' of rank 0 overlaps the gradient of parameter 'a' of rank 1");
  });
}

TEST(SharedMemory, gradients_that_ranks_keep_apart_in_it_are_used) {
  on_pairs(2, [](Pair& self, int rank) {
    float* const grad = self.shared + rank * 3000;
    EXPECT_OK(self.add("a", self.data, grad));
    for (int step = 1; step <= 2; step++) {
      fill(grad, 3000, static_cast<float>(1 + rank));
      EXPECT_OK(zero_grad_ready(self.optim(), 0, grad, nullptr));
      EXPECT_OK(self.step(ZERO_REDUCE_SUM));
      EXPECT_EQ(self.data[2999], -3.0f * static_cast<float>(step));
    }
  });
}

TEST(SharedMemory, one_copy_of_gradients_that_are_reduced_already_is_used) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Pair self(comm);
    EXPECT_OK(self.add("a", self.data, nullptr));
    if (rank == 0) fill(self.shared, 3000, 4);
    EXPECT_OK(zero_comm_barrier(comm));
    EXPECT_OK(self.step_with({self.shared}, ZERO_REDUCE_NONE));
    EXPECT_EQ(self.data[0], -4);
  });
}

void expect_two_places(zero_status status, int rank, const char* words) {
  EXPECT_TRUE(ends(status, rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
}

TEST(SharedMemory, a_parameter_at_two_places_of_it_is_refused_by_the_seal) {
  on_pairs(3, [](Pair& self, int rank) {
    EXPECT_OK(self.add("a", self.data + (rank == 1 ? 5000 : 0), self.own));
    EXPECT_OK(self.add("b", self.data + (rank == 1 ? 0 : 3000), self.own + 3000));
    const char* const words =
        "parameter 'a' lies at byte 20000 of a ZERO_MEMORY_SHARED arena on rank 1 and at byte 0 on "
        "rank 0";
    expect_two_places(zero_seal(self.optim()), rank, words);
    expect_two_places(self.step(), rank, words);
    EXPECT_OK(self.bind({self.data, self.data + 3000}, {}));
    self.seal();
    EXPECT_OK(self.step());
  });
}

TEST(SharedMemory, a_parameter_bound_to_two_places_of_it_is_refused_by_the_next_call) {
  for (const bool steps : {false, true}) {
    on_pairs(2, [&](Pair& self, int rank) {
      EXPECT_OK(self.add("a", self.data, self.own));
      EXPECT_OK(self.step());
      EXPECT_OK(self.bind({self.data + rank * 4000}, {}));
      EXPECT_NE(steps ? self.step() : zero_broadcast_params(self.optim(), 0, nullptr), ZERO_OK);
      EXPECT_TRUE(says("'a' lies at byte "));
      EXPECT_OK(self.bind({self.data}, {}));
      EXPECT_OK(self.step());
    });
  }
}

TEST(SharedMemory, what_ends_beyond_its_arena_is_refused_when_it_is_registered) {
  on_each_comm(2, [](zero_comm* comm, int) {
    Pair self(comm);
    float *const arena = self.own, *const other = self.spare;
    EXPECT_EQ(self.add("a", other, arena + kFloats - 2999), ZERO_ERR_ARGUMENT);
    EXPECT_TRUE(says("the gradient of parameter 'a' needs 12000 bytes and ends beyond its arena"));
    EXPECT_TRUE(says("11996 bytes are left"));
    EXPECT_TRUE(ends(self.add("b", arena + kFloats - 1, other), ZERO_ERR_ARGUMENT,
                     "parameter 'b' needs 20000 bytes and ends beyond its arena"));
    EXPECT_TRUE(says("4 bytes are left"));
    const std::vector<int64_t> shape = {100};
    EXPECT_TRUE(ends(self.add_buffer(buffer("c", shape, arena + kFloats - 50, ZERO_FLOAT32)),
                     ZERO_ERR_ARGUMENT, "buffer 'c' needs 400 bytes"));
    EXPECT_OK(self.add("a", other, arena + kFloats - 3000));
    EXPECT_TRUE(ends(self.bind({other + kFloats - 10}, {}), ZERO_ERR_ARGUMENT,
                     "parameter 'a' needs 12000 bytes"));
    EXPECT_TRUE(ends(zero_grad_ready(self.optim(), 0, arena + kFloats - 1, nullptr),
                     ZERO_ERR_ARGUMENT, "the gradient of parameter 'a' needs 12000 bytes"));
    EXPECT_TRUE(ends(self.step_with({arena + kFloats - 1}, ZERO_REDUCE_SUM), ZERO_ERR_ARGUMENT,
                     "the gradient of parameter 'a' needs 12000 bytes"));
    EXPECT_OK(self.step());
  });
}

TEST(SharedMemory, data_and_gradient_that_are_swapped_are_refused_when_they_are_registered) {
  on_pairs(2, [](Pair& self, int) {
    EXPECT_TRUE(ends(self.add("a", self.own, self.shared), ZERO_ERR_ARGUMENT, "parameter 'a'"));
    EXPECT_TRUE(says("swapped"));
    EXPECT_OK(self.add("a", self.shared, self.own));
    EXPECT_TRUE(ends(self.bind({self.own}, {self.shared}), ZERO_ERR_ARGUMENT, "swapped"));
    expect_sound_step(self, self.shared, self.own, 2);
  });
}

TEST(SharedMemory, where_each_rank_has_its_own_gradients_may_lie_in_it) {
  for (const auto& [kind, world] : {std::pair(CommKind::user, 2), {CommKind::local, 1}}) {
    on_ranks(kind, world, [world = world](zero_comm* comm, int) {
      Pair self(comm);
      EXPECT_OK(self.add("a", self.own, self.shared));
      expect_sound_step(self, self.own, self.shared, world);
    });
  }
}

TEST(SharedMemory, on_devices_each_rank_has_its_own_and_gradients_may_lie_in_it) {
  for (const CommKind kind : {CommKind::gates, CommKind::staged}) {
    on_ranks(Meeting(kind, 2, {.seed = 7}), [&](zero_comm* comm, int) {
      Pair self(comm);
      EXPECT_OK(self.add("a", self.own, self.shared));
      self.seal();
      EXPECT_OK(self.step());
      (void)self.result();
    });
  }
}

}  // namespace
}  // namespace zero::test
