// SPDX-License-Identifier: Apache-2.0
// What a joined rank does in every call of the others, which calls are refused then, and the
// effects of errors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/expect.h"
#include "support/scratch.h"
#include "uneven.h"

namespace zero::test {
namespace {

constexpr int kJoined = 1;  // of three ranks
constexpr int32_t kOptions[] = {ZERO_UNEVEN_WORLD, ZERO_UNEVEN_ACTIVE};

/// Every rank takes one step. Then rank 1 joins, with NaN gradients, and `others` runs on ranks 0
/// and 2 before they join as well.
void after_one_joined(const Uneven& run, const std::function<void(Seat&, int rank)>& others,
                      const std::function<void(Seat&, int rank)>& afterwards = {}) {
  for (const CommKind kind : kCommKinds) {
    SCOPED_TRACE(name_of(kind));
    on_seats(kind, run, [&](Seat& seat, int rank) {
      seat.train(0);
      if (rank == kJoined) {
        seat.fill_with(NAN);
      } else {
        others(seat, rank);
      }
      EXPECT_EQ(seat.join(), run.world - 1) << last();
      if (afterwards) afterwards(seat, rank);
    });
  }
}

/// Returns the model after the first step of all ranks and `more` steps of ranks 0 and 2.
Plain trained(const Uneven& run, int more = 0) {
  Plain model(run);
  model.step({0, 0, 0}, 1.0 / 3);
  for (int step = 1; step <= more; step++) model.step({step, -1, step}, 1.0 / 3);
  return model;
}

TEST(JoinCalls, clips_by_the_norm_and_by_value_take_no_gradient_of_a_rank_that_joined) {
  for (const int32_t option : kOptions) {
    Uneven run{
        .world = 3, .option = option, .optimizer = ZERO_OPTIMIZER_SGD, .lr = 1, .sizes = {1, 1}};
    const float factor = option == ZERO_UNEVEN_ACTIVE ? 0.5f : 1.0f / 3;
    Plain model = trained(run);
    model.update({{0.25f}, {0.25f}}, 1);
    model.update({{6 * factor}, {8 * factor}}, 1 / (10 * factor + 1e-6));
    after_one_joined(
        run,
        [&](Seat& seat, int) {
          seat.fill_with(5);
          EXPECT_OK(zero_clip_grad_value(seat.optim(), 0.25, nullptr));
          EXPECT_OK(seat.step());
          const std::vector<void*> grads = seat.grads();
          *static_cast<float*>(grads[0]) = 3;
          *static_cast<float*>(grads[1]) = 4;
          EXPECT_NEAR(seat.clip(1, 2), 10 * factor, 1e-5);
          EXPECT_OK(seat.step());
        },
        [&](Seat& seat, int) {
          for (size_t i = 0; i < 2; i++)
            EXPECT_NEAR(seat.params()[i][0], model.params()[i][0], 1e-5);
        });
  }
}

// An engine sets lr before each step. A rank that has no more steps does not.
TEST(JoinCalls, a_rank_that_joined_follows_settings_frozen_parameters_scales_and_drops) {
  const Uneven run{.world = 3, .optimizer = ZERO_OPTIMIZER_SGD, .lr = 0.5, .sizes = {600, 3, 1500}};
  Plain model = trained(run);
  std::vector<std::vector<float>> expected = model.params();
  for (size_t i = 0; i < 3; i++) {
    const std::vector<float> a = batch_gradient(run, i, 0, 1), b = batch_gradient(run, i, 2, 1);
    for (size_t k = 0; k < a.size(); k++) {
      const float grad = (a[k] + b[k]) * static_cast<float>(1.0 / 3 / 4);
      if (i != 1) expected[i][k] = expected[i][k] - 0.125f * grad;
    }
  }
  after_one_joined(
      run,
      [&](Seat& seat, int) {
        zero_optim* const optim = seat.optim();
        seat.fill(1);
        EXPECT_OK(seat.reduce(ZERO_REDUCE_MEAN));
        EXPECT_OK(zero_drop_grads(optim));
        seat.set("lr", 0.125);
        seat.freeze(1);
        seat.set("loss_scale", 4);
        EXPECT_OK(seat.step());
        EXPECT_TRUE(seat.equals(expected));
        // These are set after the last call. The rank that joins last reports them.
        seat.set("lr", 0.75, 0);
        seat.freeze(1, false);
        seat.freeze(2);
      },
      [&](Seat& seat, int rank) {
        EXPECT_EQ(seat.setting("lr", 0), 0.75);
        EXPECT_EQ(seat.setting("lr"), 0.125);
        EXPECT_EQ(seat.setting("loss_scale"), 4);
        EXPECT_TRUE(seat.equals(expected)) << rank;
        seat.train(2);
      });
}

TEST(JoinCalls, every_other_call_is_made_with_the_rank_that_joined) {
  const Scratch scratch;
  int turn = 0;
  const Uneven run{.world = 3};
  const Plain model = trained(run, 2);
  const std::vector<std::vector<float>> saved = trained(run, 1).params();
  for (const CommKind kind : kCommKinds) {
    const std::string directory = scratch / std::to_string(turn++);
    on_seats(kind, run, [&](Seat& seat, int rank) {
      zero_optim* const optim = seat.optim();
      seat.train(0);
      if (rank != kJoined) {
        seat.train(1);
        seat.seal();
        seat.save(directory);
        EXPECT_EQ(zero_state_save(optim, directory.c_str(), nullptr),
                  rank == 0 ? ZERO_ERR_STATE : ZERO_ERR_PEER);
        seat.train(2);
        EXPECT_TRUE(seat.equals(model.params()));
        seat.load(directory);
        EXPECT_TRUE(seat.equals(saved));
        seat.broadcast(kJoined);
        EXPECT_OK(zero_share_params(optim, 0, nullptr));
        EXPECT_TRUE(seat.equals(saved));
        std::vector<float> whole(run.sizes[0], -1);
        EXPECT_OK(zero_state_gather(optim, 0, nullptr, 2, whole.data(), whole.size()));
        EXPECT_EQ(whole[0], rank == 2 ? saved[0][0] : -1);
        EXPECT_OK(zero_state_gather(optim, 0, "exp_avg", 0, whole.data(), whole.size()));
        seat.train(2);
      }
      EXPECT_EQ(seat.join(), 2) << last();
      EXPECT_TRUE(seat.equals(model.params()));
    });
    Uneven of_one = run;
    of_one.world = 1;
    of_one.option = ZERO_UNEVEN_OFF;
    Seat seat(of_one, alone());
    seat.load(directory);
    EXPECT_TRUE(seat.equals(saved));
  }
}

TEST(JoinCalls, what_needs_something_of_a_rank_that_joined_is_refused_on_all_ranks) {
  const Uneven run{.world = 3};
  const Plain model = trained(run, 1);
  after_one_joined(
      run,
      [&](Seat& seat, int) {
        const auto refused = [](zero_status status, const char* why) {
          EXPECT_TRUE(ends(status, ZERO_ERR_STATE, "rank 1 has run out of inputs"));
          EXPECT_TRUE(says(why));
        };
        std::vector<float> whole(run.sizes[0]);
        for (const int32_t to : {kJoined, ZERO_ALL_RANKS})
          refused(zero_state_gather(seat.optim(), 0, nullptr, to, whole.data(), whole.size()),
                  "no memory to gather into");
        for (const int32_t flags :
             {int32_t{ZERO_REDUCE_NONE}, ZERO_REDUCE_NONE | ZERO_REDUCE_ACCUMULATE}) {
          refused(seat.step(flags), "ZERO_REDUCE_NONE");
          refused(seat.reduce(flags), "ZERO_REDUCE_NONE");
        }
        seat.fill(1);
        EXPECT_OK(seat.reduce(ZERO_REDUCE_MEAN));
        refused(zero_share_params(seat.optim(), 0, nullptr),
                "cannot write the parameters that it owns");
        EXPECT_OK(seat.step());
      },
      [&](Seat& seat, int) {
        EXPECT_TRUE(seat.equals(model.params()));
        seat.fill(3);
        EXPECT_OK(seat.step(ZERO_REDUCE_NONE));  // all ranks are active again
      });
}

TEST(JoinCalls, a_call_that_fails_leaves_the_rank_that_joined_where_it_is) {
  const Uneven run{.world = 3};
  const Plain model = trained(run, 1);
  after_one_joined(
      run,
      [&](Seat& seat, int rank) {
        zero_optim* const optim = seat.optim();
        int stream = 0;
        void* const here = rank == 0 ? &stream : nullptr;
        EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, &stream), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, here),
                  rank == 0 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
        EXPECT_EQ(seat.reduce(103), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, -1, 2, nullptr, nullptr),
                  ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_save(optim, nullptr, nullptr), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_save(optim, "", nullptr), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_load(optim, "/nowhere/to/be/found", nullptr),
                  rank == 0 ? ZERO_ERR_CKPT_INVALID : ZERO_ERR_PEER);
        EXPECT_EQ(zero_state_gather(optim, 0, nullptr, 7, nullptr, 0), ZERO_ERR_ARGUMENT);
        EXPECT_EQ(zero_state_gather(optim, 0, "nothing", 0, nullptr, 0), ZERO_ERR_ARGUMENT);
        const std::vector<void*> none(run.sizes.size(), nullptr);
        EXPECT_TRUE(ends(zero_reduce_grads(optim, none.data(), none.size(), 0, nullptr),
                         ZERO_ERR_STATE, "no rank has a gradient"));
        auto wrong = initialized<zero_step_options>();
        wrong.struct_size = 3;
        EXPECT_EQ(zero_step(optim, &wrong), ZERO_ERR_ARGUMENT);
        seat.train(1);
      },
      [&](Seat& seat, int) { EXPECT_TRUE(seat.equals(model.params())); });
}

