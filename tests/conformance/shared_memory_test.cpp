// SPDX-License-Identifier: Apache-2.0
// Memory of which all ranks have one copy: what must not lie there, or not so, is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "support/comms.h"
#include "support/expect.h"

namespace zero::test {
namespace {

constexpr int64_t kSizes[] = {3000, 5000};
constexpr size_t kFloats = 8192;  // of an arena
constexpr int32_t kShared = ZERO_MEMORY_SHARED, kPerRank = ZERO_MEMORY_PER_RANK;

/// One rank with parameters "a" and "b", of which it registers as many as it has memory for. SGD,
/// lr 1.
class Pair {
 public:
  explicit Pair(zero_comm* comm) : comm_(comm) {
    zero_options options = plain_sgd(kLr1);
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
  }
  ~Pair() {
    zero_free(optim);
    for (void* const arena : arenas_) EXPECT_EQ(zero_arena_free(arena), ZERO_OK);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  float* arena(int32_t kind) {
    void* memory = nullptr;
    EXPECT_EQ(zero_arena_alloc(comm_, kFloats * sizeof(float), kind, &memory), ZERO_OK) << last();
    arenas_.push_back(memory);
    return static_cast<float*>(memory);
  }
  zero_status add(const char* name, float* data, float* grad) {
    auto param = initialized<zero_param>();
    param.name = name;
    param.data = data;
    param.grad = grad;
    param.shape = &kSizes[*name == 'b'];
    param.ndim = 1;
    return zero_register_params(optim, nullptr, &param, 1, nullptr);
  }
  zero_status step(std::vector<void*> grads, int32_t flags = ZERO_REDUCE_SUM) {
    auto options = initialized<zero_step_options>();
    options.grads = grads.data();
    options.grad_count = grads.size();
    options.reduce_flags = flags;
    return zero_step(optim, &options);
  }
  zero_status bind(std::vector<void*> data, std::vector<void*> grads) {
    return zero_bind_params(optim, data.empty() ? nullptr : data.data(),
                            grads.empty() ? nullptr : grads.data(),
                            std::max(data.size(), grads.size()));
  }
  int64_t early_elements() const {
    auto out = initialized<zero_statistics>();
    EXPECT_EQ(zero_stats(optim, &out), ZERO_OK);
    return out.early_elements;
  }

  zero_optim* optim = nullptr;

 private:
  zero_comm* comm_;
  std::vector<void*> arenas_;
};

void fill(float* values, size_t count, float value) { std::fill(values, values + count, value); }

void on_pairs(int world, const std::function<void(Pair&, int rank)>& body) {
  on_ranks(CommKind::local, world, [&](zero_comm* comm, int rank) {
    Pair self(comm);
    body(self, rank);
  });
}

/// With gradients of its own, 1 on each rank, the step is right.
void expect_sound_step(Pair& self, const float* data, float* grad, int world) {
  fill(grad, kFloats, 1);
  const float before = data[0];
  EXPECT_EQ(self.step({grad}), ZERO_OK) << last();
  EXPECT_EQ(data[0], before - static_cast<float>(world));
  EXPECT_EQ(data[kSizes[0] - 1], before - static_cast<float>(world));
}

constexpr const char* kOfTwo =
    "the gradient of parameter 'a' of rank 0 overlaps the gradient of parameter 'a' of rank 1 in a "
    "ZERO_MEMORY_SHARED arena";

/// The ranks named by the sentence are at fault, all others hear of it.
void expect_refused(zero_status status, int rank, const char* words) {
  EXPECT_TRUE(ends(status, rank < 2 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER, words));
  EXPECT_TRUE(says("ZERO_MEMORY_PER_RANK"));
}

TEST(SharedMemory, registered_gradients_that_ranks_would_overwrite_are_refused_by_the_seal) {
  for (const int world : {2, 3}) {
    on_pairs(world, [&](Pair& self, int rank) {
      float* const data = self.arena(kShared);
      float* const grad = self.arena(kShared);
      float* const own = self.arena(kPerRank);
      EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
      expect_refused(zero_seal(self.optim), rank, kOfTwo);
      expect_refused(zero_broadcast_params(self.optim, 0, nullptr), rank, kOfTwo);
      expect_refused(zero_step(self.optim, nullptr), rank, kOfTwo);
      EXPECT_EQ(self.bind({}, {own}), ZERO_OK) << last();
      expect_sound_step(self, data, own, world);
    });
  }
}

TEST(SharedMemory, a_gradient_of_a_frozen_parameter_is_looked_at_when_it_thaws) {
  on_pairs(2, [](Pair& self, int rank) {
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kShared);
    EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
    EXPECT_EQ(zero_param_set_trainable(self.optim, 0, 0), ZERO_OK);
    EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
    EXPECT_EQ(zero_param_set_trainable(self.optim, 0, 1), ZERO_OK);
    expect_refused(zero_step(self.optim, nullptr), rank, kOfTwo);
  });
}

TEST(SharedMemory, gradients_given_to_a_call_that_ranks_would_overwrite_are_not_read) {
  on_pairs(3, [](Pair& self, int rank) {
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kShared);
    float* const own = self.arena(kPerRank);
    EXPECT_EQ(self.add("a", data, nullptr), ZERO_OK) << last();
    EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
    void* const given[] = {grad};
    expect_refused(self.step({grad}), rank, kOfTwo);
    expect_refused(zero_reduce_grads(self.optim, given, 1, 0, nullptr), rank, kOfTwo);
    expect_refused(zero_reduce_grads(self.optim, given, 1, ZERO_REDUCE_ACCUMULATE, nullptr), rank,
                   kOfTwo);
    expect_sound_step(self, data, own, 3);
    expect_refused(self.step({grad}), rank, kOfTwo);
    expect_sound_step(self, data, own, 3);
  });
}

TEST(SharedMemory, gradients_announced_that_ranks_would_overwrite_are_not_read) {
  for (const bool begins : {false, true}) {
    on_pairs(2, [&](Pair& self, int rank) {
      float* const data = self.arena(kShared);
      float* const grad = self.arena(kShared);
      float* const own = self.arena(kPerRank);
      EXPECT_EQ(self.add("a", data, own), ZERO_OK) << last();
      expect_sound_step(self, data, own, 2);
      if (begins) {
        EXPECT_EQ(zero_step_begin(self.optim, nullptr), ZERO_OK) << last();
      }
      EXPECT_EQ(zero_grad_ready(self.optim, 0, grad, nullptr), ZERO_OK) << last();
      usleep(20'000);
      expect_refused(zero_step(self.optim, nullptr), rank, kOfTwo);
      EXPECT_EQ(self.early_elements(), 0);
      EXPECT_EQ(data[0], -2);
      if (begins) return;
      EXPECT_EQ(zero_drop_grads(self.optim), ZERO_OK) << last();
      expect_sound_step(self, data, own, 2);
    });
  }
}

TEST(SharedMemory, the_gradient_of_one_rank_may_not_overlap_another_one_of_another_rank) {
  on_pairs(2, [](Pair& self, int rank) {
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kShared);
    float* const own = self.arena(kPerRank);
    EXPECT_EQ(self.add("a", data, rank == 0 ? grad : own), ZERO_OK) << last();
    EXPECT_EQ(self.add("b", data + 3000, rank == 1 ? grad + 2999 : own + 3000), ZERO_OK) << last();
    expect_refused(zero_seal(self.optim), rank,
                   "the gradient of parameter 'a' of rank 0 overlaps the gradient of parameter 'b' "
                   "of rank 1");
    EXPECT_EQ(self.bind({}, {rank == 0 ? grad : own, rank == 1 ? grad + 3000 : own + 3000}),
              ZERO_OK);
    EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
  });
}

TEST(SharedMemory, a_gradient_may_not_overlap_a_parameter_of_another_rank) {
  on_pairs(2, [](Pair& self, int rank) {
    float* const shared = self.arena(kShared);
    float* const own = self.arena(kPerRank);
    std::vector<float> foreign(3000);
    EXPECT_EQ(rank == 0 ? self.add("a", shared, own) : self.add("a", foreign.data(), shared + 10),
              ZERO_OK)
        << last();
    expect_refused(zero_seal(self.optim), rank,
                   "parameter 'a' of rank 0 overlaps the gradient of parameter 'a' of rank 1");
  });
}

TEST(SharedMemory, gradients_that_ranks_keep_apart_in_it_are_used) {
  on_pairs(2, [](Pair& self, int rank) {
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kShared) + rank * 3000;
    EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
    fill(grad, 3000, static_cast<float>(1 + rank));
    auto options = initialized<zero_step_options>();
    options.reduce_flags = ZERO_REDUCE_SUM;
    for (int step = 1; step <= 2; step++) {
      EXPECT_EQ(zero_grad_ready(self.optim, 0, grad, nullptr), ZERO_OK) << last();
      EXPECT_EQ(zero_step(self.optim, &options), ZERO_OK) << last();
      EXPECT_EQ(data[2999], -3.0f * static_cast<float>(step));
      fill(grad, 3000, static_cast<float>(1 + rank));
    }
  });
}

