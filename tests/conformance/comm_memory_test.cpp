// SPDX-License-Identifier: Apache-2.0
// What every comm promises about arenas and about comms that are split from it.
#include <algorithm>

#include "comm_cases.h"

namespace zero::test {
namespace {

// ---- Arenas.

/// Allocates an arena, which must succeed.
std::shared_ptr<Arena> allocate(const Seat& seat, size_t bytes, int32_t kind) {
  Result<std::shared_ptr<Arena>> arena = begin(seat, Operation::arena_alloc).allocate(bytes, kind);
  EXPECT_TRUE(arena.ok()) << arena.failure().text();
  if (!arena.ok()) std::abort();
  return std::move(arena).value();
}

TEST_P(Conformance, arenas_are_zeroed_aligned_and_numbered_alike) {
  run([&](const Seat& seat) {
    uint32_t number = 0;
    for (int32_t kind : {ZERO_MEMORY_PER_RANK, ZERO_MEMORY_SHARED}) {
      for (size_t bytes : {size_t{1}, size_t{100}, size_t{5'000'001}}) {
        const std::shared_ptr<Arena> arena = allocate(seat, bytes, kind);
        EXPECT_EQ(arena->bytes(), bytes);
        EXPECT_EQ(arena->kind(), kind);
        if (number == 0) number = arena->number() - 1;  // a comm may have its own arenas
        EXPECT_EQ(arena->number(), ++number);
        const auto numbers = begin(seat).exchange("number", number);
        EXPECT_EQ(*numbers, std::vector<uint32_t>(static_cast<size_t>(seat->world()), number));
        EXPECT_EQ(arena->comm(), seat);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 64, 0u);
        EXPECT_EQ(std::count(arena->data(), arena->data() + bytes, std::byte{0}),
                  static_cast<ptrdiff_t>(bytes));
        EXPECT_OK(barrier(seat));  // no rank has written before
        if (kind == ZERO_MEMORY_PER_RANK || seat->rank() == 0) memset(arena->data(), 0xff, bytes);
      }
    }
  });
}

TEST_P(Conformance, per_rank_arenas_belong_to_their_rank) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_PER_RANK);
    const std::vector<std::byte> mine = bytes_of_rank(seat->rank(), arena->bytes());
    memcpy(arena->data(), mine.data(), mine.size());
    EXPECT_OK(barrier(seat));
    EXPECT_EQ(memcmp(arena->data(), mine.data(), mine.size()), 0);
  });
}

TEST_P(Conformance, shared_arenas_are_one_memory_where_ranks_share_the_hosts) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_SHARED);
    const std::vector<std::byte> first = bytes_of_rank(0, arena->bytes());
    if (seat->rank() == 0) memcpy(arena->data(), first.data(), first.size());
    EXPECT_OK(barrier(seat));
    const bool same = memcmp(arena->data(), first.data(), first.size()) == 0;
    const auto own = static_cast<size_t>(seat->rank());
    const std::vector<int> hosts =
        GetParam().backend == CommKind::clustered ? hosts_of(seat->world()) : launched().hosts;
    const bool shares_host = GetParam().backend == CommKind::clustered || launched().several_hosts()
                                 ? hosts[own] == 0
                                 : seat->direct() && seat->device() == nullptr;
    EXPECT_EQ(same, seat->rank() == 0 || shares_host);
  });
}

TEST_P(Conformance, memory_of_another_rank_is_found_by_its_location) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_PER_RANK);
    claim_arena(arena);
    const size_t offset = 64 * static_cast<size_t>(seat->rank() + 1);
    const std::vector<std::byte> mine = bytes_of_rank(seat->rank(), 1000);
    memcpy(arena->data() + offset, mine.data(), mine.size());
    const Location location = seat->locate(arena->data() + offset, mine.size());
    Call call = begin(seat);
    const Result<std::vector<Location>> all = call.exchange("locations", location);
    ASSERT_TRUE(all.ok());
    if (seat->direct()) {
      EXPECT_NE(location.arena, 0u);
      EXPECT_EQ(seat->arena(location), arena);
      for (int32_t r = 0; r < seat->world(); ++r) {
        const Result<std::byte*> there = seat->resolve(r, (*all)[static_cast<size_t>(r)], 1000);
        ASSERT_TRUE(there.ok()) << there.failure().text();
        EXPECT_EQ(memcmp(*there, bytes_of_rank(r, 1000).data(), 1000), 0) << r;
      }
    } else {
      // It can only identify its own memory, and no rank can reach another's with it.
      EXPECT_FALSE(seat->resolve(0, location, 1).ok());
      EXPECT_EQ(seat->arena(location), location.arena == 0 ? nullptr : arena);
    }
    EXPECT_OK(call.vote("read", {}));
    EXPECT_OK(give_up_arena(arena->data()));
  });
}

TEST_P(Conformance, locations_outside_an_arena_are_refused) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 1000, ZERO_MEMORY_PER_RANK);
    claim_arena(arena);
    const Location start = seat->locate(arena->data(), 1000);
    EXPECT_FALSE(seat->resolve(-1, start, 1).ok());
    EXPECT_FALSE(seat->resolve(seat->world(), start, 1).ok());
    EXPECT_FALSE(seat->resolve(0, Location{}, 1).ok());
    EXPECT_FALSE(seat->resolve(0, {start.arena, 0, UINT64_MAX - 5}, 100).ok());
    if (seat->world() > 1) {  // for one rank, every address is its own
      int on_the_stack = 0;
      EXPECT_EQ(seat->locate(&on_the_stack, sizeof on_the_stack), Location());
      EXPECT_EQ(seat->locate(arena->data() + 990, 100'000'000), Location());
      EXPECT_FALSE(seat->resolve(0, {start.arena, 0, 100'000'000}, 1).ok());
      EXPECT_FALSE(seat->resolve(0, {start.arena + 1, 0, 0}, 1).ok());
      EXPECT_FALSE(seat->resolve(0, {start.arena, 0, 10}, SIZE_MAX - 5).ok());
    }
    EXPECT_OK(barrier(seat));
    EXPECT_OK(give_up_arena(arena->data()));
  });
}

