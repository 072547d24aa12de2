// SPDX-License-Identifier: Apache-2.0
// What ranks hand over wrongly or differently: inside a collective call the culprit gets its own
// code, the others ZERO_ERR_PEER with the same sentence, and the comm stays usable.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {
namespace {

struct Seat {
  explicit Seat(zero_comm* joined) : comm(joined) {}

  zero_comm* comm;
  zero_optim* optim = nullptr;
  std::vector<float> data, grad;
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  ~Seat() {
    zero_free(optim);
    zero_comm_free(comm);
  }
};

struct Registration {
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 1 << 20;
  double max_grad_norm = 0, lr = 1e-3;
  std::vector<std::string> names = {"a", "b", "c"};
  std::vector<std::vector<int64_t>> shapes = {{10}, {10}, {5, 4}};
  int32_t owner = 0;
  int64_t order = 0;
  int32_t dtype = ZERO_FLOAT32, grad_dtype = ZERO_FLOAT32;  // of "c"
  int32_t master = ZERO_MASTER_FLOAT32, wire_dtype = 0;
  double loss_scale = 0, growth_factor = 2, predivide_factor = 1;
  int32_t share_dtype = 0;
};

void register_on(Seat& seat, const Registration& registration) {
  auto options = initialized<zero_options>();
  options.optimizer = registration.optimizer;
  options.partition = registration.partition;
  options.bucket_bytes = registration.bucket_bytes;
  options.max_grad_norm = registration.max_grad_norm;
  options.master = registration.master;
  options.wire_dtype = registration.wire_dtype;
  options.predivide_factor = registration.predivide_factor;
  options.share_dtype = registration.share_dtype;
  options.loss_scale = registration.loss_scale;
  options.growth_factor = registration.growth_factor;
  const char* name = "lr";
  options.names = &name;
  options.values = &registration.lr;
  options.setting_count = 1;
  ASSERT_EQ(zero_create(&seat.optim, seat.comm, &options), ZERO_OK) << last();
  seat.data.assign(4096, 1);
  seat.grad.assign(4096, 1);
  std::vector<zero_param> params(registration.names.size());
  for (size_t i = 0; i < params.size(); i++) {
    ZERO_INIT(params[i]);
    params[i].name = registration.names[i].c_str();
    if (registration.names[i] == "c") {
      params[i].dtype = registration.dtype;
      params[i].grad_dtype = registration.grad_dtype;
    }
    params[i].shape = registration.shapes[i].data();
    params[i].ndim = static_cast<int32_t>(registration.shapes[i].size());
    params[i].data = seat.data.data() + i * 512;
    params[i].grad = seat.grad.data() + i * 512;
    params[i].owner = registration.owner;
    params[i].order = registration.order;
    if (registration.order != 0) params[i].flags |= ZERO_PARAM_ORDER;
  }
  ASSERT_EQ(zero_register_params(seat.optim, nullptr, params.data(), params.size(), nullptr),
            ZERO_OK)
      << last();
}

TEST(BadInputOfRanks, a_registration_that_differs_is_named_on_every_rank_and_the_comm_stays) {
  const struct {
    const char* words;
    std::function<void(Registration&)> change;
  } cases[] = {
      {"'B'", [](Registration& r) { r.names[1] = "B"; }},
      {"'a'", [](Registration& r) { std::swap(r.names[0], r.names[1]); }},
      {"'c'",
       [](Registration& r) {
         r.shapes[2] = {4, 5};
       }},
      {"'c'", [](Registration& r) { r.shapes[2] = {20}; }},
      {"'b' with 11 elements", [](Registration& r) { r.shapes[1] = {11}; }},
      {"'c'", [](Registration& r) { r.names.pop_back(); }},
      {"'d'",
       [](Registration& r) {
         r.names.push_back("d");
         r.shapes.push_back({1});
       }},
      {"sgd", [](Registration& r) { r.optimizer = ZERO_OPTIMIZER_SGD; }},
      {"partition 1", [](Registration& r) { r.partition = ZERO_PARTITION_GREEDY; }},
      {"bucket_bytes 4096", [](Registration& r) { r.bucket_bytes = 4096; }},
      {"max_grad_norm", [](Registration& r) { r.max_grad_norm = 1; }},
      {"lr", [](Registration& r) { r.lr = std::nextafter(1e-3, 1); }},
      {"order 5", [](Registration& r) { r.order = 5; }},
      {"owner 1", [](Registration& r) { r.owner = 1; }},
      {"bfloat16 [5x4]", [](Registration& r) { r.dtype = ZERO_BFLOAT16; }},
      {"gradient float16", [](Registration& r) { r.grad_dtype = ZERO_FLOAT16; }},
      {"master 1", [](Registration& r) { r.master = ZERO_MASTER_REMAINDER; }},
      {"wire_dtype bfloat16", [](Registration& r) { r.wire_dtype = ZERO_BFLOAT16; }},
      {"predivide_factor", [](Registration& r) { r.predivide_factor = 2; }},
      {"share_dtype float16", [](Registration& r) { r.share_dtype = ZERO_FLOAT16; }},
      {"loss_scale dynamic", [](Registration& r) { r.loss_scale = 8; }},
      {"growth_factor", [](Registration& r) { r.growth_factor = std::nextafter(2, 3); }},
  };
  for (int world = 2; world <= 4; world++) {
    for (int odd = 0; odd < world; odd++) {
      const Meeting meeting(CommKind::local, world);
      const std::vector<std::string> texts =
          run_sound_ranks(RankKind::threads, world, [&](int rank) {
            Seat seat(meeting.join(rank));
            std::string all;
            for (const auto& one : cases) {
              Registration registration;
              if (rank == odd) one.change(registration);
              register_on(seat, registration);
              const zero_status status = zero_step(seat.optim, nullptr);
              const bool culprit = world == 2 ? rank == 1 : rank == odd;
              EXPECT_EQ(status, culprit ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER)
                  << one.words << ": " << last();
              EXPECT_TRUE(says(one.words));
              all += last() + "\n";
              zero_free(seat.optim);
              seat.optim = nullptr;
              EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_OK) << last();
            }
            return all;
          });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, one_ranks_mistake_in_a_collective_call_is_told_to_all_at_once) {
  const struct {
    zero_status code;
    std::function<zero_status(Seat&)> mistake, right;
  } cases[] = {
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 99, nullptr); },
       [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) { return zero_clip_grad_norm(s.optim, nullptr, 0, -1, 2, nullptr, nullptr); },
       [](Seat& s) { return zero_clip_grad_norm(s.optim, nullptr, 0, 1, 2, nullptr, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_broadcast_params(s.optim, 9, nullptr); },
       [](Seat& s) { return zero_broadcast_params(s.optim, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_broadcast_params(s.optim, 0, s.data.data()); },
       [](Seat& s) { return zero_broadcast_params(s.optim, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_share_params(s.optim, 0, s.data.data()); },
       [](Seat& s) { return zero_share_params(s.optim, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) {
         auto options = initialized<zero_step_options>();
         options.reserved = 1;
         return zero_step(s.optim, &options);
       },
       [](Seat& s) { return zero_step(s.optim, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_state_save(s.optim, "", nullptr); },
       [](Seat& s) {
         return zero_state_save(s.optim, "/nonexistent-directory-of-libzero-tests/x", nullptr);
       }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_comm_broadcast(s.comm, nullptr, 4, 0); },
       [](Seat& s) { return zero_comm_broadcast(s.comm, s.data.data(), 4, 0); }},
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm, 0, ZERO_MEMORY_SHARED, &p);
       },
       [](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm, 64, ZERO_MEMORY_SHARED, &p);
       }},
  };
  const Meeting meeting(CommKind::local, 3);
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Seat seat(meeting.join(rank));
    register_on(seat, Registration{});
    EXPECT_EQ(zero_seal(seat.optim), ZERO_OK) << last();
    for (const auto& one : cases) {
      for (int odd = 0; odd < 3; odd++) {
        const zero_status status = rank == odd ? one.mistake(seat) : one.right(seat);
        EXPECT_EQ(status, rank == odd ? one.code : ZERO_ERR_PEER) << last();
        if (rank != odd) {
          EXPECT_TRUE(says("rank " + std::to_string(odd)));
        }
        EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_OK) << last();
      }
    }
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    return std::string();
  });
}