TEST(SharedMemory, one_copy_of_gradients_that_are_reduced_already_is_used) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Pair self(comm);
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kShared);
    EXPECT_EQ(self.add("a", data, nullptr), ZERO_OK) << last();
    if (rank == 0) fill(grad, 3000, 4);
    EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
    EXPECT_EQ(self.step({grad}, ZERO_REDUCE_NONE), ZERO_OK) << last();
    EXPECT_EQ(data[0], -4);
  });
}

void expect_two_places(zero_status status, int rank, const char* words) {
  EXPECT_TRUE(ends(status, rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
}

TEST(SharedMemory, a_parameter_at_two_places_of_it_is_refused_by_the_seal) {
  on_pairs(3, [](Pair& self, int rank) {
    float* const data = self.arena(kShared);
    float* const grad = self.arena(kPerRank);
    EXPECT_EQ(self.add("a", data + (rank == 1 ? 5000 : 0), grad), ZERO_OK) << last();
    EXPECT_EQ(self.add("b", data + (rank == 1 ? 0 : 3000), grad + 3000), ZERO_OK) << last();
    const char* const words =
        "parameter 'a' lies at byte 20000 of a ZERO_MEMORY_SHARED arena on rank 1 and at byte 0 on "
        "rank 0";
    expect_two_places(zero_seal(self.optim), rank, words);
    expect_two_places(zero_step(self.optim, nullptr), rank, words);
    EXPECT_EQ(self.bind({data, data + 3000}, {}), ZERO_OK) << last();
    EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
    EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
  });
}

TEST(SharedMemory, a_parameter_bound_to_two_places_of_it_is_refused_by_the_next_call) {
  for (const bool steps : {false, true}) {
    on_pairs(2, [&](Pair& self, int rank) {
      float* const data = self.arena(kShared);
      float* const grad = self.arena(kPerRank);
      EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
      EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
      EXPECT_EQ(self.bind({data + rank * 4000}, {}), ZERO_OK) << last();
      EXPECT_NE(
          steps ? zero_step(self.optim, nullptr) : zero_broadcast_params(self.optim, 0, nullptr),
          ZERO_OK);
      EXPECT_TRUE(says("'a' lies at byte "));
      EXPECT_EQ(self.bind({data}, {}), ZERO_OK) << last();
      EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
    });
  }
}

TEST(SharedMemory, what_ends_beyond_its_arena_is_refused_when_it_is_registered) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      Pair self(comm);
      float* const arena = self.arena(kPerRank);
      float* const other = self.arena(kPerRank);
      EXPECT_EQ(self.add("a", other, arena + kFloats - 2999), ZERO_ERR_ARGUMENT);
      EXPECT_TRUE(
          says("the gradient of parameter 'a' needs 12000 bytes and ends beyond its arena"));
      EXPECT_TRUE(says("11996 bytes are left"));
      EXPECT_TRUE(ends(self.add("b", arena + kFloats - 1, other), ZERO_ERR_ARGUMENT,
                       "parameter 'b' needs 20000 bytes and ends beyond its arena"));
      EXPECT_TRUE(says("4 bytes are left"));
      const int64_t size = 100;
      auto buffer = initialized<zero_buffer>();
      buffer.name = "c";
      buffer.data = arena + kFloats - 50;
      buffer.shape = &size;
      buffer.ndim = 1;
      EXPECT_TRUE(ends(zero_register_buffers(self.optim, &buffer, 1), ZERO_ERR_ARGUMENT,
                       "buffer 'c' needs 400 bytes"));
      EXPECT_EQ(self.add("a", other, arena + kFloats - 3000), ZERO_OK) << last();
      EXPECT_TRUE(ends(self.bind({other + kFloats - 10}, {}), ZERO_ERR_ARGUMENT,
                       "parameter 'a' needs 12000 bytes"));
      EXPECT_TRUE(ends(zero_grad_ready(self.optim, 0, arena + kFloats - 1, nullptr),
                       ZERO_ERR_ARGUMENT, "the gradient of parameter 'a' needs 12000 bytes"));
      EXPECT_TRUE(ends(self.step({arena + kFloats - 1}), ZERO_ERR_ARGUMENT,
                       "the gradient of parameter 'a' needs 12000 bytes"));
      EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
    });
  }
}