TEST(JoinCalls, a_rank_that_cannot_join_is_told_so_and_named_to_the_others) {
  const Uneven run{.world = 3};
  const Plain model = trained(run, 1);
  on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
    seat.train(0);
    if (rank == kJoined) {
      auto options = initialized<zero_join_options>();
      options.grad_count = 3;
      EXPECT_TRUE(ends(zero_join(seat.optim(), &options, nullptr), ZERO_ERR_ARGUMENT,
                       "the number of gradients is 3"));
      std::vector<void*> odd = seat.grads();
      odd[1] = odd[0];
      options.grads = odd.data();
      options.grad_count = odd.size();
      EXPECT_TRUE(ends(zero_join(seat.optim(), &options, nullptr), ZERO_ERR_ARGUMENT, "overlaps"));
    } else {
      seat.fill(1);
      EXPECT_TRUE(
          ends(seat.step(), ZERO_ERR_PEER,
               "rank 1 in zero_step: ZERO_ERR_ARGUMENT: zero_join: the number of gradients"));
      EXPECT_TRUE(ends(zero_seal(seat.optim()), ZERO_ERR_PEER, "overlaps"));
      EXPECT_OK(seat.step());
    }
    EXPECT_EQ(seat.join(), 2) << last();
    EXPECT_TRUE(seat.equals(model.params()));
  });
}