TEST(BadInputOfRanks, settings_that_differ_at_a_step_are_named_and_nothing_moves) {
  const Meeting meeting(CommKind::local, 3);
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Seat seat(meeting.join(rank));
    register_on(seat, Registration{});
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    const std::vector<float> before = seat.data;
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", rank == 1 ? 0.2 : 0.1), ZERO_OK);
    EXPECT_TRUE(
        ends(zero_step(seat.optim, nullptr), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "lr"));
    EXPECT_EQ(seat.data, before);
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", 0.1), ZERO_OK);
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    return std::string();
  });
}

TEST(BadInputOfRanks, different_calls_name_both_sides_at_once) {
  const std::function<zero_status(Seat&)> calls[] = {
      [](Seat& s) { return zero_comm_barrier(s.comm); },
      [](Seat& s) { return zero_step(s.optim, nullptr); },
      [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 0, nullptr); },
      [](Seat& s) { return zero_clip_grad_norm(s.optim, nullptr, 0, 1, 2, nullptr, nullptr); },
      [](Seat& s) { return zero_broadcast_params(s.optim, 0, nullptr); },
      [](Seat& s) { return zero_seal(s.optim); },
      [](Seat& s) { return zero_state_save(s.optim, "/tmp/x", nullptr); },
      [](Seat& s) { return zero_state_load(s.optim, "/tmp/x", nullptr); },
      [](Seat& s) { return zero_comm_broadcast(s.comm, s.data.data(), 4, 0); },
      [](Seat& s) {
        return zero_comm_all_reduce(s.comm, s.data.data(), 1, ZERO_FLOAT32, ZERO_SUM);
      },
      [](Seat& s) {
        zero_comm* child = nullptr;
        return zero_comm_split(&child, s.comm, 0, 0);
      },
      [](Seat& s) {
        void* p;
        return zero_arena_alloc(s.comm, 64, ZERO_MEMORY_SHARED, &p);
      },
  };
  for (size_t a = 0; a < std::size(calls); a++) {
    for (size_t b = 0; b < std::size(calls); b++) {
      if (a == b) continue;
      const Meeting meeting(CommKind::local, 2);
      run_sound_ranks(RankKind::threads, 2, [&](int rank) {
        Seat seat(meeting.join(rank));
        register_on(seat, Registration{});
        EXPECT_EQ(calls[rank == 0 ? a : b](seat), ZERO_ERR_DESYNC)
            << a << ", " << b << ": " << last();
        EXPECT_TRUE(says("rank 0"));
        EXPECT_TRUE(says("rank 1"));
        EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_ERR_DESYNC);
        return std::string();
      });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, two_threads_in_one_handle_make_one_of_them_busy) {
  const Meeting meeting(CommKind::local, 2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    Seat seat(meeting.join(rank));
    register_on(seat, Registration{});
    if (rank == 1) {
      // Until rank 1 comes, rank 0's first thread is inside.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
      return std::string();
    }
    zero_status inside = -1;
    std::thread first([&] { inside = zero_step(seat.optim, nullptr); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", 0.1), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_ERR_BUSY);
    first.join();
    EXPECT_EQ(inside, ZERO_OK);
    return std::string();
  });
}

}  // namespace
}  // namespace zero::test
