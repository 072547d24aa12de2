// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in their streams, and one of them does not come: it died, its
// device is stuck, or a call of the device failed. Every rank gets a sentence, and no stream stays
// where it is.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/handles.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/create.h"
#include "support/chaos_device.h"
#include "support/emulated_launches.h"
#include "support/points.h"
#include "support/ranks.h"
#include "zero.h"

namespace zero::test {
namespace {

/// Who waits for the other ranks in a step: at gates the streams, for words, or the hosts; or the
/// hosts for each transfer through their memory.
enum class Waits { streams, hosts, transfers };
constexpr Waits kWays[] = {Waits::streams, Waits::hosts, Waits::transfers};

std::shared_ptr<ChaosWorld> chaos(uint64_t seed, Waits waits = Waits::streams) {
  return ChaosWorld::create({.seed = seed,
                             .patience = INT64_MAX,
                             .emulate = emulate,
                             .words = waits != Waits::hosts,
                             .reaches = waits != Waits::transfers});
}

/// Until `word` is `value` or more, the default stream of a device does nothing.
class Stuck {
 public:
  Stuck(const std::shared_ptr<ChaosDevice>& device, uint32_t& word, uint32_t value)
      : aside_(make_stream(device).value()), comes_(make_event(device).value()) {
    const ChaosWork waits{[&word, value] { return std::atomic_ref(word).load() >= value; }, {}};
    static_cast<ChaosStream*>(aside_.handle())->queue("a device is stuck", [waits] {
      return waits;
    });
    EXPECT_TRUE(device->record(comes_.handle(), aside_.handle()).ok());
    EXPECT_TRUE(device->wait(nullptr, comes_.handle(), "the test's own").ok());
  }

 private:
  const Stream aside_;
  const Event comes_;
};

CommOptions limits(int64_t timeout_ms) {
  CommOptions options;
  options.timeout_ms = options.late_ms = timeout_ms;
  options.rendezvous_ms = 10'000;
  return options;
}

std::string said(zero_status status) {
  return status == ZERO_OK ? "ok" : text(zero_status_name(status), ": ", zero_last_error());
}

/// A parameter that is trained on one rank's device; what goes wrong is kept, and ends what
/// follows.
class Trained {
 public:
  Trained(const std::string& name, int rank, int world, const CommOptions& options,
          std::shared_ptr<ChaosDevice> device, int32_t nonfinite = ZERO_NONFINITE_IGNORE)
      : device_(std::move(device)) {
    api::note_process();
    const std::string memory(kCount * sizeof(float), '\1');
    for (DeviceMemory* const to : {&data_, &grad_}) {
      *to = DeviceMemory::allocate(device_, memory.size(), "a tensor").value();
      EXPECT_TRUE(device_->copy(nullptr, to->data(), memory.data(), memory.size()).ok());
    }
    EXPECT_TRUE(device_->world().run_all().ok());
    Result<std::shared_ptr<Comm>> seat = create_local(name, rank, world, options, device_);
    if (!seat.ok()) {
      worst_ = text(code_name(seat.failure().code()), ": ", seat.failure().text());
      return;
    }
    comm_ = api::add_handle(std::move(*seat));
    zero_options optimizer;
    zero_options_init(&optimizer, sizeof optimizer);
    optimizer.nonfinite = nonfinite;
    zero_param param;
    zero_param_init(&param, sizeof param);
    param.name = "w";
    param.shape = &kCount;
    param.ndim = 1;
    param.data = data_.data();
    param.grad = grad_.data();
    then([&] { return zero_create(&optim_, comm_, &optimizer); });
    then([&] { return zero_register_params(optim_, nullptr, &param, 1, nullptr); });
  }
  ~Trained() {
    zero_free(optim_);
    zero_comm_free(comm_);
  }
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;

