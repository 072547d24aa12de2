// SPDX-License-Identifier: Apache-2.0
// The order that a step keeps between its streams: right in a thousand legal schedules, and each of
// its rules is missed by one of them when it is forgotten.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/handles.h"
#include "comm/create.h"
#include "comm/local/staged_plane.h"
#include "device_training.h"
#include "step/queued/queue.h"

namespace zero::test {
namespace {

/// Short runs of every way that gradients and parameters go.
Training schedule(uint64_t seed) {
  Training training = base(2);
  training.sizes = {700, 3, 2100, 1, 1300};
  training.bucket_bytes = 4096;
  if (seed % 10 == 1) training.sizes.push_back(9000);  // more than begin at once
  training.steps = 3;
  training.asks = seed % 5 == 0;
  training.where = seed % 2 == 0 ? Where::foreign : Where::per_rank_arenas;
  training.padded = training.where != Where::foreign;
  switch (seed % 9) {
    case 1:
      training.max_grad_norm = 0.1;
      break;
    case 2:
      training.overlaps = true;
      break;
    case 3:
      training.micro_batches = 2;
      break;
    case 4:
      training.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}};
      training.master = ZERO_MASTER_REMAINDER;
      break;
    case 5:
      training.missing = true;
      break;
    case 6:
      training.explicit_reduce = true;
      training.max_grad_norm = 0.1;
      break;
    case 7:
      training.alternates = true;
      break;
    case 8:
      training.announces = 4;
      break;
    default:
      break;
  }
  return training;
}

/// What came out of a run, in few words; the same for the same schedule in any legal order.
std::string outcome(const std::vector<Rank>& ranks) {
  std::string all;
  for (const Rank& rank : ranks) {
    all += rank.error;
    all.append(reinterpret_cast<const char*>(rank.outcome.params.data()),
               rank.outcome.params.size() * sizeof(double));
  }
  return all;
}

/// What came out of a schedule without the waits of a rule, and the rules that it met.
struct Seen {
  std::string outcome;
  std::set<std::string> rules;
};
using Way = Seen (*)(uint64_t seed, const char* forgotten);

Seen over_nccl(uint64_t seed, const char* forgotten) {
  const NcclRanks ranks(2, seed);
  ranks.chaos().forget(forgotten);
  std::string all = outcome(run_together(schedule(seed), ranks));
  if (ranks.knobs().met > 0) all += "reductions and gathers could run at once";
  return {all, ranks.chaos().rules()};
}

Seen locally(const std::shared_ptr<ChaosWorld>& world, uint64_t seed, const char* forgotten,
             const CommOptions& options = {}) {
  world->forget(forgotten);
  return {outcome(run_locally(schedule(seed), world, options)), world->rules()};
}

Seen over_memory(uint64_t seed, const char* forgotten) {
  return locally(chaos(seed), seed, forgotten);
}

/// The same, and the hosts wait at the gates.
Seen over_hosts(uint64_t seed, const char* forgotten) {
  return locally(chaos(seed, {.words = false}), seed, forgotten);
}

/// The devices do not reach each other: all goes through the host, each transfer in one piece or in
/// many, of which the last may have nothing but padding.
Seen over_staging(uint64_t seed, const char* forgotten) {
  CommOptions options;
  options.staging_bytes = seed % 2 == 0 ? 2048 : 65'536;
  return locally(chaos(seed, {.reaches = false}), seed, forgotten, options);
}

/// The right outcome of each schedule: it depends on what it trains, not on the seed.
class Right {
 public:
  explicit Right(bool others_sum) : others_sum_(others_sum) {}
  const std::string& of(uint64_t seed) {
    std::string& known = known_[seed % 90];
    if (!known.empty()) return known;
    Training training = schedule(seed);
    training.others_sum = others_sum_;
    const Outcome expected = reference(training);
    for (int rank = 0; rank < training.world; rank++)
      known.append(reinterpret_cast<const char*>(expected.params.data()),
                   expected.params.size() * sizeof(double));
    return known;
  }

 private:
  const bool others_sum_;
  std::map<uint64_t, std::string> known_;
};

const std::vector<const char*> kNcclRules = {
    queued::order::kGiven,    queued::order::kSummed,  queued::order::kMeasured,
    queued::order::kDecided,  queued::order::kReduced, queued::order::kUpdated,
    queued::order::kGathered, queued::order::kArrived, queued::order::kShared,
    queued::order::kEnded,    queued::order::kLooked,  queued::order::kAnnounced,
};
const std::vector<const char*> kMemoryRules = {
    queued::order::kEntered, queued::order::kTold,   queued::order::kPublished,
    queued::order::kEnded,   queued::order::kLooked, queued::order::kAnnounced,
};

