// SPDX-License-Identifier: Apache-2.0
// The order that a step keeps between its streams is right in a thousand legal schedules. Without
// any one of its rules, at least one schedule goes wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/local/staged_plane.h"
#include "equivalence.h"
#include "floats.h"
#include "step/queued/queue.h"
#include "support/nightly.h"

namespace zero::test {
namespace {

/// Variants of a short run that cover every path of gradients and parameters.
struct Variant {
  const char* name;
  std::function<void(Training&)> set;
};
const std::vector<Variant> kVariants = {
    {"plain", [](Training&) {}},
    {"clipped", [](Training& run) { run.max_grad_norm = 0.1; }},
    {"overlapped", [](Training& run) { run.overlaps = true; }},
    {"accumulated", [](Training& run) { run.micro_batches = 2; }},
    {"remainders",
     [](Training& run) {
       run.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}};
       run.master = ZERO_MASTER_REMAINDER;
     }},
    {"missing", [](Training& run) { run.missing = true; }},
    {"reduced by hand", [](Training& run) { run.explicit_reduce = true, run.max_grad_norm = 0.1; }},
    {"two streams", [](Training& run) { run.alternates = true; }},
    {"announced", [](Training& run) { run.announces = 4; }},
};

Training schedule(uint64_t seed) {
  Training training = base(2);
  training.sizes = {700, 3, 2100, 1, 1300};
  training.bucket_bytes = 4096;
  if (seed % 10 == 1) training.sizes.push_back(9000);  // more than can begin at once
  training.steps = 3;
  training.asks = seed % 5 == 0;
  training.where = seed % 2 == 0 ? Where::foreign : Where::per_rank_arenas;
  training.padded = training.where != Where::foreign;
  kVariants[seed % kVariants.size()].set(training);
  return training;
}

/// Returns the result of a run in short form. It is the same in any legal order.
std::string outcome(const std::vector<Outcome>& ranks) {
  std::string all;
  for (const Outcome& rank : ranks) {
    all += rank.error;
    all.append(reinterpret_cast<const char*>(rank.params.data()),
               rank.params.size() * sizeof(double));
  }
  return all;
}

/// The outcome of a schedule without the waits of a rule, and the rules that it used.
struct Seen {
  std::string outcome;
  std::set<std::string> rules;
};

Seen see(CommKind kind, uint64_t seed, const char* forgotten) {
  Devices devices{.seed = seed, .forgotten = forgotten};
  // Transfers have one piece or many. The last piece may be only padding.
  if (kind == CommKind::staged) devices.options.staging_bytes = seed % 2 == 0 ? 2048 : 65'536;
  const Meeting meeting(kind, 2, devices);
  std::string all = outcome(run(schedule(seed), meeting));
  if (kind == CommKind::nccl && meeting.nccl().knobs().met > 0)
    all += "reductions and gathers could run at once";
  return {all, meeting.chaos().rules()};
}

/// The right outcome of each schedule. It depends on the training, not on the order.
class Right {
 public:
  explicit Right(CommKind kind) : others_sum_(kind == CommKind::nccl) {}
  const std::string& of(uint64_t seed) {
    std::string& known = known_[seed % 90];
    if (!known.empty()) return known;
    Training training = schedule(seed);
    training.others_sum = others_sum_;
    return known = outcome({2, reference(training)});
  }

 private:
  const bool others_sum_;
  std::map<uint64_t, std::string> known_;
};

/// A kind of comm, and the rules of its order.
struct Order {
  CommKind kind;
  std::vector<const char*> rules;
};

const std::vector<const char*> kMemoryRules = {
    queued::order::kEntered, queued::order::kTold,   queued::order::kPublished,
    queued::order::kEnded,   queued::order::kLooked, queued::order::kAnnounced,
};

const std::vector<Order> kOrders = {
    {CommKind::nccl,
     {queued::order::kGiven, queued::order::kSummed, queued::order::kMeasured,
      queued::order::kDecided, queued::order::kReduced, queued::order::kUpdated,
      queued::order::kGathered, queued::order::kArrived, queued::order::kShared,
      queued::order::kEnded, queued::order::kLooked, queued::order::kAnnounced}},
    {CommKind::gates, kMemoryRules},
    {CommKind::hosts, kMemoryRules},
    // Transfers through the host are separated and ordered by rules of their own. The results
    // travel after the parameters, which have arrived when zero_step returns.
    {CommKind::staged,
     {queued::order::kGiven, queued::order::kSummed, queued::order::kMeasured,
      queued::order::kDecided, queued::order::kUpdated, queued::order::kGathered,
      queued::order::kShared, queued::order::kEnded, queued::order::kLooked,
      queued::order::kAnnounced, local::StagedPlane::kStaged}},
};