TEST(JoinCalls, a_rank_cannot_join_between_the_begin_of_a_step_and_its_end) {
  const Uneven run{.world = 3};
  const Plain model = trained(run);
  on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
    EXPECT_OK(zero_step_begin(seat.optim(), nullptr));
    seat.fill(0);
    if (rank == kJoined) {
      EXPECT_TRUE(
          ends(zero_join(seat.optim(), nullptr, nullptr), ZERO_ERR_STATE, "a step has begun"));
    } else {
      EXPECT_TRUE(ends(seat.step(), ZERO_ERR_PEER, "zero_join: a step has begun"));
    }
    EXPECT_OK(seat.step());
    EXPECT_EQ(seat.join(), 2) << last();
    EXPECT_TRUE(seat.equals(model.params()));
  });
}

TEST(JoinCalls, a_rank_waits_in_zero_join_for_one_that_could_not_join) {
  const Uneven run{.world = 2};
  on_seats_of_each_comm(run, [&](Seat& seat, int rank) {
    auto options = initialized<zero_join_options>();
    options.grad_count = 1;
    if (rank == 1) {
      EXPECT_EQ(zero_join(seat.optim(), &options, nullptr), ZERO_ERR_ARGUMENT) << last();
    }
    EXPECT_EQ(seat.join(), 1) << last();
  });
}