  /// Queued, and nobody has looked whether it is done.
  void step() {
    then([&] { return zero_step(optim_, nullptr); });
  }
  void look() {
    then([&] {
      zero_result result;
      zero_result_init(&result, sizeof result);
      return zero_step_result(optim_, &result);
    });
  }
  void meet() {
    then([&] { return zero_comm_barrier(comm_); });
  }
  /// All that the device holds is done, sooner or later.
  bool drained() const {
    for (int tries = 0; tries < 10'000; tries++) {
      if (device_->world().run_all().ok()) return true;
      usleep(1000);
    }
    return false;
  }
  const std::string& worst() const { return worst_; }
  int64_t host_waits() const {
    zero_statistics statistics;
    zero_statistics_init(&statistics, sizeof statistics);
    EXPECT_EQ(zero_stats(optim_, &statistics), ZERO_OK) << zero_last_error();
    return statistics.host_waits;
  }
  /// Whether the parameters of all ranks are those of one step, as the comm's failure says.
  bool consistent() const {
    zero_failure failure;
    zero_failure_init(&failure, sizeof failure);
    EXPECT_EQ(zero_comm_failure(comm_, &failure), ZERO_OK) << zero_last_error();
    return failure.params_consistent != 0;
  }
  /// Gradients in an arena that is given up while the step may still read it.
  const void* step_from_arena(float value) {
    void* arena = nullptr;
    then([&] {
      return zero_arena_alloc(comm_, kCount * sizeof(float), ZERO_MEMORY_PER_RANK, &arena);
    });
    const std::vector<float> values(kCount, value);
    EXPECT_TRUE(device_->copy(nullptr, arena, values.data(), kCount * sizeof(float)).ok());
    zero_step_options options;
    zero_step_options_init(&options, sizeof options);
    options.grads = &arena;
    options.grad_count = 1;
    then([&] { return zero_step(optim_, &options); });
    then([&] { return zero_arena_free(arena); });
    return arena;
  }
  /// A gradient that is not finite, and how many of all ranks the step found.
  void spoil() {
    const float infinite = INFINITY;
    EXPECT_TRUE(device_->copy(nullptr, grad_.data(), &infinite, sizeof infinite).ok());
  }
  int64_t found() {
    zero_result result;
    zero_result_init(&result, sizeof result);
    then([&] { return zero_step_result(optim_, &result); });
    return result.nonfinite;
  }
  std::string values() const {
    std::string bytes(data_.bytes(), '\0');
    EXPECT_TRUE(device_->copy(nullptr, bytes.data(), data_.data(), bytes.size()).ok());
    return bytes;
  }

 private:
  static constexpr int64_t kCount = 2000;

  template <class Body>
  void then(const Body& body) {
    if (worst_ == "ok") worst_ = said(body());
  }

  const std::shared_ptr<ChaosDevice> device_;
  DeviceMemory data_, grad_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  std::string worst_ = "ok";
};

TEST(GatesFault, processes_wait_for_each_other_and_come_through) {
  constexpr int kSteps = 5;
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    run_sound_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      Trained trained(name, rank, 3, limits(60'000), chaos(1, waits)->make_device());
      for (int step = 0; step < kSteps; step++) trained.step();
      trained.look();
      EXPECT_EQ(trained.worst(), "ok");
      // At two gates; or for gradients, parameters and what was found.
      const int most = waits == Waits::hosts ? 2 : 3;
      EXPECT_EQ(trained.host_waits(), waits == Waits::streams ? 0 : most * kSteps);
      return "";
    });
  }
}

TEST(GatesFault, what_one_ranks_device_cannot_do_the_hosts_of_all_do) {
  for (const Waits waits : {Waits::hosts, Waits::transfers}) {
    for (const int lacking : {0, 1, 2}) {
      const std::string name = unique_name();
      run_sound_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
        const Waits own = rank == lacking ? waits : Waits::streams;
        Trained trained(name, rank, 3, limits(60'000), chaos(1, own)->make_device());
        trained.step();
        EXPECT_EQ(trained.worst(), "ok");
        EXPECT_EQ(trained.host_waits(), waits == Waits::hosts ? 2 : 3);
        return "";
      });
    }
  }
}

TEST(GatesFault, a_device_that_takes_words_and_never_writes_them_is_found_out_in_seconds) {
  for (const int64_t timeout_ms : {600'000, 2'000}) {
    const std::string name = unique_name();
    const int64_t start_ms = now_ms();
    run_sound_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      const auto world = ChaosWorld::create(
          {.patience = INT64_MAX, .emulate = emulate, .writes_words = rank != 1});
      {
        Trained trained(name, rank, 3, limits(timeout_ms), world->make_device());
        trained.step();
        EXPECT_EQ(trained.worst(), "ok");
        EXPECT_EQ(trained.host_waits(), 2);
      }
      EXPECT_EQ(world->living(), 0);
      return "";
    });
    EXPECT_LT(now_ms() - start_ms, 60'000);
  }
}

