// SPDX-License-Identifier: Apache-2.0
// Optimizers, arenas and comms that are freed while queued work uses them. They stay until it is
// complete, even on a broken comm. What a device might still use is never freed.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "device_ranks.h"
#include "support/clock.h"
#include "support/nccl_ranks.h"

namespace zero::test {
namespace {

TEST(LeavingFault, an_arena_that_is_given_up_stays_as_long_as_queued_work_uses_it) {
  uint32_t comes = 0;
  const auto devices = two_devices_apart();
  const auto results = run_trained(devices, 20'000, [&](Trained& trained, int rank) {
    ChaosDevice& device = *devices[static_cast<size_t>(rank)];
    trained.step();
    trained.look();
    const WordStep stuck{WordStep::wait, &comes, 1};
    EXPECT_TRUE(device.words(nullptr, {&stuck, 1}, "the test's own").ok());
    void* const first = trained.take_arena(1);
    trained.step_from(first);
    void* const second = trained.take_arena(2);
    trained.step_from(second);
    EXPECT_TRUE(device.check(first, 1, "the first arena").ok());
    std::atomic_ref(comes).store(1);
    trained.look();
    trained.step_from(trained.take_arena(3));
    EXPECT_FALSE(device.check(first, 1, "the first arena").ok());
    trained.look();
    EXPECT_NE(first, second);
  });
  for (const std::string& result : results) EXPECT_EQ(result, "ok");
}

/// Rank 1's device is stuck in a step, rank 0 breaks the comm, and both leave it long before the
/// device continues through `comes`, if it ever does.
template <class Join>
void leave_broken(const std::shared_ptr<ChaosDevice> (&devices)[2], const Join& join,
                  uint32_t& comes, bool goes_on) {
  const Clock clock;
  std::atomic<int> leaving{0}, living{2};
  const auto time =
      Clock::run_once([&] { return leaving == 2; }, [&] { return goes_on ? 0 : living.load(); });
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    const std::shared_ptr<ChaosDevice>& device = devices[rank];
    std::optional<Stuck> stuck;
    std::thread later;
    void* arena = nullptr;
    int64_t given_back = 0;  // CUDA waits for all work before it frees memory
    {
      Trained trained(device, [&] { return join(rank); });
      trained.step();
      trained.look();
      arena = trained.take_arena(1);
      trained.meet();
      if (rank == 1) stuck.emplace(device, comes, 1);
      std::thread breaks([&] {
        usleep(200'000);
        if (rank == 0) trained.abort();
      });
      trained.step_from(arena);
      trained.look();
      breaks.join();
      EXPECT_TRUE(contains(trained.worst(), "ZERO_ERR_ABORTED"));
      given_back = device->world().released_under_work();
      ++leaving;
      if (rank == 1 && goes_on) {
        later = std::thread([&] {
          usleep(300'000);
          std::atomic_ref(comes).store(1);
        });
      }
    }
    --living;
    EXPECT_EQ(device->world().lost_under_work(), 0) << rank;
    if (rank == 1) {
      if (!goes_on) {
        EXPECT_EQ(device->world().released_under_work(), given_back);
      }
      EXPECT_EQ(device->check(arena, 1, "the arena").ok(), !goes_on);
    }
    if (later.joinable()) later.join();
    return "";
  });
}

void leave_broken(Waits waits, bool goes_on, int64_t timeout_ms) {
  const std::string name = unique_name();
  uint32_t comes = 0;
  const std::shared_ptr<ChaosDevice> devices[] = {chaos(1, waits)->make_device(),
                                                  chaos(2, waits)->make_device()};
  const auto join = [&](int rank) {
    return create_local(name, rank, 2, limits(timeout_ms), devices[rank]);
  };
  leave_broken(devices, join, comes, goes_on);
}

void leave_broken_nccl(bool goes_on, int64_t timeout_ms) {
  uint32_t comes = 0;
  const NcclRanks ranks(2);
  const std::shared_ptr<ChaosDevice> devices[] = {ranks.device(0), ranks.device(1)};
  leave_broken(
      devices, [&](int rank) { return ranks.join(rank, limits(timeout_ms)); }, comes, goes_on);
}

TEST(LeavingFault, an_optimizer_of_a_broken_comm_waits_for_what_its_device_still_does) {
  for (const Waits waits : kWays) leave_broken(waits, true, 20'000);
  leave_broken_nccl(true, 20'000);
}

TEST(LeavingFault, what_a_stuck_device_may_use_stays_when_its_optimizer_goes) {
  for (const Waits waits : kWays) leave_broken(waits, false, 1'500);
  leave_broken_nccl(false, 1'500);
}

TEST(LeavingFault, a_call_that_waits_for_a_stuck_device_gives_nothing_of_it_back) {
  const Clock clock;
  std::atomic<bool> is_stuck{false}, ended{false};
  const auto time = Clock::run_once([&] { return is_stuck.load(); }, [&] { return ended ? 0 : 1; });
  uint32_t comes = 0;
  const std::shared_ptr<ChaosDevice> device = chaos(1)->make_device();
  {
    const DeviceMemory memory = DeviceMemory::allocate_zeroed(device, 2048, "two tensors").value();
    zero_comm* const comm = api::add_handle(create_solo(limits(500), device).value());
    zero_optim* optim = nullptr;
    EXPECT_EQ(said(zero_create(&optim, comm, nullptr)), "ok");
    const int64_t count = 512;
    zero_param param;
    ZERO_INIT(param);
    param.name = "w";
    param.shape = &count;
    param.ndim = 1;
    param.dtype = param.grad_dtype = ZERO_BFLOAT16;  // with master weights
    param.data = memory.data();
    param.grad = memory.data() + 1024;
    EXPECT_EQ(said(zero_register_params(optim, nullptr, &param, 1, nullptr)), "ok");
    EXPECT_EQ(said(zero_step(optim, nullptr)), "ok");
    EXPECT_TRUE(device->world().run_all().ok());
    const Stuck stuck(device, comes, 1);
    is_stuck = true;
    EXPECT_TRUE(contains(said(zero_broadcast_params(optim, 0, nullptr)), "ZERO_ERR_TIMEOUT"));
    EXPECT_TRUE(device->given_up());
    zero_free(optim);
    zero_comm_free(comm);
  }
  ended = true;
  EXPECT_EQ(device->world().released_under_work(), 0);
  std::atomic_ref(comes).store(1);
  EXPECT_TRUE(device->world().run_all().ok());
}

/// Rank 1's device is stuck before a gate, and both ranks leave the comm.
void leave_gates(bool goes_on) {
  const Clock clock;
  std::atomic<int> living{2};
  std::atomic<bool> is_stuck{false};
  const auto time =
      Clock::run_once([&] { return is_stuck.load(); }, [&] { return goes_on ? 0 : living.load(); });
  const std::string name = unique_name();
  uint32_t comes = 0;
  const std::shared_ptr<ChaosDevice> devices[] = {chaos(1)->make_device(), chaos(2)->make_device()};
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    const CommOptions options = limits(goes_on ? 20'000 : 500);
    std::shared_ptr<Comm> seat = create_local(name, rank, 2, options, devices[rank]).value();
    std::optional<Stuck> stuck;
    if (rank == 1) stuck.emplace(devices[1], comes, 1);
    {
      Call call = seat->begin(Operation::barrier).value();
      EXPECT_TRUE(seat->gates()->pass(Gate::entered, nullptr, "the test's own").ok());
      EXPECT_TRUE(call.vote("queued", {}).ok());
    }
    is_stuck = true;
    std::thread later([&] {
      usleep(300'000);
      if (rank == 1 && goes_on) std::atomic_ref(comes).store(1);
    });
    seat = nullptr;
    --living;
    EXPECT_EQ(devices[rank]->world().lost_under_work(), 0);
    EXPECT_EQ(devices[rank]->given_up(), rank == 1 && !goes_on);
    later.join();
    return "";
  });
}

TEST(LeavingFault, the_words_of_gates_stay_until_streams_have_passed) {
  leave_gates(true);
  leave_gates(false);
}

TEST(LeavingFault,
     whichever_call_fails_while_gates_are_made_their_words_stay_until_they_are_passed) {
  int failed = 0;
  for (int64_t call = 0; call < 60; call++) {
    const std::string name = unique_name();
    const std::shared_ptr<ChaosDevice> devices[] = {chaos(1)->make_device(),
                                                    chaos(2)->make_device()};
    devices[1]->fail_once(call, Status(ZERO_ERR_SYSTEM, "the device has failed"));
    const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
      const auto seat = create_local(name, rank, 2, limits(20'000), devices[rank]);
      return seat.ok() ? "ok" : seat.failure().text();
    });
    if (contains(results[1], "the device has failed")) failed++;
    for (const auto& device : devices)
      EXPECT_EQ(device->world().lost_under_work(), 0) << call << ": " << results[1];
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace zero::test