// What travels through the host is kept apart, and in order, by rules of its own, and what was
// found travels behind the parameters: they have arrived when zero_step returns.
const std::vector<const char*> kStagingRules = {
    queued::order::kGiven,     queued::order::kSummed,      queued::order::kMeasured,
    queued::order::kDecided,   queued::order::kUpdated,     queued::order::kGathered,
    queued::order::kShared,    queued::order::kEnded,       queued::order::kLooked,
    queued::order::kAnnounced, local::StagedPlane::kStaged,
};

void expect_right(Way way, const std::vector<const char*>& rules) {
  Right right(way == over_nccl);
  std::set<std::string> met;
  for (uint64_t seed = 1; seed <= (nightly_run() ? 1000 : 200); seed++) {
    Seen seen = way(seed, "no rule");
    ASSERT_TRUE(seen.outcome == right.of(seed)) << "seed " << seed;
    met.merge(seen.rules);
  }
  for (const char* const rule : rules) EXPECT_EQ(met.count(rule), 1u) << rule;
}

void expect_missed(Way way, const std::vector<const char*>& rules) {
  Right right(way == over_nccl);
  // In a process of its own: what reads tables that are not there yet may end it.
  const auto goes_wrong = [&](uint64_t seed, const char* forgotten) {
    const std::string expected = right.of(seed);
    const auto run = [&](int) -> std::string {
      return way(seed, forgotten).outcome == expected ? "right" : "wrong";
    };
    return run_ranks(RankKind::processes, 1, run)[0].result != "right";
  };
  for (uint64_t seed = 1; seed <= 8; seed++) EXPECT_FALSE(goes_wrong(seed, "no rule")) << seed;
  for (const char* const rule : rules) {
    std::optional<uint64_t> found;
    for (uint64_t seed = 1; seed <= 1000 && !found; seed++)
      if (goes_wrong(seed, rule)) found = seed;
    EXPECT_TRUE(found.has_value()) << "nothing depends on: " << rule;
  }
}

TEST(DeviceOrder, schedules_over_nccl_end_with_the_bits_of_one_process) {
  expect_right(over_nccl, kNcclRules);
}

TEST(DeviceOrder, schedules_over_memory_end_with_the_bits_of_one_process) {
  expect_right(over_memory, kMemoryRules);
}

TEST(DeviceOrder, schedules_with_waiting_hosts_end_with_the_bits_of_one_process) {
  expect_right(over_hosts, kMemoryRules);
}

TEST(DeviceOrder, schedules_through_the_host_end_with_the_bits_of_one_process) {
  expect_right(over_staging, kStagingRules);
}

TEST(DeviceOrder, each_rule_that_is_forgotten_over_nccl_is_missed_by_a_schedule) {
  expect_missed(over_nccl, kNcclRules);
}

TEST(DeviceOrder, each_rule_that_is_forgotten_over_memory_is_missed_by_a_schedule) {
  expect_missed(over_memory, kMemoryRules);
}

TEST(DeviceOrder, each_rule_that_is_forgotten_with_waiting_hosts_is_missed_by_a_schedule) {
  expect_missed(over_hosts, kMemoryRules);
}

TEST(DeviceOrder, each_rule_that_is_forgotten_through_the_host_is_missed_by_a_schedule) {
  expect_missed(over_staging, kStagingRules);
}

/// A parameter of one rank that is trained on a stream of its own.
class Model {
 public:
  /// `kind`: the parameter is in an arena of that kind; 0: in none.
  Model(zero_comm* comm, const std::shared_ptr<Device>& device, bool overlaps, int32_t kind = 0)
      : device_(device) {
    const std::vector<float> values(kCount, 1.0f);
    const std::vector<float> grads(kCount, static_cast<float>(1 + zero_comm_rank(comm)));
    data_ = memory();
    grad_ = memory();
    at_ = data_.data();
    if (kind != 0) {
      EXPECT_EQ(zero_arena_alloc(comm, kBytes, kind, &arena_), ZERO_OK) << zero_last_error();
      at_ = static_cast<std::byte*>(arena_);
    }
    EXPECT_TRUE(device->copy(nullptr, at_, values.data(), kBytes).ok());
    EXPECT_TRUE(device->copy(nullptr, grad_.data(), grads.data(), kBytes).ok());
    stream_ = make_stream(device).value();
    order(nullptr, stream());
    zero_options options;
    ZERO_INIT(options);
    options.overlap_gather = overlaps;
    EXPECT_EQ(zero_create(&optim, comm, &options), ZERO_OK) << zero_last_error();
    zero_param param;
    ZERO_INIT(param);
    param.name = "w";
    param.shape = &kCount;
    param.ndim = 1;
    param.data = at_;
    param.grad = grad_.data();
    EXPECT_EQ(zero_register_params(optim, nullptr, &param, 1, nullptr), ZERO_OK);
  }
  ~Model() {
    zero_free(optim);
    if (arena_ != nullptr) zero_arena_free(arena_);
  }

