// SPDX-License-Identifier: Apache-2.0
// Several copies of the state: they are owned, saved and loaded like one, a save detects
// differences between them, and unsupported calls are refused. equivalence_test checks that they
// train alike.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "replica.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

struct World {
  int ranks;
  int32_t instances;
  int32_t places() const { return ranks / instances; }
};

zero_options options_of(int32_t instances, int32_t partition = ZERO_PARTITION_EVEN) {
  zero_options options = StateCase{.partition = partition}.options();
  options.instances = instances;
  return options;
}

class Rank : public Replica {
 public:
  explicit Rank(zero_comm* comm, const zero_options& options) : Replica(comm, options) {
    add_tensors(small_tensors());
    broadcast(0);
  }
  Rank(zero_comm* comm, int32_t instances) : Rank(comm, options_of(instances)) {}
};

TEST(Instances, a_rank_owns_what_the_ranks_of_its_place_do) {
  for (const World& world : {World{6, 3}, World{6, 2}, World{2, 2}}) {
    std::vector<std::vector<int64_t>> owned;
    std::vector<int64_t> state;
    on_ranks(CommKind::local, world.places(), [&](zero_comm* comm, int number) {
      Rank rank(comm, 1);
      rank.steps(0, 1);
      if (number != 0) return;
      for (int32_t place = 0; place < world.places(); place++) owned.push_back(rank.owned(place));
      state.push_back(rank.statistics().state_bytes);
    });
    on_ranks(CommKind::local, world.ranks, [&](zero_comm* comm, int number) {
      Rank rank(comm, world.instances);
      rank.steps(0, 1);
      for (int32_t other = 0; other < world.ranks; other++)
        EXPECT_EQ(rank.owned(other), owned[static_cast<size_t>(other % world.places())]);
      int64_t elements = 0;
      const std::vector<int64_t> mine = rank.owned(number);
      for (size_t i = 2; i < mine.size(); i += 3) elements += mine[i];
      EXPECT_EQ(rank.statistics().owned_elements, elements);
      if (number % world.places() == 0) {
        EXPECT_EQ(rank.statistics().state_bytes, state[0]);
      }
    });
  }
}

/// Returns the contents of a world after `body`.
template <class Body>
Contents contents_of(CommKind kind, const World& world, const Body& body) {
  Contents first;
  on_ranks(kind, world.ranks, [&](zero_comm* comm, int number) {
    SCOPED_TRACE(std::to_string(world.instances) + " of " + std::to_string(world.ranks));
    Rank rank(comm, world.instances);
    body(rank);
    const Contents all = rank.everything();
    if (number == 0) first = all;
    EXPECT_OK(zero_comm_barrier(comm));
    expect_same(all, first, "on all ranks");
    EXPECT_OK(zero_comm_barrier(comm));
  });
  return first;
}

TEST(Instances, a_checkpoint_of_any_number_loads_into_any_other) {
  for (const CommKind kind : kCommKinds) {
    const Scratch scratch;
    const std::string one = scratch / "one", two = scratch / "two", begun = scratch / "begun";
    const auto train = [](Rank& rank, const std::string& to) {
      rank.steps(0, 3);
      rank.save(to);
    };
    const Contents trained = contents_of(kind, {4, 1}, [&](Rank& rank) { train(rank, one); });
    expect_same(
        contents_of(kind, {4, 2},
                    [&](Rank& rank) {
                      train(rank, two);
                      EXPECT_OK(zero_state_save_begin(rank.optim(), begun.c_str(), nullptr));
                      EXPECT_OK(zero_state_save_wait(rank.optim()));
                    }),
        trained, "with two instances");
    for (const World& world : {World{4, 2}, World{4, 1}, World{3, 3}, World{2, 1}}) {
      for (const std::string& from : {one, two, begun}) {
        const std::string again = scratch / "again";
        expect_same(contents_of(kind, world,
                                [&](Rank& rank) {
                                  rank.load(from);
                                  rank.save(again);
                                }),
                    trained, from);
        expect_same(contents_of(kind, {4, 4}, [&](Rank& rank) { rank.load(again); }), trained,
                    "from there");
        std::filesystem::remove_all(again);
      }
    }
  }
}

