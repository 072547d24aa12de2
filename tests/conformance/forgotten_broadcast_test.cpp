// SPDX-License-Identifier: Apache-2.0
// Ranks that do not begin with the same parameters are told so by their first step.
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

/// One rank with parameters "w" of fp32 and "h" of bf16, SGD with lr 1.
class Seat {
 public:
  Seat(zero_comm* comm, float first, int32_t uneven = ZERO_UNEVEN_OFF) : w(kSize, first) {
    half.assign(kSize, static_cast<uint16_t>(first == 0 ? 0 : 0x3F80));
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_SGD;
    const char* const names[] = {"lr"};
    const double values[] = {1};
    options.names = names;
    options.values = values;
    options.setting_count = 1;
    options.uneven_inputs = uneven;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << last();
    add("w", w.data(), grad.data(), ZERO_FLOAT32);
    add("h", half.data(), half_grad.data(), ZERO_BFLOAT16);
  }
  ~Seat() { zero_free(optim); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  void add(const char* name, void* data, void* gradient, int32_t dtype) {
    auto param = initialized<zero_param>();
    param.name = name;
    param.data = data;
    param.grad = gradient;
    param.shape = &kSize;
    param.ndim = 1;
    param.dtype = dtype;
    EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK) << last();
  }
  zero_status step() {
    std::fill(grad.begin(), grad.end(), 1.0f);
    std::fill(half_grad.begin(), half_grad.end(), uint16_t{0x3F80});
    return zero_step(optim, nullptr);
  }
  int64_t steps() const {
    auto result = initialized<zero_result>();
    zero_step_result(optim, &result);
    return result.step;
  }

  static constexpr int64_t kSize = 3001;
  zero_optim* optim = nullptr;
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
  for (const CommKind kind : kCommKinds) {
    for (const First& first : kFirsts) {
      on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
        Seat self(comm, static_cast<float>(rank));
        const std::vector<float> before = self.w;
        const std::vector<uint16_t> half_before = self.half;
        for (int again = 0; again < 2; again++) expect_refused(first(self.optim), rank, 1);
        EXPECT_TRUE(says("rank 1 has parameter 'w'"));
        EXPECT_TRUE(says("rank 0 has parameter 'w'"));
        EXPECT_EQ(self.w, before);
        EXPECT_EQ(self.half, half_before);
        EXPECT_EQ(self.steps(), 0);
        EXPECT_EQ(zero_broadcast_params(self.optim, 1, nullptr), ZERO_OK) << last();
        EXPECT_EQ(self.step(), ZERO_OK) << last();
        EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, 0));
        EXPECT_EQ(self.half, std::vector<uint16_t>(Seat::kSize, 0));
        EXPECT_EQ(self.steps(), 1);
      });
    }
  }
}

TEST(ForgottenBroadcast, the_sentence_names_the_parameter_and_the_rank_that_differ) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 3, [](zero_comm* comm, int rank) {
      Seat self(comm, 1);
      if (rank == 2) self.half.back()++;
      expect_refused(self.step(), rank, 2);
      EXPECT_TRUE(says("rank 2 has parameter 'h'"));
    });
  }
}

TEST(ForgottenBroadcast, equal_parameters_need_none) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int) {
      Seat self(comm, 1);
      for (int step = 0; step < 3; step++) EXPECT_EQ(self.step(), ZERO_OK) << last();
      EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -2));
    });
  }
}

/// Calls after which parameters of the ranks are the same, or are said to be.
TEST(ForgottenBroadcast, who_broadcasts_shares_loads_or_says_so_is_not_asked) {
  const Scratch scratch;
  const std::string saved = scratch / "saved";
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [&](zero_comm* comm, int rank) {
      Seat self(comm, static_cast<float>(rank));
      EXPECT_EQ(zero_broadcast_params(self.optim, ZERO_ROOT_NONE, nullptr), ZERO_OK) << last();
      EXPECT_EQ(self.step(), ZERO_OK) << last();
      Seat shared(comm, static_cast<float>(rank));
      EXPECT_EQ(zero_share_params(shared.optim, 0, nullptr), ZERO_OK) << last();
      EXPECT_EQ(shared.step(), ZERO_OK) << last();
      auto replace = initialized<zero_save_options>();
      replace.flags = ZERO_SAVE_REPLACE;
      EXPECT_EQ(zero_state_save(shared.optim, saved.c_str(), &replace), ZERO_OK) << last();
      Seat loaded(comm, static_cast<float>(rank));
      EXPECT_EQ(zero_state_load(loaded.optim, saved.c_str(), nullptr), ZERO_OK) << last();
      loaded.w[0] = static_cast<float>(rank);  // what nobody asks for
      EXPECT_EQ(loaded.step(), ZERO_OK) << last();
    });
  }
}