class DeviceOrders : public ::testing::TestWithParam<Order> {};

INSTANTIATE_TEST_SUITE_P(, DeviceOrders, ::testing::ValuesIn(kOrders),
                         [](const auto& info) { return name_of(info.param.kind); });

TEST_P(DeviceOrders, schedules_end_with_the_bits_of_one_process) {
  const auto& [kind, rules] = GetParam();
  Right right(kind);
  std::set<std::string> met;
  for (uint64_t seed = 1; seed <= (nightly_run() ? 1000 : 100); seed++) {
    Seen seen = see(kind, seed, "no rule");
    ASSERT_TRUE(seen.outcome == right.of(seed)) << "seed " << seed;
    met.merge(seen.rules);
  }
  for (const char* const rule : rules) EXPECT_EQ(met.count(rule), 1u) << rule;
}

TEST_P(DeviceOrders, each_rule_that_is_forgotten_is_missed_by_a_schedule) {
  const auto& [kind, rules] = GetParam();
  Right right(kind);
  // Runs in a separate process, because work that reads tables too early may crash or hang.
  constexpr int64_t kForgottenMs = 30'000;
  const auto goes_wrong = [&, kind = kind](uint64_t seed, const char* forgotten,
                                           int64_t deadline_ms) {
    const std::string expected = right.of(seed);
    const auto run = [&](int) -> std::string {
      return see(kind, seed, forgotten).outcome == expected ? "right" : "wrong";
    };
    return run_ranks(RankKind::processes, 1, run, deadline_ms)[0].result != "right";
  };
  for (uint64_t seed = 1; seed <= 8; seed++)
    EXPECT_FALSE(goes_wrong(seed, "no rule", 240'000)) << seed;
  for (const char* const rule : rules) {
    std::optional<uint64_t> found;
    for (uint64_t seed = 1; seed <= 1000 && !found; seed++)
      if (goes_wrong(seed, rule, kForgottenMs)) found = seed;
    EXPECT_TRUE(found.has_value()) << "nothing depends on: " << rule;
  }
}

/// A parameter of one rank that is trained on its own stream.
class Model : public Floats {
 public:
  /// `data` is the parameter's memory if it is in an arena.
  explicit Model(zero_comm* comm, bool overlaps = false, float* data = nullptr)
      : Floats(comm, options_with([&](zero_options& o) { o.overlap_gather = overlaps; }), 1, kCount,
               data) {
    put_all(std::vector<float>(kCount, 1.0f));
    give_all(std::vector<float>(kCount, static_cast<float>(1 + rank())));
  }

  using Floats::step;
  /// Takes a step with a gradient in other memory.
  zero_status step(float* grad) { return step_with({grad}, ZERO_REDUCE_MEAN, stream()); }
  std::string bytes() const { return bytes_of(data(0)); }
  std::string bytes_of(const float* from) const {
    const std::vector<float> values = read(from, stream());
    return {reinterpret_cast<const char*>(values.data()), kBytes};
  }

  static constexpr int64_t kCount = 3000;
  static constexpr size_t kBytes = sizeof(float) * kCount;
};

/// Steps two optimizers per rank in turn, each on its own stream, with parameters that arrive after
/// the steps. Returns how many transfers could have run at the same time.
int64_t transfers_that_meet(uint64_t seed, const char* forgotten) {
  const Meeting meeting(CommKind::nccl, 2, {.seed = seed, .forgotten = forgotten});
  on_ranks(meeting, [](zero_comm* comm, int) {
    Model a(comm, true), b(comm, true);
    for (int step = 0; step < 4; step++) EXPECT_OK((step % 2 == 0 ? a : b).step());
  });
  return meeting.nccl().knobs().met;
}

TEST(DeviceOrder, transfers_of_all_optimizers_of_a_comm_are_kept_apart) {
  bool missed = false;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    EXPECT_EQ(transfers_that_meet(seed, "no rule"), 0) << seed;
    missed = missed || transfers_that_meet(seed, queued::order::kApart) > 0;
  }
  EXPECT_TRUE(missed) << "nothing depends on: " << queued::order::kApart;
}

/// Takes a step with gradients in an arena, which is freed early or at the end. Returns the result
/// of the first of two ranks.
std::string stepped_from_arena(CommKind kind, uint64_t seed, bool early) {
  return results_of(Meeting(kind, 2, {.seed = seed}), [&](zero_comm* comm, int) {
    Model model(comm);
    void* grads = nullptr;
    EXPECT_OK(zero_arena_alloc(comm, Model::kBytes, ZERO_MEMORY_PER_RANK, &grads));
    EXPECT_OK(model.step(static_cast<float*>(grads)));
    const auto give_up = [&] { EXPECT_OK(zero_arena_free(grads)); };
    if (early) give_up();
    const std::string bytes = model.bytes();
    if (!early) give_up();
    return bytes;
  })[0];
}

TEST(DeviceOrder, an_arena_that_is_given_up_stays_until_queued_steps_are_done) {
  for (const CommKind kind : {CommKind::nccl, CommKind::staged}) {
    const std::string right = stepped_from_arena(kind, 1, false);
    for (uint64_t seed = 1; seed <= 40; seed++)
      EXPECT_TRUE(stepped_from_arena(kind, seed, true) == right) << seed;
  }
}

/// Clips by one norm and then by another, on two ranks that reach each other's memory. Returns the
/// result of the first rank.
std::string clipped_twice(CommKind kind, uint64_t seed, const char* forgotten) {
  Devices devices{.seed = seed, .forgotten = forgotten};
  if (std::string(forgotten) != "no rule")
    devices.options.timeout_ms = 200;  // a signal that comes too early is lost
  return results_of(Meeting(kind, 2, devices), [&](zero_comm* comm, int) {
    Model model(comm);
    std::string bytes;
    for (int step = 0; step < 3; step++) {
      void* const stream = model.stream();
      zero_status worst = model.reduce_with({}, ZERO_REDUCE_MEAN, stream);
      // The second norm clips nothing, because clipping would hide an error of the first.
      for (const auto& [p, most] : {std::pair(2.0, 1.0), {1.0, 1e9}})
        worst = std::min(worst,
                         zero_clip_grad_norm(model.optim(), nullptr, 0, most, p, nullptr, stream));
      bytes += std::to_string(std::min(worst, model.step()));
    }
    return bytes + model.bytes();
  })[0];
}

TEST(DeviceOrder, optimizers_on_streams_of_their_own_pass_gates_one_behind_the_other) {
  const auto train = [](uint64_t seed) {
    Devices devices{.seed = seed};
    devices.options.timeout_ms = 5'000;
    return results_of(Meeting(CommKind::gates, 2, devices), [&](zero_comm* comm, int) {
      Model a(comm), b(comm);
      std::string ends;
      for (int step = 0; step < 6; step++) ends += std::to_string((step % 2 == 0 ? a : b).step());
      return ends + a.bytes() + b.bytes();
    });
  };
  const std::vector<std::string> right = train(1);
  EXPECT_EQ(right[0].substr(0, 6), "000000");
  for (uint64_t seed = 2; seed <= 60; seed++) EXPECT_TRUE(train(seed) == right) << seed;
}

TEST(DeviceOrder, what_a_caller_reads_between_two_calls_is_not_yet_of_the_step) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    on_ranks(Meeting(CommKind::gates, 2, {.seed = seed}), [&](zero_comm* comm, int) {
      const Arena arena(comm, Model::kBytes);
      Model model(comm, false, arena.floats());
      const std::string before = model.bytes();
      EXPECT_OK(model.reduce_with({}, ZERO_REDUCE_MEAN, model.stream()));
      const Memory read(model.device(), Model::kBytes);
      move_bytes(model.device(), model.stream(), read.at(), model.data(0), Model::kBytes);
      EXPECT_OK(model.step());
      EXPECT_FALSE(model.bytes() == before);
      EXPECT_TRUE(model.bytes_of(reinterpret_cast<const float*>(read.at())) == before) << seed;
    });
  }
}

TEST(DeviceOrder, what_ranks_found_is_read_before_they_tell_more) {
  for (const CommKind kind : {CommKind::gates, CommKind::hosts}) {
    const std::string right = clipped_twice(kind, 1, "no rule");
    EXPECT_EQ(right.substr(0, 3), "000");
    for (uint64_t seed = 2; seed <= 200; seed++)
      EXPECT_TRUE(clipped_twice(kind, seed, "no rule") == right) << seed;
    bool missed = false;
    for (uint64_t seed = 2; seed <= 2000 && !missed; seed++)
      missed = clipped_twice(kind, seed, queued::order::kReread) != right;
    EXPECT_TRUE(missed) << "nothing depends on: " << queued::order::kReread;
  }
}

}  // namespace
}  // namespace zero::test