TEST(GatesFault, a_rank_that_dies_with_work_queued_keeps_nobody_waiting_and_no_step_is_made) {
  for (const int victim : {0, 1, 2}) {
    const std::string name = unique_name();
    const auto ends = run_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      Trained trained(name, rank, 3, limits(600'000), chaos(1)->make_device());
      trained.step();
      trained.look();
      const std::string before = trained.values();
      trained.step();
      if (rank == victim) die();
      trained.look();
      EXPECT_TRUE(trained.drained());
      EXPECT_TRUE(trained.values() == before);
      EXPECT_FALSE(trained.consistent());
      return trained.worst();
    });
    for (int rank = 0; rank < 3; rank++) {
      if (rank == victim) continue;
      const RankEnd& end = ends[static_cast<size_t>(rank)];
      EXPECT_EQ(end.exit_status, 0);
      EXPECT_TRUE(contains(end.result, "ZERO_ERR_PEER_DEAD")) << end.result;
      EXPECT_TRUE(contains(end.result, text("rank ", victim, " (process "))) << end.result;
    }
  }
}

/// Rank 1 dies in each exchange of a step, whose phases these are: it is entered and ready, then
/// hosts wait. What is queued before the last of `untouched` changes no parameter.
void die_in_each_exchange(Waits waits, const std::vector<std::string>& phases, int untouched) {
  for (int at = 1; at <= static_cast<int>(phases.size()); at++) {
    const std::string name = unique_name();
    const auto ends = run_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      const auto device = chaos(1, waits)->make_device();
      Trained trained(name, rank, 3, limits(600'000), device);
      trained.step();
      trained.look();
      const std::string before = trained.values();
      trained.meet();
      if (rank == 1) watch_points({"exchange.written", at}, die);
      trained.step();
      EXPECT_TRUE(trained.drained());
      // Rank 2 owns nothing of it, and may or may not have been sent what is new.
      if (at <= untouched || rank == 0) {
        EXPECT_EQ(trained.values() == before, at <= untouched) << at;
      }
      EXPECT_EQ(trained.consistent(), at < 3);
      return trained.worst();
    });
    for (const size_t survivor : {0u, 2u}) {
      const RankEnd& end = ends[survivor];
      EXPECT_EQ(end.exit_status, 0);
      EXPECT_TRUE(contains(end.result, "ZERO_ERR_PEER_DEAD")) << end.result;
      EXPECT_TRUE(contains(end.result, phases[static_cast<size_t>(at) - 1])) << end.result;
      EXPECT_TRUE(contains(end.result, "rank 1 (process ")) << end.result;
    }
  }
}

TEST(GatesFault, a_rank_that_dies_while_the_others_hosts_wait_is_named_with_what_they_wait_for) {
  die_in_each_exchange(Waits::hosts, {"enter", "ready", "a gate: enter", "a gate: publish"}, 3);
  die_in_each_exchange(Waits::transfers,
                       {"enter", "ready", "a transfer: gradients", "a transfer: parameters",
                        "a transfer: parameters"},
                       3);
}

