// SPDX-License-Identifier: Apache-2.0
// Invalid or different arguments of ranks: in a collective call the culprit gets its own code and
// the others get ZERO_ERR_PEER with the same sentence. The comm stays usable.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "zero.h"

namespace zero::test {
namespace {

struct Registration {
  Registration() : options(initialized<zero_options>()) { options.bucket_bytes = 1 << 20; }

  zero_options options;
  double lr = 1e-3;
  std::vector<std::string> names = {"a", "b", "c"};
  std::vector<std::vector<int64_t>> shapes = {{10}, {10}, {5, 4}};
  int32_t owner = 0;
  int64_t order = 0;
  int32_t dtype = ZERO_FLOAT32, grad_dtype = ZERO_FLOAT32;  // of "c"
  const char* group_rule = nullptr;
};

class Seat : public Optim {
 public:
  explicit Seat(zero_comm* comm, const Registration& given = Registration())
      : Optim(comm, given.options, {{"lr", given.lr}}), data(4096, 1), grad_(4096, 1) {
    std::vector<zero_param> params;
    for (size_t i = 0; i < given.names.size(); i++) {
      params.push_back(parameter(given.names[i].c_str(), given.shapes[i][0], data.data() + i * 512,
                                 grad_.data() + i * 512));
      if (given.names[i] == "c") {
        params[i].dtype = given.dtype;
        params[i].grad_dtype = given.grad_dtype;
      }
      params[i].ndim = static_cast<int32_t>(given.shapes[i].size());
      params[i].owner = given.owner;
      params[i].order = given.order;
      if (given.order != 0) params[i].flags |= ZERO_PARAM_ORDER;
    }
    auto group = initialized<zero_group_options>();
    group.optimizer = given.group_rule;
    EXPECT_OK(zero_register_params(optim(), &group, params.data(), params.size(), nullptr));
  }
  ~Seat() { free(); }

  std::vector<float> data;

 private:
  std::vector<float> grad_;
};

TEST(BadInputOfRanks, a_registration_that_differs_is_named_on_every_rank_and_the_comm_stays) {
  const struct {
    const char* words;
    std::function<void(Registration&)> change;
  } cases[] = {
      {"'B'", [](Registration& r) { r.names[1] = "B"; }},
      {"'a'", [](Registration& r) { std::swap(r.names[0], r.names[1]); }},
      {"'c'", [](Registration& r) { std::swap(r.shapes[2][0], r.shapes[2][1]); }},
      {"'c'", [](Registration& r) { r.shapes[2] = {20}; }},
      {"'b' with 11 elements", [](Registration& r) { r.shapes[1] = {11}; }},
      {"'c'", [](Registration& r) { r.names.pop_back(); }},
      {"'d'", [](Registration& r) { r.names.push_back("d"), r.shapes.push_back({1}); }},
      {"sgd", [](Registration& r) { r.options.optimizer = ZERO_OPTIMIZER_SGD; }},
      {"group 0 with optimizer lion", [](Registration& r) { r.group_rule = "lion"; }},
      {"partition 1", [](Registration& r) { r.options.partition = ZERO_PARTITION_GREEDY; }},
      {"bucket_bytes 4096", [](Registration& r) { r.options.bucket_bytes = 4096; }},
      {"max_grad_norm", [](Registration& r) { r.options.max_grad_norm = 1; }},
      {"lr", [](Registration& r) { r.lr = std::nextafter(1e-3, 1); }},
      {"order 5", [](Registration& r) { r.order = 5; }},
      {"owner 1", [](Registration& r) { r.owner = 1; }},
      {"bfloat16 [5x4]", [](Registration& r) { r.dtype = ZERO_BFLOAT16; }},
      {"gradient float16", [](Registration& r) { r.grad_dtype = ZERO_FLOAT16; }},
      {"master 1", [](Registration& r) { r.options.master = ZERO_MASTER_REMAINDER; }},
      {"wire_dtype bfloat16", [](Registration& r) { r.options.wire_dtype = ZERO_BFLOAT16; }},
      {"predivide_factor", [](Registration& r) { r.options.predivide_factor = 2; }},
      {"share_dtype float16", [](Registration& r) { r.options.share_dtype = ZERO_FLOAT16; }},
      {"loss_scale dynamic", [](Registration& r) { r.options.loss_scale = 8; }},
      {"growth_factor", [](Registration& r) { r.options.growth_factor = std::nextafter(2, 3); }},
  };
  for (int world = 2; world <= 4; world++) {
    for (int odd = 0; odd < world; odd++) {
      on_ranks(CommKind::local, world, [&](zero_comm* comm, int rank) {
        for (const auto& one : cases) {
          Registration registration;
          if (rank == odd) one.change(registration);
          Seat seat(comm, registration);
          const bool culprit = world == 2 ? rank == 1 : rank == odd;
          EXPECT_TRUE(ends(seat.step(), culprit ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, one.words));
          seat.free();
          EXPECT_OK(zero_comm_barrier(comm));
        }
      });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, one_ranks_mistake_in_a_collective_call_is_told_to_all_at_once) {
  const struct {
    std::function<zero_status(Seat&)> mistake, right;
  } cases[] = {
      {[](Seat& s) { return zero_reduce_grads(s.optim(), nullptr, 0, 99, nullptr); },
       [](Seat& s) { return zero_reduce_grads(s.optim(), nullptr, 0, 0, nullptr); }},
      {[](Seat& s) { return zero_clip_grad_norm(s.optim(), nullptr, 0, -1, 2, nullptr, nullptr); },
       [](Seat& s) { return zero_clip_grad_norm(s.optim(), nullptr, 0, 1, 2, nullptr, nullptr); }},
      {[](Seat& s) { return zero_broadcast_params(s.optim(), 9, nullptr); },
       [](Seat& s) { return zero_broadcast_params(s.optim(), 0, nullptr); }},
      {[](Seat& s) { return zero_broadcast_params(s.optim(), 0, s.data.data()); },
       [](Seat& s) { return zero_broadcast_params(s.optim(), 0, nullptr); }},
      {[](Seat& s) { return zero_share_params(s.optim(), 0, s.data.data()); },
       [](Seat& s) { return zero_share_params(s.optim(), 0, nullptr); }},
      {[](Seat& s) {
         auto options = initialized<zero_step_options>();
         options.reserved = 1;
         return zero_step(s.optim(), &options);
       },
       [](Seat& s) { return zero_step(s.optim(), nullptr); }},
      {[](Seat& s) { return zero_state_save(s.optim(), "", nullptr); },
       [](Seat& s) {
         return zero_state_save(s.optim(), "/nonexistent-directory-of-libzero-tests/x", nullptr);
       }},
      {[](Seat& s) { return zero_comm_broadcast(s.comm(), nullptr, 4, 0); },
       [](Seat& s) { return zero_comm_broadcast(s.comm(), s.data.data(), 4, 0); }},
      {[](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm(), 0, ZERO_MEMORY_SHARED, &p);
       },
       [](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm(), 64, ZERO_MEMORY_SHARED, &p);
       }},
  };
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
    Seat seat(comm);
    seat.seal();
    for (const auto& one : cases) {
      for (int odd = 0; odd < 3; odd++) {
        const zero_status status = rank == odd ? one.mistake(seat) : one.right(seat);
        EXPECT_EQ(status, rank == odd ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER) << last();
        if (rank != odd) {
          EXPECT_TRUE(says("rank " + std::to_string(odd)));
        }
        EXPECT_OK(zero_comm_barrier(seat.comm()));
      }
    }
    EXPECT_OK(seat.step());
  });
}

