// SPDX-License-Identifier: Apache-2.0
// How the nccl comm uses NCCL: what it queues, what it requests, and how it ends.
// conformance/device_travel_test.cpp and equivalence_test.cpp test that its data arrives.
#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"
#include "nccl_seat.h"
#include "support/halves.h"

namespace zero::test {
namespace {

// ---- Queued work.

TEST(NcclComm, it_has_a_device_and_queues_what_travels) {
  const NcclRanks ranks(2);
  run(ranks, 2, [&](const Seat& seat, int rank) {
    EXPECT_STREQ(seat->kind(), "nccl");
    EXPECT_EQ(seat->device(), ranks.device(rank));
    EXPECT_NE(seat->queued(), nullptr);
    EXPECT_FALSE(seat->direct());
    EXPECT_EQ(seat->locate(&rank, sizeof rank), Location{});
  });
}

TEST(NcclComm, arenas_have_the_same_number_on_every_rank_and_are_found_by_what_lies_in_them) {
  const NcclRanks ranks(2);
  run(ranks, 2, [&](const Seat& seat, int) {
    const std::shared_ptr<Arena> first = allocate(seat, 100), second = allocate(seat, 200);
    EXPECT_EQ(seat->locate(first->data(), 100), (Location{1, 0, 0}));
    EXPECT_EQ(seat->locate(second->data() + 10, 190), (Location{2, 0, 10}));
    EXPECT_EQ(seat->locate(second->data() + 10, 191), Location{});
    EXPECT_EQ(seat->arena({2, 0, 10}), second);
    EXPECT_EQ(seat->arena({3, 0, 0}), nullptr);
    EXPECT_EQ(seat->arena({}), nullptr);
    for (const auto& one : {first, second}) EXPECT_TRUE(give_up_arena(one->data()).ok());
    EXPECT_EQ(seat->locate(first->data(), 100), Location{});
  });
}

TEST(NcclComm, where_memory_cannot_be_shared_arenas_are_plain_memory_of_the_device) {
  const NcclRanks ranks(2);
  run(ranks, 2, [&](const Seat& seat, int rank) {
    if (rank == 1) ranks.device(1)->fail_once(0, Status(ZERO_ERR_SYSTEM, "no descriptors here"));
    const std::shared_ptr<Arena> arena = allocate(seat, 100);
    EXPECT_EQ(static_cast<const PrivateArena&>(*arena).shareable(), rank == 0);
    Queue queue(*seat->device());
    EXPECT_EQ(queue.get(arena->data(), 100), std::vector<std::byte>(100));
    EXPECT_TRUE(give_up_arena(arena->data()).ok());
  });
}

/// Uses integers, which any order sums exactly. `of` converts a number to the type, `value` returns
/// its value.
template <class T, class Of, class Value>
void expect_sums(DType dtype, const Of& of, const Value& value) {
  constexpr size_t kWorld = 3, kCount = 1000;
  const NcclRanks ranks(kWorld, 7);
  const auto number = [](size_t i, size_t rank) {
    return static_cast<float>((i * 7 + rank * 3) % 40);
  };
  run(ranks, kWorld, [&](const Seat& seat, int rank) {
    const auto own = static_cast<size_t>(rank), first = own * kCount;
    Queue queue(*seat->device());
    std::vector<T> send;
    for (size_t i = 0; i < kWorld * kCount; ++i) send.push_back(of(number(i, own)));
    T* const data = queue.put(send);
    expect_ok(
        seat->queued()->reduce_scatter({dtype, dtype}, data, data + first, kCount, queue.stream()));
    const std::vector<T> sums = queue.get(data + first, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const float expected = number(first + i, 0) + number(first + i, 1) + number(first + i, 2);
      ASSERT_EQ(value(sums[i]), expected) << i;
    }
  });
}

TEST(NcclComm, reduce_scatter_sums_every_floating_type_in_place) {
  const auto same = [](auto number) { return number; };
  expect_sums<float>(DType::f32, same, same);
  expect_sums<double>(DType::f64, same, same);
  const auto expect_halves = [](DType dtype, const HalfFormat& format) {
    std::vector<uint16_t> halves;
    for (int i = 0; i < 40; ++i)
      halves.push_back(format.nearest(static_cast<float>(i), HalfFormat::Ties::to_even));
    expect_sums<uint16_t>(
        dtype, [&](float number) { return halves[static_cast<size_t>(number)]; },
        [&](uint16_t bits) { return format.value(bits); });
  };
  expect_halves(DType::f16, kF16);
  expect_halves(DType::bf16, kBf16);
}

TEST(NcclComm, reduce_scatter_of_integers_is_refused) {
  const NcclRanks ranks(1);
  run(ranks, 1, [&](const Seat& seat, int) {
    EXPECT_EQ(seat->queued()
                  ->reduce_scatter({DType::i64, DType::i64}, nullptr, nullptr, 1, nullptr)
                  .code(),
              ZERO_ERR_INTERNAL);
    EXPECT_FALSE(seat->aborted());
  });
}

TEST(NcclComm, a_group_in_which_a_call_fails_breaks_the_comm) {
  const NcclRanks ranks(1);
  run(ranks, 1, [&](const Seat& seat, int) {
    Queue queue(*seat->device());
    int* const data = queue.put(std::vector<int>(100, 1));
    const std::vector<Sent> all = {{data, 4, 0}, {data + 1, 4, 0}, {data + 2, 4, 0}};
    ranks.knobs().calls = 0;
    ranks.knobs().failing_call = 1;
    EXPECT_EQ(seat->queued()->broadcast(all, queue.stream()).code(), ZERO_ERR_COMM);
    EXPECT_TRUE(seat->aborted());
    EXPECT_EQ(ranks.library().group_end(), nccl::kInvalidUsage) << "no group is left open";
  });
}

TEST(NcclComm, reductions_and_gathers_do_not_wait_for_each_other) {
  const NcclRanks ranks(2, 11);
  run(ranks, 2, [&](const Seat& seat, int rank) {
    Queue reductions(*seat->device()), gathers(*seat->device());
    float* const sums = reductions.put(std::vector<float>{1, 2});
    int* const all = gathers.put(std::vector<int>{rank + 1, rank + 1});
    // The ranks queue in the same order on each communicator, but the streams run in any order.
    expect_ok(seat->queued()->reduce_scatter({}, sums, sums + rank, 1, reductions.stream()));
    expect_ok(seat->queued()->all_gather(all + rank, all, sizeof(int), gathers.stream()));
    EXPECT_EQ(gathers.get(all, 2), (std::vector<int>{1, 2}));
    EXPECT_EQ(reductions.get(sums + rank, 1), (std::vector<float>{rank == 0 ? 2.f : 4.f}));
  });
}

TEST(NcclComm, host_memory_does_not_travel_by_its_data_plane) {
  const NcclRanks ranks(1);
  run(ranks, 1, [&](const Seat& seat, int) {
    Result<Call> call = seat->begin(Operation::step);
    ASSERT_TRUE(call.ok());
    float value = 1;
    EXPECT_EQ(seat->all_gather(*call, &value, &value, sizeof value).code(), ZERO_ERR_INTERNAL);
    EXPECT_EQ(seat->reduce_scatter(*call, {}, nullptr).code(), ZERO_ERR_INTERNAL);
  });
}

TEST(NcclComm, more_ranks_than_one_rank_keeps_connections_to_meet_and_agree) {
  constexpr int32_t kWorld = 40;
  const NcclRanks ranks(kWorld);
  run(ranks, kWorld, [&](const Seat& seat, int rank) {
    Result<Call> call = seat->begin(Operation::step);
    ASSERT_TRUE(call.ok());
    const Result<std::vector<int>> all = call->exchange("numbers", rank * rank);
    ASSERT_TRUE(all.ok()) << all.failure().text();
    for (int r = 0; r < kWorld; ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], r * r);
    const Status voted =
        call->vote("lots", rank == 33 ? Status(ZERO_ERR_MEMORY, "none left") : Status());
    EXPECT_EQ(voted.code(), rank == 33 ? ZERO_ERR_MEMORY : ZERO_ERR_PEER);
    EXPECT_TRUE(contains(voted.text(), rank == 33 ? "none left" : "rank 33 in zero_step"));
  });
}

// ---- Ends.

TEST(NcclComm, a_sound_comm_is_destroyed_and_a_broken_one_aborted) {
  const NcclRanks ranks(2);
  run(ranks, 2, [](const Seat&, int) {});
  EXPECT_EQ(ranks.knobs().destroyed, 4);
  EXPECT_EQ(ranks.knobs().aborted, 0);
  const auto abort_it = [](const Seat& seat, int) { abort(*seat); };
  run(ranks, 2, abort_it, {}, 1);
  EXPECT_EQ(ranks.knobs().destroyed, 4);
  EXPECT_EQ(ranks.knobs().aborted, 4);
}

TEST(NcclComm, one_that_cannot_be_finalized_is_aborted) {
  const NcclRanks ranks(1);
  ranks.knobs().finalize_fails = true;
  run(ranks, 1, [](const Seat&, int) {});
  EXPECT_EQ(ranks.knobs().aborted, 2);
}

// ---- Children, and an engine's communicator.

TEST(NcclComm, children_have_channels_of_their_own) {
  const NcclRanks ranks(4, 2);
  run(ranks, 4, [&](const Seat& seat, int rank) {
    Result<Call> call = seat->begin(Operation::split);
    ASSERT_TRUE(call.ok());
    // Rank 3 takes no seat, rank 2 is alone, and ranks 1 and 0 are in this order.
    const int32_t color = rank == 3 ? -1 : rank == 2 ? 5 : 1;
    Result<Seat> child = call->split(color, -rank);
    ASSERT_TRUE(child.ok()) << child.failure().text();
    if (rank == 3) {
      EXPECT_EQ(*child, nullptr);
      return;
    }
    ASSERT_NE(*child, nullptr);
    EXPECT_EQ((*child)->world(), rank == 2 ? 1 : 2);
    EXPECT_EQ((*child)->rank(), rank == 0 ? 1 : 0);
    Queue queue(*seat->device());
    std::vector<int> all(static_cast<size_t>((*child)->world()), rank);
    int* const data = queue.put(all);
    expect_ok(
        (*child)->queued()->all_gather(data + (*child)->rank(), data, sizeof(int), queue.stream()));
    EXPECT_EQ(queue.get(data, all.size()),
              rank == 2 ? std::vector<int>{2} : (std::vector<int>{1, 0}));
  });
}

/// Wraps engines' communicators, aborts the comm, and checks that they are unchanged.
void expect_wrapped_and_left(const NcclRanks& ranks, bool blocking) {
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    const nccl::Handle engines = ranks.engines(rank, blocking);
    {
      const Seat seat = made(wrap_nccl(ranks.device(rank), engines, {}));
      if (seat == nullptr) return "";
      EXPECT_EQ(seat->rank(), rank);
      EXPECT_EQ(seat->world(), 3);
      abort(*seat);
    }
    expect_ok(nccl::Channel(ranks.library(), ranks.device(rank), engines).error());
    ranks.end_engines(rank, engines, true);
    return "";
  });
}