TEST(GatesFault, a_host_that_waits_for_its_own_device_hears_that_another_rank_died) {
  for (const Waits waits : {Waits::hosts, Waits::transfers}) {
    const std::string name = unique_name();
    const auto ends = run_ranks(RankKind::processes, 2, [&](int rank) -> std::string {
      uint32_t comes = 0;
      const auto device = chaos(1, waits)->make_device();
      Trained trained(name, rank, 2, limits(600'000), device);
      trained.step();
      std::optional<Stuck> stuck;
      if (rank == 0) stuck.emplace(device, comes, 1);
      if (rank == 1) watch_points({"exchange.written", 3}, die);
      trained.step();
      comes = 1;
      EXPECT_TRUE(trained.drained());
      return trained.worst();
    });
    EXPECT_EQ(ends[0].exit_status, 0);
    EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_PEER_DEAD")) << ends[0].result;
  }
}

TEST(GatesFault, a_rank_whose_device_is_stuck_is_named_to_all_after_the_deadline) {
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    uint32_t comes = 0;
    // Worlds apart: who waits for one runs nothing of the other.
    const std::shared_ptr<ChaosDevice> devices[] = {chaos(1, waits)->make_device(),
                                                    chaos(2, waits)->make_device()};
    const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      Trained trained(name, rank, 2, limits(300), devices[rank]);
      trained.step();
      trained.look();
      std::optional<Stuck> stuck;
      if (rank == 1) stuck.emplace(devices[1], comes, 1);
      trained.step();
      trained.look();
      std::atomic_ref(comes).store(1);
      EXPECT_TRUE(trained.drained());
      return trained.worst();
    });
    const char* const named = waits == Waits::streams
                                  ? "a gate: enter: rank 1's device did not come"
                              : waits == Waits::hosts ? "a gate: enter: rank 1 (process "
                                                      : "a transfer: gradients: rank 1 (process ";
    for (const std::string& result : results) {
      EXPECT_TRUE(contains(result, "ZERO_ERR_TIMEOUT")) << result;
      EXPECT_TRUE(contains(result, named)) << result;
      EXPECT_TRUE(contains(result, "did not come within 300 ms")) << result;
    }
  }
}

TEST(GatesFault, a_rank_that_is_late_at_every_step_is_waited_for_each_time_anew) {
  constexpr uint32_t kSteps = 12;
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    uint32_t comes = 0;
    const std::shared_ptr<ChaosDevice> devices[] = {chaos(1, waits)->make_device(),
                                                    chaos(2, waits)->make_device()};
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      Trained trained(name, rank, 2, limits(400), devices[rank]);
      for (uint32_t step = 1; step <= kSteps; step++) {
        std::optional<Stuck> late;
        std::thread comes_late;
        if (rank == 1) {
          late.emplace(devices[1], comes, step);
          comes_late = std::thread([&comes, step] {
            usleep(200'000);
            std::atomic_ref(comes).store(step);
          });
        }
        trained.step();
        trained.look();
        if (comes_late.joinable()) comes_late.join();
      }
      EXPECT_EQ(trained.worst(), "ok");
      return "";
    });
  }
}

TEST(GatesFault, what_one_rank_finds_is_known_to_all) {
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    const auto world = chaos(3, waits);
    const std::shared_ptr<ChaosDevice> devices[] = {world->make_device(0), world->make_device(1)};
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      Trained trained(name, rank, 2, limits(20'000), devices[rank]);
      trained.step();
      EXPECT_EQ(trained.found(), 0);
      if (rank == 1) trained.spoil();
      trained.step();
      EXPECT_EQ(trained.found(), 1);
      EXPECT_EQ(trained.worst(), "ok");
      return "";
    });
  }
}