TEST(BadInputOfRanks, settings_that_differ_at_a_step_are_named_and_nothing_moves) {
  on_ranks(CommKind::local, 3, [&](zero_comm* comm, int rank) {
    Seat seat(comm);
    EXPECT_OK(seat.step());
    const std::vector<float> before = seat.data;
    seat.set("lr", rank == 1 ? 0.2 : 0.1, 0);
    EXPECT_TRUE(ends(zero_step(seat.optim(), nullptr),
                     rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "lr"));
    EXPECT_EQ(seat.data, before);
    seat.set("lr", 0.1, 0);
    EXPECT_OK(seat.step());
  });
}

TEST(BadInputOfRanks, different_calls_name_both_sides_at_once) {
  const std::function<zero_status(Seat&)> calls[] = {
      [](Seat& s) { return zero_comm_barrier(s.comm()); },
      [](Seat& s) { return zero_step(s.optim(), nullptr); },
      [](Seat& s) { return zero_reduce_grads(s.optim(), nullptr, 0, 0, nullptr); },
      [](Seat& s) { return zero_clip_grad_norm(s.optim(), nullptr, 0, 1, 2, nullptr, nullptr); },
      [](Seat& s) { return zero_broadcast_params(s.optim(), 0, nullptr); },
      [](Seat& s) { return zero_seal(s.optim()); },
      [](Seat& s) { return zero_state_save(s.optim(), "/tmp/x", nullptr); },
      [](Seat& s) { return zero_state_load(s.optim(), "/tmp/x", nullptr); },
      [](Seat& s) { return zero_comm_broadcast(s.comm(), s.data.data(), 4, 0); },
      [](Seat& s) {
        return zero_comm_all_reduce(s.comm(), s.data.data(), 1, ZERO_FLOAT32, ZERO_SUM);
      },
      [](Seat& s) {
        zero_comm* child = nullptr;
        return zero_comm_split(&child, s.comm(), 0, 0);
      },
      [](Seat& s) {
        void* p;
        return zero_arena_alloc(s.comm(), 64, ZERO_MEMORY_SHARED, &p);
      },
  };
  for (size_t a = 0; a < std::size(calls); a++) {
    for (size_t b = 0; b < std::size(calls); b++) {
      if (a == b) continue;
      on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
        Seat seat(comm);
        EXPECT_EQ(calls[rank == 0 ? a : b](seat), ZERO_ERR_DESYNC)
            << a << ", " << b << ": " << last();
        EXPECT_TRUE(says("rank 0"));
        EXPECT_TRUE(says("rank 1"));
        EXPECT_EQ(zero_comm_barrier(seat.comm()), ZERO_ERR_DESYNC);
      });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, two_threads_in_one_handle_make_one_of_them_busy) {
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
    Seat seat(comm);
    if (rank == 1) {
      // Rank 0's first thread is in the call until rank 1 arrives.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_OK(seat.step());
      return;
    }
    zero_status inside = -1;
    std::thread first([&] { inside = zero_step(seat.optim(), nullptr); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(zero_group_set(seat.optim(), 0, "lr", 0.1), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_step(seat.optim(), nullptr), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_comm_barrier(seat.comm()), ZERO_ERR_BUSY);
    first.join();
    EXPECT_OK(inside);
  });
}

}  // namespace
}  // namespace zero::test
