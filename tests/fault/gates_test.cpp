// SPDX-License-Identifier: Apache-2.0
// Ranks wait for each other in their streams, and one does not arrive: it died, its device is
// stuck, or a call of its device failed. Every rank gets an error, and no stream stays blocked.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "device_ranks.h"
#include "support/points.h"

namespace zero::test {
namespace {

TEST(GatesFault, processes_wait_for_each_other_and_come_through) {
  constexpr int kSteps = 5;
  for (const Waits waits : kWays) {
    const std::string name = unique_name();
    run_sound_ranks(RankKind::processes, 3, [&](int rank) -> std::string {
      Trained trained(name, rank, 3, limits(60'000), chaos(1, waits)->make_device());
      for (int step = 0; step < kSteps; step++) trained.step();
      trained.look();
      EXPECT_EQ(trained.worst(), "ok");
      // At two gates, or for gradients, parameters and results.
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
    for_each_survivor(ends, victim, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, "ZERO_ERR_PEER_DEAD", text("rank ", victim, " (process ")));
    });
  }
}

/// Kills rank 1 in each exchange of a step, which has these phases: the ranks enter and are ready,
/// then hosts wait. A death in one of the first `untouched` exchanges changes no parameter.
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
      // Rank 2 owns nothing, and may or may not have received new parameters.
      if (at <= untouched || rank == 0) {
        EXPECT_EQ(trained.values() == before, at <= untouched) << at;
      }
      EXPECT_EQ(trained.consistent(), at < 3);
      return trained.worst();
    });
    for_each_survivor(ends, 1, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, "ZERO_ERR_PEER_DEAD", phases[static_cast<size_t>(at) - 1],
                           "rank 1 (process "));
    });
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
    EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_PEER_DEAD"));
  }
}

TEST(GatesFault, a_rank_whose_device_is_stuck_is_named_to_all_after_the_deadline) {
  for (const Waits waits : kWays) {
    const Clock clock;
    uint32_t comes = 0;
    std::atomic<bool> is_stuck{false};
    std::atomic<int> waiting{2};
    const auto devices = two_devices_apart(waits);
    const int watches = waits == Waits::streams ? 2 : 0;  // the gates' watches, which name rank 1
    const auto time = Clock::run_once([&] { return is_stuck.load(); },
                                      [&] { return waiting == 0 ? 0 : waiting + watches; });
    const auto results = run_trained(devices, 300, [&](Trained& trained, int rank) {
      trained.step();
      trained.look();
      std::optional<Stuck> stuck;
      if (rank == 1) {
        stuck.emplace(devices[1], comes, 1);
        is_stuck = true;
      }
      trained.step();
      trained.look();
      --waiting;
      std::atomic_ref(comes).store(1);
      EXPECT_TRUE(trained.drained());
    });
    const char* const named = waits == Waits::streams
                                  ? "a gate: enter: rank 1's device did not arrive"
                              : waits == Waits::hosts ? "a gate: enter: rank 1 (process "
                                                      : "a transfer: gradients: rank 1 (process ";
    for (const std::string& result : results)
      EXPECT_TRUE(contains(result, "ZERO_ERR_TIMEOUT", named, "did not arrive within 300 ms"));
  }
}

TEST(GatesFault, a_rank_that_is_late_at_every_step_is_waited_for_each_time_anew) {
  constexpr uint32_t kSteps = 12;
  for (const Waits waits : kWays) {
    const Clock clock;
    uint32_t comes = 0;
    const auto devices = two_devices_apart(waits);
    const auto results = run_trained(devices, 400, [&](Trained& trained, int rank) {
      for (uint32_t step = 1; step <= kSteps; step++) {
        std::optional<Stuck> late;
        std::thread comes_late;
        if (rank == 1) {
          late.emplace(devices[1], comes, step);
          comes_late = std::thread([&comes, step] {
            Clock::pass(200, 1);
            std::atomic_ref(comes).store(step);
          });
        }
        trained.step();
        trained.look();
        if (comes_late.joinable()) comes_late.join();
      }
    });
    for (const std::string& result : results) EXPECT_EQ(result, "ok");
  }
}

TEST(GatesFault, what_one_rank_finds_is_known_to_all) {
  for (const Waits waits : kWays) {
    const auto devices = two_devices(chaos(3, waits));
    const auto results = run_trained(devices, 20'000, [&](Trained& trained, int rank) {
      trained.step();
      EXPECT_EQ(trained.found(), 0);
      if (rank == 1) trained.spoil();
      trained.step();
      EXPECT_EQ(trained.found(), 1);
    });
    for (const std::string& result : results) EXPECT_EQ(result, "ok");
  }
}

TEST(GatesFault, a_step_that_is_skipped_leaves_every_parameter_as_it_was) {
  for (const Waits waits : kWays) {
    const auto step_on_infinity = [](Trained& trained, int rank) {
      const std::string before = trained.values();
      if (rank == 1) trained.spoil();
      trained.step();
      trained.look();
      EXPECT_TRUE(trained.values() == before);
    };
    for (const std::string& result :
         run_trained(two_devices(chaos(5, waits)), 20'000, step_on_infinity, ZERO_NONFINITE_SKIP))
      EXPECT_TRUE(contains(result, "ZERO_SKIPPED"));
  }
}

TEST(GatesFault, ranks_that_want_no_transfers_through_the_host_are_told_why_there_would_be_some) {
  const std::string name = unique_name();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    CommOptions options = limits(10'000);
    options.stages = false;
    const auto device = chaos(1, rank == 0 ? Waits::streams : Waits::transfers)->make_device(rank);
    const auto seat = create_local(name, rank, 2, options, device);
    return outcome(seat.failure());
  });
  for (const std::string& result : results)
    EXPECT_EQ(
        result,
        "ZERO_ERR_UNSUPPORTED: devices cannot access each other's memory (rank 1: chaos 1 does "
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
    EXPECT_TRUE(contains(result, "has its memory on host, rank 0 (process "));
}

void fail_each_call(Waits waits) {
  int failed = 0;
  for (int64_t call = 0; call < 150; call++) {
    const auto world = chaos(static_cast<uint64_t>(call), waits);
    {
      const auto devices = two_devices(world);
      // The three copies before it are not tested here.
      devices[1]->fail_once(call + 8, Status(ZERO_ERR_SYSTEM, "the device has failed"));
      const auto results = run_trained(devices, 20'000, [](Trained& trained, int) {
        for (int step = 0; step < 2; step++) trained.step();
        trained.look();
      });
      EXPECT_EQ(results[0] == "ok", results[1] == "ok") << call << results[0] << results[1];
      if (results[1] != "ok") {
        EXPECT_TRUE(contains(results[1], "the device has failed"));
        failed++;
      }
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