TEST(Instances, a_save_names_ranks_whose_copies_differ_and_writes_nothing) {
  for (const CommKind kind : kCommKinds) {
    for (const char* const name : {static_cast<const char*>(nullptr), "exp_avg"}) {
      const Scratch scratch;
      const std::string directory = scratch / "checkpoint";
      on_ranks(kind, 4, [&](zero_comm* comm, int number) {
        Rank rank(comm, 2);
        rank.steps(0, 2);
        std::vector<float> values(static_cast<size_t>(rank.tensor(0).size));
        const auto set = [&](float value) {
          std::fill(values.begin(), values.end(), value);
          EXPECT_OK(zero_state_set(rank.optim(), 0, name, 0, rank.tensor(0).size, values.data()));
        };
        set(number == 3 ? 2.0f : 1.0f);
        const auto expect_told = [&](zero_status status) {
          EXPECT_TRUE(ends(status, number % 2 == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                           "ranks 1 and 3 hold copies of the same state, and the copies differ"));
        };
        expect_told(zero_state_save(rank.optim(), directory.c_str(), nullptr));
        expect_told(zero_state_save_begin(rank.optim(), directory.c_str(), nullptr));
        EXPECT_OK(zero_comm_barrier(comm));
        EXPECT_EQ(entries_of(scratch.path()), 0);
        EXPECT_OK(zero_comm_barrier(comm));
        set(1);
        rank.save(directory);
      });
    }
  }
}

TEST(Instances, parameters_come_from_owners_of_the_same_instance) {
  on_each_comm(4, [](zero_comm* comm, int number) {
    Rank rank(comm, 2);
    rank.seal();
    const auto size = static_cast<size_t>(rank.tensor(0).size);
    const std::vector<float> values(size, number < 2 ? 1.0f : 2.0f);
    EXPECT_OK(zero_state_set(rank.optim(), 0, nullptr, 0, rank.tensor(0).size, values.data()));
    EXPECT_OK(zero_share_params(rank.optim(), ZERO_SHARE_KEEP_MASTERS, nullptr));
    EXPECT_EQ(decode(ZERO_FLOAT32, rank.values(0).data(), size),
              std::vector<double>(values.begin(), values.end()));
  });
}

TEST(Instances, sums_of_the_engines_own_reach_every_copy) {
  std::vector<Contents> ends_of_instances;
  for (const int32_t instances : {1, 2, 4}) {
    Contents& end = ends_of_instances.emplace_back();
    on_ranks(CommKind::user_sums, 4, [&](zero_comm* comm, int number) {
      Replica rank(comm, options_of(instances));
      rank.add_tensors({{"cut", 3082}, {"one", 1}});
      rank.broadcast(0);
      rank.reduce(0, ZERO_REDUCE_ACCUMULATE);
      EXPECT_OK(rank.step_with(rank.gradients(1), ZERO_REDUCE_ACCUMULATE));
      const Contents all = rank.everything();
      if (number == 0) end = all;
    });
    expect_same(end, ends_of_instances[0], std::to_string(instances));
  }
}

TEST(Instances, a_gradient_that_is_not_finite_counts_once) {
  for (const int32_t handled : {ZERO_NONFINITE_IGNORE, ZERO_NONFINITE_SKIP}) {
    on_each_comm(4, [&](zero_comm* comm, int) {
      zero_options options = options_of(2);
      options.nonfinite = handled;
      Rank rank(comm, options);
      const std::vector<void*> grads = rank.gradients(0);
      static_cast<float*>(grads[0])[3000] = NAN;
      EXPECT_EQ(rank.step_with(grads), handled == ZERO_NONFINITE_SKIP ? ZERO_SKIPPED : ZERO_OK);
      EXPECT_EQ(rank.found().nonfinite, 1);
      EXPECT_EQ(rank.statistics().nonfinite_elements, 1);
    });
  }
}

TEST(Instances, the_norm_of_some_counts_each_share_once) {
  const auto norm_of_some = [](CommKind kind, int32_t instances) {
    double found = -1;
    on_ranks(kind, 4, [&](zero_comm* comm, int number) {
      Rank rank(comm, instances);
      rank.reduce(0);
      const int64_t some[] = {0, 5};
      double norm = -1;
      EXPECT_OK(zero_clip_grad_norm(rank.optim(), some, 2, 1, 2, &norm, nullptr));
      if (number == 0) found = norm;
    });
    return found;
  };
  for (const CommKind kind : kCommKinds) {
    const double expected = norm_of_some(kind, 1);
    EXPECT_GT(expected, 0);
    EXPECT_EQ(norm_of_some(kind, 2), expected);
    EXPECT_EQ(norm_of_some(kind, 4), expected);
  }
}

// ---- What is refused.