TEST(SharedMemory, data_and_gradient_that_are_swapped_are_refused_when_they_are_registered) {
  on_pairs(2, [](Pair& self, int) {
    float* const shared = self.arena(kShared);
    float* const own = self.arena(kPerRank);
    EXPECT_TRUE(ends(self.add("a", own, shared), ZERO_ERR_ARGUMENT, "parameter 'a'"));
    EXPECT_TRUE(says("swapped"));
    EXPECT_EQ(self.add("a", shared, own), ZERO_OK) << last();
    EXPECT_TRUE(ends(self.bind({own}, {shared}), ZERO_ERR_ARGUMENT, "swapped"));
    expect_sound_step(self, shared, own, 2);
  });
}

TEST(SharedMemory, where_each_rank_has_its_own_gradients_may_lie_in_it) {
  on_ranks(CommKind::user, 2, [](zero_comm* comm, int) {
    Pair self(comm);
    float* const data = self.arena(kPerRank);
    float* const grad = self.arena(kShared);
    EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
    expect_sound_step(self, data, grad, 2);
  });
  on_ranks(CommKind::local, 1, [](zero_comm* comm, int) {
    Pair self(comm);
    float* const data = self.arena(kPerRank);
    float* const grad = self.arena(kShared);
    EXPECT_EQ(self.add("a", data, grad), ZERO_OK) << last();
    expect_sound_step(self, data, grad, 1);
  });
}

TEST(SharedMemory, on_devices_each_rank_has_its_own_and_gradients_may_lie_in_it) {
  for (const bool reaches : {true, false}) {
    const auto world = chaos(7, {.reaches = reaches});
    const std::string name = unique_name();
    const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      zero_comm* const comm =
          api::add_handle(create_local(name, rank, 2, {}, devices[rank]).value());
      {
        Pair self(comm);
        EXPECT_EQ(self.add("a", self.arena(kPerRank), self.arena(kShared)), ZERO_OK) << last();
        EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
        EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
        auto result = initialized<zero_result>();
        EXPECT_EQ(zero_step_result(self.optim, &result), ZERO_OK) << last();
      }
      zero_comm_free(comm);
      return {};
    });
  }
}

}  // namespace
}  // namespace zero::test