TEST(GatesFault, a_step_that_is_skipped_leaves_every_parameter_as_it_was) {
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    const auto world = chaos(5, waits);
    const std::shared_ptr<ChaosDevice> devices[] = {world->make_device(0), world->make_device(1)};
    run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      Trained trained(name, rank, 2, limits(20'000), devices[rank], ZERO_NONFINITE_SKIP);
      const std::string before = trained.values();
      if (rank == 1) trained.spoil();
      trained.step();
      trained.look();
      EXPECT_TRUE(contains(trained.worst(), "ZERO_SKIPPED")) << trained.worst();
      EXPECT_TRUE(trained.values() == before);
      return "";
    });
  }
}

TEST(GatesFault, an_arena_that_is_given_up_stays_as_long_as_queued_work_uses_it) {
  const std::string name = unique_name();
  uint32_t comes = 0;
  const std::shared_ptr<ChaosDevice> devices[] = {chaos(1)->make_device(), chaos(2)->make_device()};
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    ChaosDevice& device = *devices[rank];
    Trained trained(name, rank, 2, limits(20'000), devices[rank]);
    trained.step();
    trained.look();
    const WordStep stuck{WordStep::wait, &comes, 1};
    EXPECT_TRUE(device.words(nullptr, {&stuck, 1}, "the test's own").ok());
    const void* const first = trained.step_from_arena(1);
    const void* const second = trained.step_from_arena(2);
    EXPECT_TRUE(device.check(first, 1, "the first arena").ok());
    std::atomic_ref(comes).store(1);
    trained.look();
    (void)trained.step_from_arena(3);
    EXPECT_FALSE(device.check(first, 1, "the first arena").ok());
    trained.look();
    EXPECT_NE(first, second);
    EXPECT_EQ(trained.worst(), "ok");
    return "";
  });
}

TEST(GatesFault, ranks_that_want_no_transfers_through_the_host_are_told_why_there_would_be_some) {
  const std::string name = unique_name();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    CommOptions options = limits(10'000);
    options.stages = false;
    const auto device = chaos(1, rank == 0 ? Waits::streams : Waits::transfers)->make_device(rank);
    const auto seat = create_local(name, rank, 2, options, device);
    return seat.ok() ? "ok" : text(code_name(seat.failure().code()), ": ", seat.failure().text());
  });
  for (const std::string& result : results)
    EXPECT_EQ(
        result,
        "ZERO_ERR_UNSUPPORTED: devices do not reach each other's memory (rank 1: chaos 1 does "
        "not reach rank 0's memory)");
}

TEST(GatesFault, ranks_on_the_host_and_on_a_device_do_not_meet) {
  const std::string name = unique_name();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    const std::shared_ptr<Device> device = rank == 0 ? chaos(1)->make_device() : nullptr;
    const auto seat = create_local(name, rank, 2, limits(10'000), device);
    return seat.ok() ? "ok" : seat.failure().text();
  });
  for (const std::string& result : results)
    EXPECT_TRUE(contains(result, "has its memory on host, rank 0 (process ")) << result;
}

void fail_each_call(Waits waits) {
  int failed = 0;
  for (int64_t call = 0; call < 150; call++) {
    const std::string name = unique_name();
    const auto world = chaos(static_cast<uint64_t>(call), waits);
    const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      const std::shared_ptr<ChaosDevice> device = world->make_device(rank);
      // Three copies before it, of which no test is made here.
      if (rank == 1) device->fail_once(call + 8, Status(ZERO_ERR_SYSTEM, "the device has failed"));
      Trained trained(name, rank, 2, limits(20'000), device);
      for (int step = 0; step < 2; step++) trained.step();
      trained.look();
      return trained.worst();
    });
    EXPECT_EQ(results[0] == "ok", results[1] == "ok") << call << results[0] << results[1];
    if (results[1] != "ok") {
      EXPECT_TRUE(contains(results[1], "the device has failed")) << results[1];
      failed++;
    }
    EXPECT_EQ(world->living(), 0) << call << ": something was not given back";
  }
  EXPECT_GT(failed, 60);
}

TEST(GatesFault, whichever_call_of_a_device_fails_every_rank_gets_a_sentence) {
  for (const Waits waits : kWays) fail_each_call(waits);
}

}  // namespace
}  // namespace zero::test