zero_status create(zero_comm* comm, int32_t instances) {
  const zero_options options = options_of(instances);
  zero_optim* made = nullptr;
  const zero_status status = zero_create(&made, comm, &options);
  zero_free(made);
  return status;
}

TEST(Instances, a_number_that_does_not_divide_the_world_is_refused) {
  on_ranks(CommKind::local, 4, [](zero_comm* comm, int) {
    EXPECT_TRUE(ends(create(comm, -1), ZERO_ERR_ARGUMENT, "instances is -1; it must be positive"));
    EXPECT_TRUE(ends(create(comm, 3), ZERO_ERR_ARGUMENT,
                     "instances is 3, which does not divide a world of 4 ranks"));
    EXPECT_TRUE(ends(create(comm, 8), ZERO_ERR_ARGUMENT, "instances is 8"));
    EXPECT_OK(create(comm, 0));
    EXPECT_OK(create(comm, 4));
  });
}

TEST(Instances, a_number_that_differs_between_ranks_is_named_and_the_comm_stays) {
  on_each_comm(4, [](zero_comm* comm, int number) {
    {
      Replica rank(comm, options_of(number == 2 ? 2 : 1));
      rank.add_tensors(small_tensors());
      EXPECT_TRUE(ends(zero_seal(rank.optim()), number == 2 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                       "instances 2"));
    }
    EXPECT_OK(zero_comm_barrier(comm));
  });
}

TEST(Instances, parameters_of_which_there_is_one_copy_are_refused_until_they_have_other_memory) {
  on_ranks(CommKind::local, 2, [](zero_comm* comm, int) {
    const Arena shared(comm, 4096, ZERO_MEMORY_SHARED), own(comm, 4096), grad(comm, 4096);
    Optim optim(comm, options_of(2));
    optim.add(parameter("a", kOne, shared.floats(), grad.floats()));
    EXPECT_TRUE(ends(zero_seal(optim.optim()), ZERO_ERR_UNSUPPORTED,
                     "parameter 'a' is in a ZERO_MEMORY_SHARED arena"));
    EXPECT_TRUE(ends(optim.step(), ZERO_ERR_UNSUPPORTED, "use ZERO_MEMORY_PER_RANK"));
    void* const data = own.floats();
    EXPECT_OK(zero_bind_params(optim.optim(), &data, nullptr, 1));
    EXPECT_OK(optim.step());
    optim.free();
  });
}

TEST(Instances, owners_by_hand_are_ranks_of_the_first_instance) {
  on_ranks(CommKind::local, 4, [](zero_comm* comm, int number) {
    float values[1] = {};
    Optim optim(comm, options_of(2, ZERO_PARTITION_MANUAL));
    zero_param param = parameter("a", kOne, values, values);
    param.owner = 2;
    EXPECT_TRUE(ends(zero_register_params(optim.optim(), nullptr, &param, 1, nullptr),
                     ZERO_ERR_ARGUMENT,
                     "owner 2 is not a rank in the first instance, which has 2"));
    param.owner = 1;
    param.grad = nullptr;
    optim.add(param);
    optim.seal();
    EXPECT_EQ(optim.owned(number).size(), number % 2 == 1 ? 3u : 0u);
    optim.free();
  });
}

TEST(Instances, work_that_is_queued_between_devices_is_refused) {
  for (const CommKind kind : {CommKind::nccl, CommKind::staged}) {
    on_ranks(Meeting(kind, 2, Devices()), [](zero_comm* comm, int) {
      EXPECT_TRUE(
          ends(create(comm, 2), ZERO_ERR_UNSUPPORTED, "devices cannot access each other's memory"));
    });
  }
}

TEST(Instances, a_plan_is_that_of_one_instance_told_for_all_ranks) {
  const int64_t size = 5000;
  const zero_param param = parameter("a", size, nullptr);
  const auto planned = [&](int32_t world, int32_t instances, int64_t* elements) {
    const zero_options options = options_of(instances);
    auto plan = initialized<zero_plan>();
    plan.elements = elements;
    EXPECT_OK(zero_partition_plan(&param, 1, world, &options, &plan));
    return plan;
  };
  int64_t one[3] = {}, all[6] = {};
  const zero_plan of_one = planned(3, 1, one), of_all = planned(6, 2, all);
  EXPECT_EQ(of_all.state_bytes, of_one.state_bytes);
  EXPECT_EQ(of_all.arena_bytes, of_one.arena_bytes);
  for (size_t rank = 0; rank < 6; rank++) EXPECT_EQ(all[rank], one[rank % 3]);
}

}  // namespace
}  // namespace zero::test