TEST_P(Conformance, an_arena_keeps_its_comm) {
  run([&](const Seat& seat) {
    std::shared_ptr<Arena> arena = allocate(seat, 100, ZERO_MEMORY_PER_RANK);
    EXPECT_GE(seat.use_count(), 2);
    arena->data()[99] = std::byte{1};
  });
}

TEST_P(Conformance, ranks_that_ask_for_different_arenas_are_told) {
  const std::vector<std::string> results = run_all([&](const Seat& seat) {
    const bool odd = seat->rank() == seat->world() - 1;
    auto arena = begin(seat, Operation::arena_alloc).allocate(odd ? 200 : 100, ZERO_MEMORY_SHARED);
    expect_usable(seat);
    return arena.ok() ? "" : arena.failure().text();
  });
  if (world() == 1) return;
  for (const std::string& result : results)
    EXPECT_EQ(result, text("zero_arena_alloc: rank ", world() - 1,
                           " asked for 200 bytes of ZERO_MEMORY_SHARED, rank 0 asked "
                           "for 100 bytes of ZERO_MEMORY_SHARED"));
}

TEST_P(Conformance, arenas_of_no_bytes_or_kind_are_refused) {
  run([&](const Seat& seat) {
    EXPECT_EQ(begin(seat).allocate(0, ZERO_MEMORY_SHARED).failure().code(), ZERO_ERR_ARGUMENT);
    EXPECT_EQ(begin(seat).allocate(100, 3).failure().code(), ZERO_ERR_ARGUMENT);
    expect_usable(seat);
  });
}

TEST_P(Conformance, an_arena_that_cannot_be_had_leaves_the_comm_usable) {
  run([&](const Seat& seat) {
    EXPECT_FALSE(begin(seat).allocate(size_t{1} << 60, ZERO_MEMORY_PER_RANK).ok());
    EXPECT_FALSE(begin(seat).allocate(SIZE_MAX, ZERO_MEMORY_SHARED).ok());
    allocate(seat, 100, ZERO_MEMORY_SHARED);
  });
}

// ---- Split.

Seat split(const Seat& seat, int32_t color, int32_t key) {
  Result<Seat> child = begin(seat, Operation::split).split(color, key);
  EXPECT_TRUE(child.ok()) << child.failure().text();
  return child.ok() ? *child : nullptr;
}

TEST_P(Conformance, split_makes_a_group_of_each_color) {
  run([&](const Seat& seat) {
    const Seat child = split(seat, seat->rank() % 2, 0);
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(child->world(), (seat->world() + 1 - seat->rank() % 2) / 2);
    EXPECT_EQ(child->rank(), seat->rank() / 2);
    const Result<std::vector<int32_t>> members = begin(child).exchange("members", seat->rank());
    ASSERT_TRUE(members.ok());
    for (int32_t r = 0; r < child->world(); ++r)
      EXPECT_EQ((*members)[static_cast<size_t>(r)], 2 * r + seat->rank() % 2);
    expect_usable(seat);
    expect_usable(child);
  });
}

TEST_P(Conformance, keys_order_the_ranks_of_a_split) {
  run([&](const Seat& seat) {
    const Seat reversed = split(seat, 7, -seat->rank());
    ASSERT_NE(reversed, nullptr);
    EXPECT_EQ(reversed->rank(), seat->world() - 1 - seat->rank());
    const Seat pairs = split(seat, 0, seat->rank() / 2 == 0 ? 5 : 1);  // equal keys: by rank
    ASSERT_NE(pairs, nullptr);
    const int32_t late = std::min(seat->world(), 2);
    EXPECT_EQ(pairs->rank(),
              seat->rank() < 2 ? seat->world() - late + seat->rank() : seat->rank() - 2);
    expect_usable(reversed);
    expect_usable(pairs);
  });
}

TEST_P(Conformance, a_negative_color_takes_no_seat) {
  run([&](const Seat& seat) {
    const Seat child = split(seat, seat->rank() == 0 ? -1 : 3, 0);
    EXPECT_EQ(child == nullptr, seat->rank() == 0);
    if (child) {
      EXPECT_EQ(child->world(), seat->world() - 1);
      EXPECT_EQ(child->rank(), seat->rank() - 1);
      expect_usable(child);
    }
    EXPECT_EQ(split(seat, -5, 0), nullptr);
    expect_usable(seat);
  });
}

TEST_P(Conformance, children_split_again_and_outlive_their_parents) {
  const Meeting meeting(GetParam().backend, world());
  run_sound_ranks(GetParam().ranks, world(), [&](int rank) {
    CommOptions options;
    options.timeout_ms = 77'000;
    Seat seat = join(meeting, rank, 0, options);
    if (!seat) return "";
    Seat child = split(seat, seat->rank() < 3 ? 0 : 1, 0);
    Seat grandchild = child ? split(child, 0, -child->rank()) : nullptr;
    seat.reset();
    child.reset();
    EXPECT_NE(grandchild, nullptr);
    if (!grandchild) return "";
    EXPECT_EQ(grandchild->options().timeout_ms, 77'000);
    expect_usable(grandchild);
    allocate(grandchild, 100, ZERO_MEMORY_PER_RANK);
    return "";
  });
  EXPECT_EQ(meeting.seats_left(), 0);
}

}  // namespace
}  // namespace zero::test
