// SPDX-License-Identifier: Apache-2.0
// The first step reports ranks that start with different parameters.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "captured_model.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

/// One rank with parameters "w" in fp32 and "h" in bf16, and SGD with lr 1.
class Seat : public Optim {
 public:
  Seat(zero_comm* comm, float first, int32_t uneven = ZERO_UNEVEN_OFF)
      : Optim(comm, plain_sgd(kLr1, [&](zero_options& o) { o.uneven_inputs = uneven; })),
        w(kSize, first),
        half(kSize, static_cast<uint16_t>(first == 0 ? 0 : 0x3F80)) {
    add(parameter("w", kSize, w.data(), grad.data()));
    add(parameter("h", kSize, half.data(), half_grad.data(), ZERO_BFLOAT16));
  }
  ~Seat() { free(); }

  zero_status step() {
    std::fill(grad.begin(), grad.end(), 1.0f);
    std::fill(half_grad.begin(), half_grad.end(), uint16_t{0x3F80});
    return Optim::step();
  }
  int64_t steps() const { return found().step; }

  static constexpr int64_t kSize = 3001;
  std::vector<float> w, grad = std::vector<float>(kSize, 1);
  std::vector<uint16_t> half, half_grad = std::vector<uint16_t>(kSize, 0x3F80);
};

constexpr const char* kWords = "call zero_broadcast_params";

void expect_refused(zero_status status, int rank, int odd) {
  EXPECT_TRUE(ends(status, rank == odd ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, kWords));
}

using First = std::function<zero_status(zero_optim*)>;
const First kFirsts[] = {
    [](zero_optim* optim) { return zero_step(optim, nullptr); },
    [](zero_optim* optim) { return zero_step_begin(optim, nullptr); },
    [](zero_optim* optim) { return zero_reduce_grads(optim, nullptr, 0, 0, nullptr); },
    [](zero_optim* optim) {
      return zero_clip_grad_norm(optim, nullptr, 0, 1, 2, nullptr, nullptr);
    },
    [](zero_optim* optim) { return zero_clip_grad_value(optim, 1, nullptr); },
};

TEST(ForgottenBroadcast, the_first_step_from_different_parameters_fails_and_changes_nothing) {
  for (const First& first : kFirsts) {
    on_each_comm(2, [&](zero_comm* comm, int rank) {
      Seat self(comm, static_cast<float>(rank));
      const std::vector<float> before = self.w;
      const std::vector<uint16_t> half_before = self.half;
      for (int again = 0; again < 2; again++) expect_refused(first(self.optim()), rank, 1);
      EXPECT_TRUE(says("rank 1 has parameter 'w'"));
      EXPECT_TRUE(says("rank 0 has parameter 'w'"));
      EXPECT_EQ(self.w, before);
      EXPECT_EQ(self.half, half_before);
      EXPECT_EQ(self.steps(), 0);
      self.broadcast(1);
      EXPECT_OK(self.step());
      EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, 0));
      EXPECT_EQ(self.half, std::vector<uint16_t>(Seat::kSize, 0));
      EXPECT_EQ(self.steps(), 1);
    });
  }
}

TEST(ForgottenBroadcast, the_sentence_names_the_parameter_and_the_rank_that_differ) {
  on_each_comm(3, [](zero_comm* comm, int rank) {
    Seat self(comm, 1);
    if (rank == 2) self.half.back()++;
    expect_refused(self.step(), rank, 2);
    EXPECT_TRUE(says("rank 2 has parameter 'h'"));
  });
}

TEST(ForgottenBroadcast, equal_parameters_need_none) {
  on_each_comm(2, [](zero_comm* comm, int) {
    Seat self(comm, 1);
    for (int step = 0; step < 3; step++) EXPECT_OK(self.step());
    EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -2));
  });
}

/// After these calls the ranks have the same parameters, or declare so.
TEST(ForgottenBroadcast, who_broadcasts_shares_loads_or_says_so_is_not_asked) {
  const Scratch scratch;
  const std::string saved = scratch / "saved";
  on_each_comm(2, [&](zero_comm* comm, int rank) {
    Seat self(comm, static_cast<float>(rank));
    self.broadcast(ZERO_ROOT_NONE);
    EXPECT_OK(self.step());
    Seat shared(comm, static_cast<float>(rank));
    EXPECT_OK(zero_share_params(shared.optim(), 0, nullptr));
    EXPECT_OK(shared.step());
    auto replace = initialized<zero_save_options>();
    replace.flags = ZERO_SAVE_REPLACE;
    EXPECT_OK(zero_state_save(shared.optim(), saved.c_str(), &replace));
    Seat loaded(comm, static_cast<float>(rank));
    loaded.load(saved);
    loaded.w[0] = static_cast<float>(rank);  // is not compared
    EXPECT_OK(loaded.step());
  });
}

