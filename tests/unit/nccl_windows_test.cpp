// SPDX-License-Identifier: Apache-2.0
// Arenas that NCCL maps on all ranks for the nccl comm, and the configuration of its communicators.
#include "nccl_seat.h"

namespace zero::test {
namespace {

Status map(const Seat& seat, Use use, const Arena& arena) {
  return seat->queued()->map_arena(use, {arena.number(), 0, 0});
}

TEST(NcclWindows, arenas_are_windows_until_they_are_given_up) {
  const NcclRanks ranks(2);
  run(ranks, 2, [&](const Seat& seat, int rank) {
    std::shared_ptr<Arena> first = allocate(seat, 64), second = allocate(seat, 64);
    EXPECT_EQ(seat->queued()->mappable(second->data() + 8), (Location{2, 0, 8}));
    EXPECT_EQ(seat->queued()->mappable(&rank), Location{});
    EXPECT_EQ(seat->queued()->mappable(nullptr), Location{});
    EXPECT_FALSE(seat->queued()->was_mapped(1));
    expect_ok(map(seat, Use::reduce, *first));
    expect_ok(map(seat, Use::gather, *second));
    EXPECT_TRUE(seat->queued()->was_mapped(1));
    Queue queue(*seat->device());
    auto* const floats = reinterpret_cast<float*>(first->data());
    expect_ok(seat->queued()->reduce_scatter({}, floats, floats + rank, 1, queue.stream()));
    expect_ok(
        seat->queued()->all_gather(second->data() + 32 * rank, second->data(), 32, queue.stream()));
    expect_ok(queue.wait());
    for (const auto& one : {first, second}) EXPECT_TRUE(give_up_arena(one->data()).ok());
    expect_ok(seat->begin(Operation::barrier)->vote("looked", Status()));
    EXPECT_EQ(ranks.knobs().windows, 4);
    expect_ok(seat->begin(Operation::barrier)->vote("looked", Status()));
    first = second = nullptr;
    expect_ok(seat->begin(Operation::barrier)->vote("given up", Status()));
    EXPECT_EQ(ranks.knobs().windows, 0);
  });
  EXPECT_EQ(ranks.knobs().reduced_in_windows, 2);
  EXPECT_EQ(ranks.knobs().gathered_by_engines, 2);
  EXPECT_EQ(ranks.knobs().gathered_in_windows, 0);
}

void expect_unmappable(const Seat& seat, int) {
  const std::shared_ptr<Arena> arena = allocate(seat, 64);
  EXPECT_EQ(seat->queued()->mappable(arena->data()), Location{});
  EXPECT_TRUE(give_up_arena(arena->data()).ok());
}

TEST(NcclWindows, an_older_nccl_gets_neither_windows_nor_a_policy_that_it_does_not_know) {
  run(NcclRanks(2, 2), 2, expect_unmappable);
}

TEST(NcclWindows, memory_that_is_not_to_be_had_for_windows_is_not_mappable) {
  const NcclRanks ranks(1);
  run(ranks, 1, [&](const Seat& seat, int rank) {
    ranks.device(0)->fail_once(0, Status(ZERO_ERR_SYSTEM, "no descriptors here"));
    expect_unmappable(seat, rank);
  });
}

TEST(NcclWindows, where_nccl_has_no_windows_an_arena_stays_as_it_is) {
  const NcclRanks ranks(2);
  ranks.knobs().has_windows = false;
  run(ranks, 2, [&](const Seat& seat, int) {
    const std::shared_ptr<Arena> arena = allocate(seat, 64);
    expect_ok(map(seat, Use::gather, *arena));
    EXPECT_TRUE(seat->queued()->was_mapped(1));
    EXPECT_EQ(ranks.knobs().windows, 0);
    EXPECT_TRUE(give_up_arena(arena->data()).ok());
  });
}

TEST(NcclWindows, an_arena_that_nccl_keeps_is_never_given_to_anybody_else) {
  NcclRanks ranks(1);
  ranks.leaves_some();
  ranks.knobs().keeps_windows = true;
  run(ranks, 1, [&](const Seat& seat, int) {
    std::shared_ptr<Arena> arena = allocate(seat, 64);
    const std::byte* const data = arena->data();
    expect_ok(map(seat, Use::gather, *arena));
    EXPECT_TRUE(give_up_arena(data).ok());
    arena = nullptr;
    EXPECT_TRUE(seat->device()->check(data, 64, "an arena").ok());
    EXPECT_EQ(ranks.knobs().windows, 1);
    ranks.knobs().keeps_windows = false;
  });
}

TEST(NcclWindows, a_window_that_fails_on_one_rank_breaks_the_comm_on_all) {
  const NcclRanks ranks(2);
  CommOptions options;
  options.timeout_ms = 2'000;
  const auto expect_broken = [&](const Seat& seat, int rank) {
    const std::shared_ptr<Arena> arena = allocate(seat, 64);
    if (rank == 0) {
      ranks.knobs().rank = 0;
      ranks.knobs().calls = 0;
      ranks.knobs().failing_call = 0;
    }
    expect_ok(seat->begin(Operation::barrier)->vote("armed", Status()));
    const Status mapped = map(seat, Use::reduce, *arena);
    EXPECT_FALSE(mapped.ok());
    EXPECT_TRUE(seat->aborted());
    EXPECT_NE(mapped.text().find("ncclCommWindowRegister"), std::string::npos) << mapped.text();
    EXPECT_TRUE(give_up_arena(arena->data()).ok());
  };
  run(ranks, 2, expect_broken, options);
}

TEST(NcclWindows, an_arena_that_is_gone_on_one_rank_breaks_the_comm_on_all) {
  const NcclRanks ranks(2);
  run(ranks, 2, [&](const Seat& seat, int rank) {
    std::shared_ptr<Arena> arena = allocate(seat, 64);
    EXPECT_TRUE(give_up_arena(arena->data()).ok());
    if (rank == 1) arena = nullptr;
    const Status mapped = seat->queued()->map_arena(Use::gather, {1, 0, 0});
    EXPECT_EQ(mapped.code(), ZERO_ERR_INTERNAL);
    EXPECT_EQ(mapped.text(), "rank 1: arena 1 was freed while in use");
    EXPECT_TRUE(seat->aborted());
  });
}

TEST(NcclWindows, communicators_work_as_the_options_say_on_all_ranks) {
  const NcclRanks ranks(2);
  CommOptions options;
  options.reduce_ctas = 7;
  options.gathers_on_kernels = true;
  const auto gather = [](const Seat& seat, int rank) {
    const std::shared_ptr<Arena> arena = allocate(seat, 64);
    expect_ok(map(seat, Use::gather, *arena));
    Queue queue(*seat->device());
    expect_ok(
        seat->queued()->all_gather(arena->data() + 32 * rank, arena->data(), 32, queue.stream()));
    expect_ok(queue.wait());
    EXPECT_TRUE(give_up_arena(arena->data()).ok());
  };
  run(ranks, 2, gather, options);
  EXPECT_EQ(ranks.knobs().reduce_ctas, 7);
  EXPECT_EQ(ranks.knobs().gathered_in_windows, 2);
  EXPECT_EQ(ranks.knobs().gathered_by_engines, 0);
}

TEST(NcclWindows, options_of_nccl_that_differ_between_ranks_are_refused) {
  const NcclRanks ranks(2);
  run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    CommOptions options;
    options.gathers_on_kernels = rank == 1;
    expect_failure(ranks.join(rank, options), ZERO_ERR_MISMATCH,
                   "rank 1 has reduce_ctas 16, gather_on_kernels 1, rank 0 has reduce_ctas 16, "
                   "gather_on_kernels 0");
    return "";
  });
}

}  // namespace
}  // namespace zero::test