  /// `grad`: where the gradient is this time, if not where it was registered.
  zero_status step(void* grad = nullptr) {
    zero_step_options options;
    ZERO_INIT(options);
    options.stream = stream();
    if (grad != nullptr) {
      options.grads = &grad;
      options.grad_count = 1;
    }
    return zero_step(optim, &options);
  }
  std::string bytes() const { return bytes_of(at_); }
  std::string bytes_of(const std::byte* from) const {
    std::string out(kBytes, '\0');
    EXPECT_TRUE(device_->copy(stream(), out.data(), from, out.size()).ok());
    return out;
  }
  /// As the parameter is behind what the stream holds.
  DeviceMemory copied() const {
    DeviceMemory copy = memory();
    EXPECT_TRUE(device_->copy(stream(), copy.data(), at_, kBytes).ok());
    return copy;
  }
  void* stream() const { return stream_.handle(); }

  static constexpr int64_t kCount = 3000;
  static constexpr size_t kBytes = sizeof(float) * kCount;
  zero_optim* optim = nullptr;

 private:
  DeviceMemory memory() const {
    return DeviceMemory::allocate(device_, kBytes, "a tensor").value();
  }
  void order(void* before, void* after) const {
    const Event event = make_event(device_).value();
    EXPECT_TRUE(device_->record(event.handle(), before).ok());
    EXPECT_TRUE(device_->wait(after, event.handle(), "the engine's own").ok());
  }

  const std::shared_ptr<Device> device_;
  DeviceMemory data_, grad_;
  void* arena_ = nullptr;
  std::byte* at_;  // of the parameter
  Stream stream_;
};

/// Two optimizers of each rank that step in turn, each on a stream of its own, with parameters that
/// travel behind the steps. How many transfers could have run at once.
int64_t transfers_that_meet(uint64_t seed, const char* forgotten) {
  const NcclRanks ranks(2, seed);
  ranks.chaos().forget(forgotten);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    zero_comm* const comm = api::add_handle(ranks.join(rank).value());
    {
      Model models[] = {{comm, ranks.device(rank), true}, {comm, ranks.device(rank), true}};
      for (int step = 0; step < 4; step++)
        EXPECT_EQ(models[step % 2].step(), ZERO_OK) << zero_last_error();
    }
    zero_comm_free(comm);
    return {};
  });
  return ranks.knobs().met;
}

TEST(DeviceOrder, transfers_of_all_optimizers_of_a_comm_are_kept_apart) {
  bool missed = false;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    EXPECT_EQ(transfers_that_meet(seed, "no rule"), 0) << seed;
    missed = missed || transfers_that_meet(seed, queued::order::kApart) > 0;
  }
  EXPECT_TRUE(missed) << "nothing depends on: " << queued::order::kApart;
}

/// A step by gradients in an arena, which is then given up, early or at the end. What the first of
/// two ranks ends with.
template <class Join>
std::string stepped_from_arena(bool early, const Join& join) {
  return run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    const std::shared_ptr<Comm> seat = join(rank);
    zero_comm* const comm = api::add_handle(seat);
    std::string bytes;
    {
      Model model(comm, seat->device(), false);
      void* grads = nullptr;
      EXPECT_EQ(zero_arena_alloc(comm, Model::kBytes, ZERO_MEMORY_PER_RANK, &grads), ZERO_OK);
      EXPECT_EQ(model.step(grads), ZERO_OK) << zero_last_error();
      const auto give_up = [&] { EXPECT_EQ(zero_arena_free(grads), ZERO_OK); };
      if (early) give_up();
      bytes = model.bytes();
      if (!early) give_up();
    }
    zero_comm_free(comm);
    return bytes;
  })[0];
}

std::string stepped_over_nccl(uint64_t seed, bool early) {
  const NcclRanks ranks(2, seed);
  return stepped_from_arena(early, [&](int rank) { return ranks.join(rank).value(); });
}