TEST(ForgottenBroadcast, of_a_late_group_only_that_is_compared) {
  on_each_comm(2, [](zero_comm* comm, int rank) {
    Seat self(comm, 1);
    std::vector<float> late(Seat::kSize, static_cast<float>(rank)), grad(Seat::kSize, 1);
    EXPECT_OK(self.step());
    self.w[0] = static_cast<float>(rank);  // is not compared
    self.add(parameter("late", Seat::kSize, late.data(), grad.data()));
    expect_refused(self.step(), rank, 1);
    EXPECT_TRUE(says("parameter 'late'"));
    EXPECT_EQ(late, std::vector<float>(Seat::kSize, static_cast<float>(rank)));
    EXPECT_EQ(self.steps(), 1);
    self.broadcast(0);
    EXPECT_OK(self.step());
    EXPECT_EQ(late, std::vector<float>(Seat::kSize, -1));
  });
}

TEST(ForgottenBroadcast, announced_gradients_are_taken_again_after_a_drop) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Seat self(comm, static_cast<float>(rank));
    self.seal();
    EXPECT_OK(zero_grad_ready(self.optim(), 0, self.grad.data(), nullptr));
    expect_refused(zero_step(self.optim(), nullptr), rank, 1);
    EXPECT_OK(zero_drop_grads(self.optim()));
    self.broadcast(0);
    EXPECT_OK(zero_grad_ready(self.optim(), 0, self.grad.data(), nullptr));
    EXPECT_OK(zero_step(self.optim(), nullptr));
    EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -1));
  });
}

TEST(ForgottenBroadcast, a_rank_that_joined_is_compared_like_the_others) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Seat self(comm, static_cast<float>(rank), ZERO_UNEVEN_WORLD);
    if (rank == 0) {
      EXPECT_NE(self.step(), ZERO_OK);
      EXPECT_TRUE(says(kWords));
      self.broadcast(0);
      EXPECT_OK(self.step());
    }
    EXPECT_OK(zero_join(self.optim(), nullptr, nullptr));
    EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -0.5f));
  });
}

/// Returns how often rank 0's engine is called in the first step.
int calls_of_first_step(bool compares) {
  const Meeting meeting(CommKind::user, 2);
  int of_step = -1;
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    int calls = 0;
    zero_comm* const comm = meeting.join(rank, [&](const char*) {
      calls++;
      return ZERO_OK;
    });
    {
      Seat self(comm, 1);
      self.seal();
      if (!compares) self.broadcast(ZERO_ROOT_NONE);
      const int before = calls;
      EXPECT_OK(self.step());
      if (rank == 0) of_step = calls - before;
    }
    zero_comm_free(comm);
    return {};
  });
  return of_step;
}

TEST(ForgottenBroadcast, a_step_that_compares_exchanges_no_more_than_one_that_does_not) {
  EXPECT_GT(calls_of_first_step(true), 0);
  EXPECT_EQ(calls_of_first_step(true), calls_of_first_step(false));
}

/// Runs two ranks on devices, of which one has different parameters.
void on_two_devices(CommKind kind, const std::function<void(Captured&, int rank)>& body) {
  on_ranks(Meeting(kind, 2, {.seed = 3}), [&](zero_comm* comm, int rank) {
    Captured model(defaults(), comm);
    model.give(0);
    if (rank == 1) model.spoil();
    model.seal();
    body(model, rank);
  });
}

TEST(ForgottenBroadcast, on_a_device_the_first_step_is_refused_as_on_the_host) {
  for (const CommKind kind : {CommKind::gates, CommKind::staged}) {
    on_two_devices(kind, [](Captured& model, int rank) {
      Contents before = model.everything();
      EXPECT_TRUE(ends(model.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, kWords));
      EXPECT_TRUE(says("parameter 'half'"));
      Contents after = model.everything();
      for (Contents* const all : {&before, &after}) all->erase("status");
      EXPECT_TRUE(after == before);
      EXPECT_OK(zero_broadcast_params(model.optim(), 0, model.stream()));
      EXPECT_OK(model.step());
    });
  }
}

TEST(ForgottenBroadcast, on_a_device_a_captured_step_is_not_compared) {
  on_two_devices(CommKind::gates, [](Captured& model, int) {
    const Graph graph = model.capture_step();
    model.launch(graph);
    EXPECT_EQ(model.result().step, 1);
  });
}

}  // namespace
}  // namespace zero::test