TEST(JoinCalls, without_the_option_or_with_another_one_on_each_rank_nobody_joins) {
  for (const CommKind kind : kCommKinds) {
    on_seats(kind, {.world = 2, .option = ZERO_UNEVEN_OFF}, [](Seat& seat, int) {
      EXPECT_TRUE(ends(seat.join(), ZERO_ERR_STATE, "zero_join needs zero_options.uneven_inputs"));
      seat.train(0);
    });
    on_ranks(kind, 2, [](zero_comm* comm, int rank) {
      Seat seat({.world = 2, .option = rank == 0 ? ZERO_UNEVEN_WORLD : ZERO_UNEVEN_ACTIVE}, comm);
      EXPECT_TRUE(
          ends(seat.step(), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "uneven_inputs 2"));
    });
    on_ranks(kind, 2, [](zero_comm* comm, int rank) {
      Seat seat({.world = 2, .option = rank == 0 ? ZERO_UNEVEN_WORLD : ZERO_UNEVEN_OFF}, comm);
      EXPECT_TRUE(ends(seat.step(), ZERO_ERR_DESYNC,
                       "rank 1 called zero_step, rank 0 called an optimizer with uneven_inputs"));
    });
  }
  const std::shared_ptr<zero_comm> comm = alone();
  auto options = initialized<zero_options>();
  zero_optim* optim = nullptr;
  for (const int32_t wrong : {-1, 4}) {
    options.uneven_inputs = wrong;
    EXPECT_TRUE(
        ends(zero_create(&optim, comm.get(), &options), ZERO_ERR_ARGUMENT, "uneven_inputs is"));
  }
}

// The joined rank cannot set the same state. The others get the error at once, and not after their
// epoch.
TEST(JoinCalls, state_that_is_set_while_a_rank_has_joined_is_a_mismatch_until_it_has_set_it_too) {
  after_one_joined(
      {.world = 3},
      [](Seat& seat, int) {
        EXPECT_OK(seat.set_scalar(0, "step", 9));
        EXPECT_TRUE(ends(seat.step(), ZERO_ERR_PEER, "state set of parameter 'p0'"));
      },
      [](Seat& seat, int rank) {
        if (rank == kJoined) {
          EXPECT_OK(seat.set_scalar(0, "step", 9));
        }
        seat.train(1);
      });
}

TEST(JoinCalls, ranks_in_different_calls_are_a_desync_also_for_those_who_joined) {
  for (const CommKind kind : kCommKinds) {
    on_seats(kind, {.world = 3}, [](Seat& seat, int rank) {
      if (rank == kJoined) {
        EXPECT_EQ(seat.join(), ZERO_ERR_DESYNC);
      } else {
        EXPECT_EQ(rank == 0 ? seat.step() : seat.reduce(0), ZERO_ERR_DESYNC);
      }
      EXPECT_TRUE(says("rank 2 called zero_reduce_grads, rank 0 called zero_step"));
    });
    on_ranks(kind, 2, [](zero_comm* comm, int rank) {
      Seat seat({.world = 2}, comm);
      EXPECT_TRUE(ends(rank == 0 ? seat.join() : zero_comm_barrier(comm), ZERO_ERR_DESYNC,
                       "rank 1 called zero_comm_barrier"));
    });
  }
}

TEST(JoinCalls, an_abort_from_another_thread_ends_zero_join) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int rank) {
    Seat seat({.world = 2}, comm);
    if (rank == 1) {
      EXPECT_OK(zero_comm_abort(comm, "enough"));
    } else {
      EXPECT_EQ(seat.join(), ZERO_ERR_ABORTED);
    }
  });
}

}  // namespace
}  // namespace zero::test