std::string stepped_through_the_host(uint64_t seed, bool early) {
  const auto world = chaos(seed, {.reaches = false});
  const std::string name = unique_name();
  const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
  return stepped_from_arena(
      early, [&](int rank) { return create_local(name, rank, 2, {}, devices[rank]).value(); });
}

TEST(DeviceOrder, an_arena_that_is_given_up_stays_until_queued_steps_are_done) {
  for (const auto stepped : {stepped_over_nccl, stepped_through_the_host}) {
    const std::string right = stepped(1, false);
    for (uint64_t seed = 1; seed <= 40; seed++) EXPECT_TRUE(stepped(seed, true) == right) << seed;
  }
}

/// Two ranks that reach each other's memory clip by one norm, and then by another. What the first
/// ends with.
std::string clipped_twice(uint64_t seed, const char* forgotten, const Abilities& abilities) {
  const auto world = chaos(seed, abilities);
  world->forget(forgotten);
  const std::string name = unique_name();
  const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
  CommOptions options;
  if (std::string(forgotten) != "no rule") options.timeout_ms = 200;  // told too early is not told
  return run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    zero_comm* const comm =
        api::add_handle(create_local(name, rank, 2, options, devices[rank]).value());
    std::string bytes;
    {
      Model model(comm, devices[rank], false);
      for (int step = 0; step < 3; step++) {
        void* const stream = model.stream();
        zero_status worst = zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, stream);
        // The second clips nothing: it would make good what the first found wrongly.
        for (const auto& [p, most] : {std::pair(2.0, 1.0), {1.0, 1e9}})
          worst = std::min(worst,
                           zero_clip_grad_norm(model.optim, nullptr, 0, most, p, nullptr, stream));
        bytes += std::to_string(std::min(worst, model.step()));
      }
      bytes += model.bytes();
    }
    zero_comm_free(comm);
    return bytes;
  })[0];
}

TEST(DeviceOrder, optimizers_on_streams_of_their_own_pass_gates_one_behind_the_other) {
  const auto train = [](uint64_t seed) {
    const auto world = chaos(seed);
    const std::string name = unique_name();
    const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
    CommOptions options;
    options.timeout_ms = 5'000;
    return run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      zero_comm* const comm =
          api::add_handle(create_local(name, rank, 2, options, devices[rank]).value());
      std::string ends;
      {
        Model models[] = {{comm, devices[rank], false}, {comm, devices[rank], false}};
        for (int step = 0; step < 6; step++) ends += std::to_string(models[step % 2].step());
        for (const Model& model : models) ends += model.bytes();
      }
      zero_comm_free(comm);
      return ends;
    });
  };
  const std::vector<std::string> right = train(1);
  EXPECT_EQ(right[0].substr(0, 6), "000000");
  for (uint64_t seed = 2; seed <= 60; seed++) EXPECT_TRUE(train(seed) == right) << seed;
}

TEST(DeviceOrder, what_a_caller_reads_between_two_calls_is_not_yet_of_the_step) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const auto world = chaos(seed);
    const std::string name = unique_name();
    const std::shared_ptr<Device> devices[] = {world->make_device(0), world->make_device(1)};
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      zero_comm* const comm =
          api::add_handle(create_local(name, rank, 2, {}, devices[rank]).value());
      {
        Model model(comm, devices[rank], false, ZERO_MEMORY_PER_RANK);
        const std::string before = model.bytes();
        EXPECT_EQ(zero_reduce_grads(model.optim, nullptr, 0, ZERO_REDUCE_MEAN, model.stream()),
                  ZERO_OK);
        const DeviceMemory read = model.copied();
        EXPECT_EQ(model.step(), ZERO_OK) << zero_last_error();
        EXPECT_FALSE(model.bytes() == before);
        EXPECT_TRUE(model.bytes_of(read.data()) == before) << seed;
      }
      zero_comm_free(comm);
      return {};
    });
  }
}

TEST(DeviceOrder, what_ranks_found_is_read_before_they_tell_more) {
  for (const Abilities& abilities : {Abilities{}, Abilities{.words = false}}) {
    const std::string right = clipped_twice(1, "no rule", abilities);
    EXPECT_EQ(right.substr(0, 3), "000");
    for (uint64_t seed = 2; seed <= 200; seed++)
      EXPECT_TRUE(clipped_twice(seed, "no rule", abilities) == right) << seed;
    bool missed = false;
    for (uint64_t seed = 2; seed <= 2000 && !missed; seed++)
      missed = clipped_twice(seed, queued::order::kReread, abilities) != right;
    EXPECT_TRUE(missed) << "nothing depends on: " << queued::order::kReread;
  }
}

}  // namespace
}  // namespace zero::test