TEST(ForgottenBroadcast, of_a_late_group_only_that_is_compared) {
  for (const CommKind kind : kCommKinds) {
    on_ranks(kind, 2, [](zero_comm* comm, int rank) {
      Seat self(comm, 1);
      std::vector<float> late(Seat::kSize, static_cast<float>(rank)), grad(Seat::kSize, 1);
      EXPECT_EQ(self.step(), ZERO_OK) << last();
      self.w[0] = static_cast<float>(rank);  // what nobody asks for
      self.add("late", late.data(), grad.data(), ZERO_FLOAT32);
      expect_refused(self.step(), rank, 1);
      EXPECT_TRUE(says("parameter 'late'"));
      EXPECT_EQ(late, std::vector<float>(Seat::kSize, static_cast<float>(rank)));
      EXPECT_EQ(self.steps(), 1);
      EXPECT_EQ(zero_broadcast_params(self.optim, 0, nullptr), ZERO_OK) << last();
      EXPECT_EQ(self.step(), ZERO_OK) << last();
      EXPECT_EQ(late, std::vector<float>(Seat::kSize, -1));
    });
  }
}

TEST(ForgottenBroadcast, announced_gradients_are_taken_again_after_a_drop) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Seat self(comm, static_cast<float>(rank));
    EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
    EXPECT_EQ(zero_grad_ready(self.optim, 0, self.grad.data(), nullptr), ZERO_OK) << last();
    expect_refused(zero_step(self.optim, nullptr), rank, 1);
    EXPECT_EQ(zero_drop_grads(self.optim), ZERO_OK);
    EXPECT_EQ(zero_broadcast_params(self.optim, 0, nullptr), ZERO_OK) << last();
    EXPECT_EQ(zero_grad_ready(self.optim, 0, self.grad.data(), nullptr), ZERO_OK) << last();
    EXPECT_EQ(zero_step(self.optim, nullptr), ZERO_OK) << last();
    EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -1));
  });
}

TEST(ForgottenBroadcast, a_rank_that_joined_is_compared_like_the_others) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Seat self(comm, static_cast<float>(rank), ZERO_UNEVEN_WORLD);
    if (rank == 0) {
      EXPECT_NE(self.step(), ZERO_OK);
      EXPECT_TRUE(says(kWords));
      EXPECT_EQ(zero_broadcast_params(self.optim, 0, nullptr), ZERO_OK) << last();
      EXPECT_EQ(self.step(), ZERO_OK) << last();
    }
    EXPECT_EQ(zero_join(self.optim, nullptr, nullptr), ZERO_OK) << last();
    EXPECT_EQ(self.w, std::vector<float>(Seat::kSize, -0.5f));
  });
}

/// How often rank 0's engine is called in the first step.
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
      EXPECT_EQ(zero_seal(self.optim), ZERO_OK) << last();
      if (!compares) {
        EXPECT_EQ(zero_broadcast_params(self.optim, ZERO_ROOT_NONE, nullptr), ZERO_OK) << last();
      }
      const int before = calls;
      EXPECT_EQ(self.step(), ZERO_OK) << last();
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

/// Two ranks on devices, of which one has other parameters.
void on_devices(const Abilities& abilities, const std::function<void(Model&, int rank)>& body) {
  const auto world = chaos(3, abilities);
  const std::string name = unique_name();
  const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    Model model(defaults(), create_local(name, rank, 2, {}, devices[rank]).value());
    model.give(0);
    if (rank == 1) model.spoil();
    body(model, rank);
    return {};
  });
}

TEST(ForgottenBroadcast, on_a_device_the_first_step_is_refused_as_on_the_host) {
  for (const bool reaches : {true, false}) {
    on_devices({.reaches = reaches}, [](Model& model, int rank) {
      EXPECT_EQ(zero_seal(model.optim), ZERO_OK) << last();
      auto before = model.everything();
      EXPECT_TRUE(ends(model.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, kWords));
      EXPECT_TRUE(says("parameter 'half'"));
      auto after = model.everything();
      for (auto* const all : {&before, &after}) all->erase("status");
      EXPECT_TRUE(after == before);
      EXPECT_EQ(zero_broadcast_params(model.optim, 0, model.stream()), ZERO_OK) << last();
      EXPECT_EQ(model.step(), ZERO_OK) << last();
    });
  }
}

TEST(ForgottenBroadcast, on_a_device_a_captured_step_is_not_compared) {
  on_devices({}, [](Model& model, int) {
    EXPECT_EQ(zero_seal(model.optim), ZERO_OK) << last();
    const Graph graph = model.capture_step();
    model.launch(graph);
    EXPECT_EQ(model.result().step, 1);
  });
}

}  // namespace
}  // namespace zero::test
