// SPDX-License-Identifier: Apache-2.0
#include "comm/arena.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/create.h"
#include "comm/private_arena.h"

namespace zero {
namespace {

/// An arena at any address, whose memory is never accessed.
class FakeArena : public Arena {
 public:
  FakeArena(std::shared_ptr<Comm> comm, uintptr_t start, size_t bytes)
      : Arena(std::move(comm), 1, reinterpret_cast<std::byte*>(start), bytes, ZERO_MEMORY_SHARED) {}
};

std::shared_ptr<Comm> solo() { return *create_solo({}); }

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

constexpr uintptr_t kBase = 0x10000000;

TEST(Arena, is_found_by_every_range_that_touches_it) {
  const auto comm = solo();
  const auto arena = std::make_shared<FakeArena>(comm, kBase, 100);
  claim_arena(arena);
  struct Range {
    ptrdiff_t start;
    size_t bytes;
    bool touches;
    bool whole;
  };
  for (const Range& range : {Range{0, 100, true, true},
                             {0, 1, true, true},
                             {99, 1, true, true},
                             {50, 0, true, true},
                             {100, 1, false, false},
                             {100, 0, false, false},
                             {-1, 1, false, false},
                             {-1, 2, true, false},
                             {99, 2, true, false},
                             {-10, 1000, true, false},
                             {5, SIZE_MAX, true, false}}) {
    bool whole = false;
    const auto found = find_arena(at(kBase + static_cast<uintptr_t>(range.start)), range.bytes,
                                  comm.get(), &whole);
    EXPECT_EQ(found != nullptr, range.touches) << range.start << " " << range.bytes;
    EXPECT_EQ(whole, range.whole) << range.start << " " << range.bytes;
  }
  EXPECT_TRUE(give_up_arena(at(kBase)).ok());
  EXPECT_EQ(find_arena(at(kBase), 1, comm.get(), nullptr), nullptr);
}

TEST(Arena, that_a_range_begins_in_is_found_before_those_behind_it) {
  const auto comm = solo();
  std::shared_ptr<Arena> arenas[3];
  for (uintptr_t i = 0; i < 3; i++) {
    arenas[i] = std::make_shared<FakeArena>(comm, kBase + 100 * i, 100);
    claim_arena(arenas[i]);
  }
  for (uintptr_t i = 0; i < 3; i++) {
    bool whole = true;
    EXPECT_EQ(find_arena(at(kBase + 100 * i + 99), 250, comm.get(), &whole), arenas[i]);
    EXPECT_FALSE(whole);
  }
  EXPECT_EQ(find_arena(at(kBase - 1), 250, comm.get(), nullptr), arenas[0]);
  for (uintptr_t i = 0; i < 3; i++) EXPECT_TRUE(give_up_arena(at(kBase + 100 * i)).ok());
}

TEST(Arena, is_given_up_by_its_start_alone) {
  const auto comm = solo();
  claim_arena(std::make_shared<FakeArena>(comm, kBase, 100));
  EXPECT_EQ(give_up_arena(at(kBase + 1)).code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(give_up_arena(nullptr).code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(claimed_arenas(), 1u);
  EXPECT_TRUE(give_up_arena(at(kBase)).ok());
  EXPECT_EQ(give_up_arena(at(kBase)).code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(claimed_arenas(), 0u);
}

TEST(Arena, shared_by_ranks_that_are_threads_is_found_and_given_up_by_each) {
  const auto a = solo(), b = solo(), stranger = solo();
  const auto of_a = std::make_shared<FakeArena>(a, kBase, 100);
  const auto of_b = std::make_shared<FakeArena>(b, kBase, 100);
  std::thread rank_b([&] { claim_arena(of_b); });
  rank_b.join();
  claim_arena(of_a);  // second, so that giving up the first claim would be wrong
  EXPECT_EQ(find_arena(at(kBase + 10), 5, a.get(), nullptr), of_a);
  EXPECT_EQ(find_arena(at(kBase + 10), 5, b.get(), nullptr), of_b);
  EXPECT_NE(find_arena(at(kBase + 10), 5, stranger.get(), nullptr), nullptr);
  EXPECT_TRUE(give_up_arena(at(kBase)).ok());  // this thread's own
  EXPECT_EQ(find_arena(at(kBase + 10), 5, a.get(), nullptr), of_b);
  EXPECT_TRUE(give_up_arena(at(kBase)).ok());  // that of another thread, as this one has none left
  EXPECT_EQ(claimed_arenas(), 0u);
}

TEST(Arena, goes_with_its_last_hold_and_takes_its_comm_along) {
  auto comm = solo();
  const std::weak_ptr<Comm> watched = comm;
  claim_arena(std::make_shared<FakeArena>(std::move(comm), kBase, 100));
  EXPECT_FALSE(watched.expired());
  auto held = find_arena(at(kBase), 1, nullptr, nullptr);
  EXPECT_TRUE(give_up_arena(at(kBase)).ok());
  EXPECT_FALSE(watched.expired());
  held.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(Arena, lookups_agree_with_a_search_of_all_claims) {
  std::mt19937 random(7);
  const auto comm = solo();
  std::vector<std::shared_ptr<FakeArena>> claims;
  for (int i = 0; i < 20'000; ++i) {
    const uintptr_t start = kBase + random() % 64 * 1000;
    if (random() % 8 == 0) {
      const auto same = std::find_if(claims.begin(), claims.end(),
                                     [&](const auto& arena) { return arena->data() == at(start); });
      const bool there = same != claims.end();
      if (random() % 2 == 0 && !there) {
        claims.push_back(std::make_shared<FakeArena>(comm, start, 1 + random() % 1000));
        claim_arena(claims.back());
      } else {
        EXPECT_EQ(give_up_arena(at(start)).ok(), there);
        if (there) claims.erase(same);
      }
    }
    const uintptr_t from = kBase - 500 + random() % 66'000;
    const size_t bytes = 1 + random() % 1500;
    bool touches = false, inside = false;
    for (const auto& arena : claims) {
      const auto first = reinterpret_cast<uintptr_t>(arena->data());
      touches |= first < from + bytes && from < first + arena->bytes();
      inside |= first <= from && from + bytes <= first + arena->bytes();
    }
    bool whole = false;
    EXPECT_EQ(find_arena(at(from), bytes, comm.get(), &whole) != nullptr, touches);
    EXPECT_EQ(whole, inside);
  }
  EXPECT_EQ(claimed_arenas(), claims.size());
  for (const auto& arena : claims) EXPECT_TRUE(give_up_arena(arena->data()).ok());
}

TEST(Arena, registry_may_be_used_by_many_threads) {
  std::vector<std::thread> threads;
  for (uintptr_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const auto comm = solo();
      for (uintptr_t i = 0; i < 500; ++i) {
        const uintptr_t start = kBase + t * 0x100000 + i % 7 * 1000;
        claim_arena(std::make_shared<FakeArena>(comm, start, 100));
        EXPECT_NE(find_arena(at(start + 50), 10, comm.get(), nullptr), nullptr);
        EXPECT_TRUE(give_up_arena(at(start)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(claimed_arenas(), 0u);
}

}  // namespace
}  // namespace zero