TEST(NcclComm, a_wrapped_communicator_stays_the_engines) {
  const NcclRanks ranks(3);
  expect_wrapped_and_left(ranks, false);
}

TEST(NcclComm, a_blocking_communicator_is_wrapped_as_well) {
  const NcclRanks ranks(3);
  ranks.knobs().allows_blocking = true;
  expect_wrapped_and_left(ranks, true);
  EXPECT_EQ(ranks.knobs().blocked, 0);
}

TEST(NcclComm, a_rank_outside_the_world_is_refused) {
  const NcclRanks ranks(2);
  for (const auto& [rank, world] : {std::pair{2, 2}, {-1, 2}, {0, 0}}) {
    expect_failure(create_nccl(ranks.device(0), ranks.id(), rank, world, {}), ZERO_ERR_ARGUMENT,
                   text("rank ", rank, " does not exist in a world of ", world));
  }
}

TEST(NcclComm, an_nccl_that_is_told_to_block_is_refused) {
  const NcclRanks ranks(1);
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  const Status refused = ranks.join(0).failure();
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  expect_failure(
      refused, ZERO_ERR_UNSUPPORTED,
      "NCCL_COMM_BLOCKING=1 makes NCCL wait for other ranks without a deadline: unset it");
  EXPECT_TRUE(ranks.join(0).ok());
  unsetenv("NCCL_COMM_BLOCKING");
}

TEST(NcclComm, ids_differ) {
  const NcclRanks ranks(1);
  const Result<NcclId> one = nccl_unique_id(), other = nccl_unique_id();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(*one, *other);
}

}  // namespace
}  // namespace zero::test
