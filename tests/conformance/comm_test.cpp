// SPDX-License-Identifier: Apache-2.0
// What every comm promises, asked of every comm: solo, local and user, with ranks as threads and as
// processes. A new backend joins by one line in `join` and one in the list of cases at the end.
#include "comm/comm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/text.h"
#include "comm/create.h"
#include "support/ranks.h"
#include "support/user_comm.h"
#include "zero.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace zero::test {
namespace {

enum class Backend { solo, local, user, user_sums };

struct Case {
  Backend backend;
  RankKind ranks;
  int32_t world;
};

std::string name_of(const Case& c) {
  const char* const backends[] = {"solo", "local", "user", "user_sums"};
  return text(backends[static_cast<int>(c.backend)],
              c.ranks == RankKind::threads ? "_threads_" : "_processes_", c.world);
}

// So that a failing case says which it is.
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

using Seat = std::shared_ptr<Comm>;

/// What the ranks of a case need before they start.
class Meeting {
 public:
  explicit Meeting(const Case& c)
      : case_(c), name_(text("conformance-", getpid(), "-", ++meetings)) {
    if (c.backend == Backend::user || c.backend == Backend::user_sums)
      engine_ = std::make_unique<Engine>(c.world);
  }

  /// The seat of `rank` in group `number`: groups with other numbers are other comms of the same
  /// ranks.
  Seat join(int32_t rank, int number = 0, const CommOptions& options = {}) {
    Result<Seat> seat = make(rank, number, options);
    if (!seat.ok()) ADD_FAILURE() << "rank " << rank << ": " << seat.failure().text();
    return seat.ok() ? *seat : nullptr;
  }

  void expect_nothing_left() const {
    if (engine_) {
      EXPECT_EQ(engine_->seats(), 0);
    }
  }

 private:
  Result<Seat> make(int32_t rank, int number, const CommOptions& options) {
    switch (case_.backend) {
      case Backend::solo:
        return create_solo(options);
      case Backend::local:
        return make_local(rank, number, options);
      case Backend::user:
        return create_user(Engine::functions(), engine_->seat(rank), rank, case_.world, options);
      case Backend::user_sums:
        return create_user(Engine::functions(true), engine_->seat(rank), rank, case_.world,
                           options);
    }
    return Status(ZERO_ERR_INTERNAL, "no such backend");
  }

  Result<Seat> make_local(int32_t rank, int number, const CommOptions& options) {
#ifdef ZERO_TEST_WITHOUT_LOCAL
    (void)rank, (void)number, (void)options;
    return Status(ZERO_ERR_UNSUPPORTED, "built without the local comm");
#else
    return create_local(text(name_, "-", number), rank, case_.world, options);
#endif
  }

  static inline int meetings = 0;
  const Case case_;
  const std::string name_;
  std::unique_ptr<Engine> engine_;
};

class Conformance : public testing::TestWithParam<Case> {
 protected:
  int32_t world() const { return GetParam().world; }

  /// Run `body` on every rank of one comm; its results by rank.
  std::vector<std::string> run_all(const std::function<std::string(const Seat& seat)>& body) {
    Meeting meeting(GetParam());
    std::vector<std::string> results =
        run_sound_ranks(GetParam().ranks, world(), [&](int rank) -> std::string {
          const Seat seat = meeting.join(rank);
          return seat ? body(seat) : "";
        });
    meeting.expect_nothing_left();
    return results;
  }

  void run(const std::function<void(const Seat& seat)>& body) {
    run_all([&](const Seat& seat) {
      body(seat);
      return "";
    });
  }
};

#define EXPECT_OK(expression)                                      \
  do {                                                             \
    const Status expect_ok_status = (expression);                  \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status.text(); \
  } while (false)

/// A call that must begin.
Call begin(const Seat& seat, Operation operation = Operation::barrier, uint32_t object = 0) {
  Result<Call> call = seat->begin(operation, object);
  EXPECT_TRUE(call.ok()) << call.failure().text();
  if (!call.ok()) std::abort();
  return std::move(call).value();
}

/// Bytes that tell their rank and place, made eight at a time.
std::vector<std::byte> bytes_of_rank(int32_t rank, size_t bytes) {
  std::vector<uint64_t> words(bytes / 8 + 1);
  uint64_t word = static_cast<uint64_t>(rank) + 1;
  for (uint64_t& out : words) out = word = word * 6364136223846793005u + 1442695040888963407u;
  std::vector<std::byte> out(bytes);
  if (bytes != 0) memcpy(out.data(), words.data(), bytes);
  return out;
}

std::vector<std::byte> bytes_of_all(int32_t world, size_t bytes) {
  std::vector<std::byte> out;
  for (int32_t r = 0; r < world; ++r) {
    const std::vector<std::byte> one = bytes_of_rank(r, bytes);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

std::string outcome(Code code, std::string_view sentence) { return text(code, " ", sentence); }
std::string outcome_of(const Status& status) { return outcome(status.code(), status.text()); }

/// Everything works as if nothing had happened.
void expect_usable(const Seat& seat) {
  Call call = begin(seat);
  const Result<std::vector<int32_t>> all = call.exchange("usable", seat->rank());
  ASSERT_TRUE(all.ok()) << all.failure().text();
  for (int32_t r = 0; r < seat->world(); ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], r);
}

Status barrier(const Seat& seat, Operation operation = Operation::barrier, uint32_t object = 0) {
  Call call = ZERO_TRY(seat->begin(operation, object));
  return call.vote("barrier", {});
}

// ---- Exchanges.

TEST_P(Conformance, a_seat_knows_its_rank_and_world) {
  const std::vector<std::string> ranks =
      run_all([](const Seat& seat) { return text(seat->rank(), " of ", seat->world()); });
  for (int32_t r = 0; r < world(); ++r)
    EXPECT_EQ(ranks[static_cast<size_t>(r)], text(r, " of ", world()));
}

TEST_P(Conformance, exchange_gives_every_ranks_bytes_in_rank_order) {
  run([&](const Seat& seat) {
    for (size_t bytes :
         {0, 1, 7, 64, 900, 927, 928, 929, 1023, 1024, 1025, 16384, 17312, 17313, 100'000}) {
      Call call = begin(seat);
      std::vector<std::byte> all(bytes * static_cast<size_t>(seat->world()));
      EXPECT_OK(call.exchange("bytes", bytes_of_rank(seat->rank(), bytes), all));
      EXPECT_TRUE(all == bytes_of_all(seat->world(), bytes)) << bytes;
      EXPECT_OK(call.exchange("again", bytes_of_rank(seat->rank(), bytes), all));
    }
  });
}

TEST_P(Conformance, many_small_exchanges_keep_their_order) {
  run([&](const Seat& seat) {
    for (int i = 0; i < 300; ++i) {
      Call call = begin(seat, Operation::step, 1);
      const Result<std::vector<int64_t>> all =
          call.exchange("number", int64_t{i * 100 + seat->rank()});
      ASSERT_TRUE(all.ok());
      for (int32_t r = 0; r < seat->world(); ++r)
        ASSERT_EQ((*all)[static_cast<size_t>(r)], i * 100 + r);
    }
  });
}

TEST_P(Conformance, gather_takes_strings_of_any_size) {
  const auto text_of = [](int32_t rank, size_t bytes) {
    std::string out(bytes, ' ');
    for (size_t i = 0; i < bytes; ++i)
      out[i] = static_cast<char>('a' + (i * 7 + i / 300 + static_cast<size_t>(rank)) % 26);
    return out;
  };
  run([&](const Seat& seat) {
    const size_t base[] = {0, 3, 928, 929, 5000, 1'300'001};
    for (size_t bytes : base) {
      const auto size_of = [&](int32_t rank) {
        return rank % 2 == 0 ? bytes : bytes / 3 + static_cast<size_t>(rank);
      };
      Call call = begin(seat);
      auto all = call.gather("texts", text_of(seat->rank(), size_of(seat->rank())));
      ASSERT_TRUE(all.ok()) << all.failure().text();
      ASSERT_EQ(all->size(), static_cast<size_t>(seat->world()));
      for (int32_t r = 0; r < seat->world(); ++r)
        EXPECT_TRUE((*all)[static_cast<size_t>(r)] == text_of(r, size_of(r)))
            << bytes << " from rank " << r;
    }
  });
}

TEST_P(Conformance, broadcast_copies_from_every_root) {
  run([&](const Seat& seat) {
    for (int32_t root = 0; root < seat->world(); ++root) {
      const size_t large = root == seat->world() - 1 ? (3u << 20) + 1 : 100'001;
      for (size_t bytes : {size_t{0}, size_t{5}, size_t{928}, size_t{929}, large}) {
        Call call = begin(seat);
        std::vector<std::byte> data = bytes_of_rank(seat->rank(), bytes);
        EXPECT_OK(call.broadcast("data", data, root));
        EXPECT_TRUE(data == bytes_of_rank(root, bytes)) << bytes << " from rank " << root;
      }
    }
  });
}

TEST_P(Conformance, broadcast_from_a_root_outside_the_comm_is_refused) {
  run([&](const Seat& seat) {
    std::vector<std::byte> data(4);
    for (int32_t root : {-1, seat->world()})
      EXPECT_EQ(begin(seat).broadcast("data", data, root).code(), ZERO_ERR_ARGUMENT);
    expect_usable(seat);
  });
}

TEST_P(Conformance, a_call_that_ends_before_it_exchanged_anything_did_not_happen) {
  run([&](const Seat& seat) {
    if (seat->rank() == 0) (void)begin(seat, Operation::save);
    expect_usable(seat);
  });
}

// ---- Votes and agreement.

TEST_P(Conformance, a_vote_without_failures_brings_the_payloads) {
  run([&](const Seat& seat) {
    for (size_t bytes : {0, 8, 928, 929, 20'000}) {
      Call call = begin(seat);
      std::vector<std::byte> all(bytes * static_cast<size_t>(seat->world()));
      EXPECT_OK(call.vote("vote", {}, bytes_of_rank(seat->rank(), bytes), all));
      EXPECT_TRUE(all == bytes_of_all(seat->world(), bytes)) << bytes;
    }
  });
}

TEST_P(Conformance, a_vote_tells_every_rank_of_the_lowest_one_that_failed) {
  run([&](const Seat& seat) {
    for (uint32_t failing = 1; failing < 1u << seat->world(); ++failing) {
      const auto fails = [&](int32_t r) { return (failing >> r & 1) != 0; };
      const auto why = [](int32_t r) { return text("no room on rank ", r); };
      const Status mine =
          fails(seat->rank()) ? Status(ZERO_ERR_MEMORY, why(seat->rank())) : Status();
      Call call = begin(seat, Operation::step, 1);
      const Status outcome = call.vote("vote", mine);
      int32_t lowest = 0;
      while (!fails(lowest)) ++lowest;
      if (fails(seat->rank())) {
        EXPECT_EQ(outcome.code(), ZERO_ERR_MEMORY);
        EXPECT_EQ(outcome.text(), why(seat->rank()));
      } else {
        EXPECT_EQ(outcome.code(), ZERO_ERR_PEER);
        EXPECT_EQ(outcome.text(),
                  text("rank ", lowest, " in zero_step: ZERO_ERR_MEMORY: ", why(lowest)));
      }
      EXPECT_OK(call.vote("the next", {}));
    }
    expect_usable(seat);
  });
}

TEST_P(Conformance, the_reason_in_a_vote_may_be_long_or_missing) {
  const std::string reason(10'000, 'x');
  run([&](const Seat& seat) {
    const bool odd = seat->rank() == seat->world() - 1;
    const Status first =
        begin(seat).vote("vote", odd ? Status(ZERO_ERR_CKPT_IO, reason) : Status());
    const Status second = begin(seat).vote("vote", odd ? Status(-1234, "") : Status());
    if (odd) {
      EXPECT_EQ(first.text(), reason);
      EXPECT_EQ(second.code(), -1234);
      return;
    }
    EXPECT_EQ(first.code(), ZERO_ERR_PEER);
    EXPECT_NE(first.text().find("ZERO_ERR_CKPT_IO: " + std::string(3000, 'x')), std::string::npos);
    EXPECT_EQ(second.text(),
              text("rank ", seat->world() - 1, " in zero_comm_barrier: status -1234: "));
  });
}

TEST_P(Conformance, ranks_that_pass_the_same_agree) {
  run([&](const Seat& seat) {
    for (size_t bytes : {0, 10, 100'000})
      EXPECT_OK(begin(seat).agree("same", "setting 'lr'", std::string(bytes, 'y')));
  });
}

TEST_P(Conformance, the_rank_that_differs_is_named_with_both_sides) {
  const int32_t n = world();
  for (int32_t odd = 0; n > 1 && odd < n; ++odd) {
    const std::vector<std::string> results = run_all([&](const Seat& seat) {
      std::string lines;
      for (int i = 0; i < 3000; ++i)
        lines +=
            text("parameter ", i, " has ", i == 2000 && seat->rank() == odd ? 77 : 1000 + i, "\n");
      const Status status = begin(seat).agree("lines", "registration", lines);
      expect_usable(seat);
      return outcome_of(status);
    });
    // Of two ranks none is the majority: then rank 0 is right.
    const int32_t named = n == 2 ? 1 : odd;
    const int32_t other = named == 0 ? 1 : 0;
    const auto side = [&](int32_t r) {
      return text("rank ", r, " has parameter 2000 has ", r == odd ? 77 : 3000);
    };
    for (int32_t r = 0; r < n; ++r)
      EXPECT_EQ(results[static_cast<size_t>(r)],
                outcome(r == named ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER,
                        text("registration: ", side(named), ", ", side(other))));
  }
}

// ---- Bulk data.

TEST_P(Conformance, all_gather_gives_every_ranks_bytes) {
  run([&](const Seat& seat) {
    if (seat->direct() && seat->world() > 1) return;  // comms with shared memory need none
    const size_t n = static_cast<size_t>(seat->world());
    const size_t own = static_cast<size_t>(seat->rank());
    for (size_t bytes : {size_t{0}, size_t{4}, size_t{4100}, size_t{1'000'001}}) {
      Call call = begin(seat, Operation::step, 1);
      const std::vector<std::byte> mine = bytes_of_rank(seat->rank(), bytes);
      std::vector<std::byte> all(n * bytes);
      EXPECT_OK(seat->all_gather(call, mine.data(), all.data(), bytes));
      EXPECT_TRUE(all == bytes_of_all(seat->world(), bytes)) << bytes;
      std::fill(all.begin(), all.end(), std::byte{0});
      std::copy(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(own * bytes));
      EXPECT_OK(seat->all_gather(call, all.data() + own * bytes, all.data(), bytes));
      EXPECT_TRUE(all == bytes_of_all(seat->world(), bytes)) << "in place " << bytes;
    }
  });
}

TEST_P(Conformance, reduce_scatter_sums_in_rank_order) {
  const bool own_order = GetParam().backend == Backend::user_sums;
  run([&](const Seat& seat) {
    if (seat->direct() && seat->world() > 1) return;
    const size_t n = static_cast<size_t>(seat->world());
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{70'001}}) {
      std::vector<std::vector<float>> send(n, std::vector<float>(n * count));
      for (size_t r = 0; r < n; ++r) {
        std::mt19937 random(static_cast<uint32_t>(100 + r));
        for (float& x : send[r]) {
          // Small integers sum exactly in any order; the others do not.
          const auto bits = random();
          x = own_order
                  ? static_cast<float>(bits % 1000)
                  : std::ldexp(static_cast<float>(bits) - 2e9f, static_cast<int>(bits % 40) - 20);
        }
      }
      const size_t own = static_cast<size_t>(seat->rank());
      std::vector<float> sum(count), scratch(n * count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = send[0][own * count + i];
        for (size_t r = 1; r < n; ++r) expected[i] += send[r][own * count + i];
      }
      Call call = begin(seat, Operation::step, 1);
      EXPECT_OK(
          seat->reduce_scatter(call, {}, send[own].data(), sum.data(), count, scratch.data()));
      EXPECT_TRUE(count == 0 || memcmp(sum.data(), expected.data(), count * sizeof(float)) == 0)
          << count;
    }
  });
}

// ---- Arenas.

std::shared_ptr<Arena> allocate(const Seat& seat, size_t bytes, int32_t kind) {
  Result<std::shared_ptr<Arena>> arena = begin(seat, Operation::arena_alloc).allocate(bytes, kind);
  EXPECT_TRUE(arena.ok()) << arena.failure().text();
  return arena.ok() ? *arena : nullptr;
}

TEST_P(Conformance, arenas_are_zeroed_aligned_and_numbered_alike) {
  run([&](const Seat& seat) {
    uint32_t number = 0;
    for (int32_t kind : {ZERO_MEMORY_PER_RANK, ZERO_MEMORY_SHARED}) {
      for (size_t bytes : {size_t{1}, size_t{100}, size_t{5'000'001}}) {
        const std::shared_ptr<Arena> arena = allocate(seat, bytes, kind);
        ASSERT_NE(arena, nullptr);
        EXPECT_EQ(arena->bytes(), bytes);
        EXPECT_EQ(arena->kind(), kind);
        EXPECT_EQ(arena->number(), ++number);
        EXPECT_EQ(arena->comm(), seat);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 64, 0u);
        EXPECT_EQ(std::count(arena->data(), arena->data() + bytes, std::byte{0}),
                  static_cast<ptrdiff_t>(bytes));
        EXPECT_OK(barrier(seat));  // nobody has written before
        if (kind == ZERO_MEMORY_PER_RANK || seat->rank() == 0) memset(arena->data(), 0xff, bytes);
      }
    }
  });
}

TEST_P(Conformance, per_rank_arenas_belong_to_their_rank) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_PER_RANK);
    ASSERT_NE(arena, nullptr);
    const std::vector<std::byte> mine = bytes_of_rank(seat->rank(), arena->bytes());
    memcpy(arena->data(), mine.data(), mine.size());
    EXPECT_OK(barrier(seat));
    EXPECT_EQ(memcmp(arena->data(), mine.data(), mine.size()), 0);
  });
}

TEST_P(Conformance, shared_arenas_are_one_memory_where_ranks_can_address_each_other) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_SHARED);
    ASSERT_NE(arena, nullptr);
    const std::vector<std::byte> first = bytes_of_rank(0, arena->bytes());
    if (seat->rank() == 0) memcpy(arena->data(), first.data(), first.size());
    EXPECT_OK(barrier(seat));
    const bool same = memcmp(arena->data(), first.data(), first.size()) == 0;
    EXPECT_EQ(same, seat->direct() || seat->rank() == 0);
  });
}

TEST_P(Conformance, memory_of_another_rank_is_found_by_its_location) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 300'000, ZERO_MEMORY_PER_RANK);
    ASSERT_NE(arena, nullptr);
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
      EXPECT_EQ(location, Location());
      EXPECT_FALSE(seat->resolve(0, location, 1).ok());
      EXPECT_EQ(seat->arena(location), nullptr);
    }
    EXPECT_OK(call.vote("read", {}));
    EXPECT_OK(give_up_arena(arena->data()));
  });
}

TEST_P(Conformance, locations_outside_an_arena_are_refused) {
  run([&](const Seat& seat) {
    const std::shared_ptr<Arena> arena = allocate(seat, 1000, ZERO_MEMORY_PER_RANK);
    ASSERT_NE(arena, nullptr);
    claim_arena(arena);
    const Location start = seat->locate(arena->data(), 1000);
    EXPECT_FALSE(seat->resolve(-1, start, 1).ok());
    EXPECT_FALSE(seat->resolve(seat->world(), start, 1).ok());
    EXPECT_FALSE(seat->resolve(0, Location{}, 1).ok());
    EXPECT_FALSE(seat->resolve(0, {start.arena, 0, UINT64_MAX - 5}, 100).ok());
    if (seat->world() > 1) {  // alone, every address is one's own
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
    ASSERT_NE(arena, nullptr);
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
                           " asked for 200 bytes of kind 2, rank 0 asked "
                           "for 100 bytes of kind 2"));
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
    EXPECT_NE(allocate(seat, 100, ZERO_MEMORY_SHARED), nullptr);
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
  Meeting meeting(GetParam());
  run_sound_ranks(GetParam().ranks, world(), [&](int rank) {
    CommOptions options;
    options.timeout_ms = 77'000;
    Seat seat = meeting.join(rank, 0, options);
    if (!seat) return "";
    Seat child = split(seat, seat->rank() < 3 ? 0 : 1, 0);
    Seat grandchild = child ? split(child, 0, -child->rank()) : nullptr;
    seat.reset();
    child.reset();
    EXPECT_NE(grandchild, nullptr);
    if (!grandchild) return "";
    EXPECT_EQ(grandchild->options().timeout_ms, 77'000);
    expect_usable(grandchild);
    const std::shared_ptr<Arena> arena = allocate(grandchild, 100, ZERO_MEMORY_PER_RANK);
    EXPECT_NE(arena, nullptr);
    return "";
  });
  meeting.expect_nothing_left();
}

// ---- What breaks.

TEST_P(Conformance, a_second_call_on_a_busy_comm_is_refused_without_effect) {
  run([&](const Seat& seat) {
    Call call = begin(seat);
    std::thread second([&] {
      const Result<Call> refused = seat->begin(Operation::step, 1);
      EXPECT_FALSE(refused.ok());
      EXPECT_EQ(refused.failure().code(), ZERO_ERR_BUSY);
      EXPECT_NE(refused.failure().text().find("another thread is inside"), std::string::npos);
    });
    second.join();
    EXPECT_OK(call.vote("vote", {}));
    EXPECT_FALSE(seat->begin(Operation::step, 1).ok());
    Call moved = std::move(call);
    EXPECT_FALSE(seat->begin(Operation::step, 1).ok());
    EXPECT_OK(moved.vote("vote", {}));
  });
}

TEST_P(Conformance, ranks_in_different_calls_are_told_both_sides) {
  if (world() == 1) return;
  std::vector<std::pair<Operation, Operation>> pairs;
  const auto last = static_cast<uint32_t>(Operation::load);
  for (uint32_t a = 1; a <= last; ++a)
    for (uint32_t b = 1; b <= last; ++b)
      if (a != b && (world() == 2 || b == a % last + 1))
        pairs.emplace_back(static_cast<Operation>(a), static_cast<Operation>(b));
  Meeting meeting(GetParam());
  const auto results = run_sound_ranks(GetParam().ranks, world(), [&](int rank) {
    std::string outcomes;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Seat seat = meeting.join(rank, static_cast<int>(i));
      if (!seat) return outcomes;
      const int32_t odd = static_cast<int32_t>(i) % (seat->world() - 1) + 1;
      const Operation mine = rank == odd ? pairs[i].first : pairs[i].second;
      outcomes += outcome_of(barrier(seat, mine)) + "\n";
      EXPECT_TRUE(seat->aborted());
      EXPECT_EQ(seat->failure().code, ZERO_ERR_DESYNC);
      EXPECT_EQ(seat->begin(mine).failure().code(), ZERO_ERR_DESYNC);
    }
    return outcomes;
  });
  std::string expected;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int32_t odd = static_cast<int32_t>(i) % (world() - 1) + 1;
    expected +=
        outcome(ZERO_ERR_DESYNC, text("rank ", odd, " called ", operation_name(pairs[i].first),
                                      ", rank 0 called ", operation_name(pairs[i].second), "\n"));
  }
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

TEST_P(Conformance, ranks_in_different_places_are_told_both_sides) {
  if (world() == 1) return;
  struct Place {
    std::function<Status(const Seat& seat, bool odd)> go;
    const char* odd;
    const char* usual;
  };
  std::byte data[64] = {};
  const std::vector<Place> places = {
      {[](const Seat& seat, bool odd) { return barrier(seat, Operation::step, odd ? 2 : 1); },
       "called zero_step on its optimizer 2", "called zero_step on its optimizer 1"},
      {[](const Seat& seat, bool odd) {
         return begin(seat, Operation::seal).vote(odd ? "plan" : "settings", {});
       },
       "votes in zero_seal at 'plan' (exchange 0)",
       "votes in zero_seal at 'settings' (exchange 0)"},
      {[](const Seat& seat, bool odd) {
         Call call = begin(seat, Operation::save);
         if (odd) return call.vote("here", {});
         return std::move(call.gather("here", "")).status();
       },
       "votes in zero_state_save at 'here' (exchange 0)",
       "gathers in zero_state_save at 'here' (exchange 0)"},
      {[&](const Seat& seat, bool odd) {
         return begin(seat, Operation::broadcast)
             .broadcast("data", std::span(data).first(odd ? 60 : 64), 0);
       },
       "sends 60 bytes in zero_comm_broadcast at 'data'",
       "sends 64 bytes in zero_comm_broadcast at 'data'"},
      {[&](const Seat& seat, bool odd) {
         return begin(seat, Operation::broadcast).broadcast("data", data, odd ? 1 : 0);
       },
       "expects the data of rank 1 in zero_comm_broadcast at 'data'",
       "expects the data of rank 0 in zero_comm_broadcast at 'data'"},
      {[&](const Seat& seat, bool odd) {
         std::vector<std::byte> mine(odd ? 100'000 : 8);
         std::vector<std::byte> all(mine.size() * static_cast<size_t>(seat->world()));
         return begin(seat, Operation::load).exchange("sizes", mine, all);
       },
       "sends 100000 bytes in zero_state_load at 'sizes'",
       "sends 8 bytes in zero_state_load at 'sizes'"},
      {[](const Seat& seat, bool odd) {
         if (odd) EXPECT_OK(barrier(seat));
         Call call = begin(seat);
         if (odd) return call.vote("barrier", {});
         EXPECT_OK(call.vote("barrier", {}));
         return call.vote("more", {});
       },
       "is in its collective call 2 (zero_comm_barrier)",
       "is in its collective call 1 (zero_comm_barrier)"},
  };
  Meeting meeting(GetParam());
  const auto results = run_sound_ranks(GetParam().ranks, world(), [&](int rank) {
    std::string outcomes;
    for (size_t i = 0; i < places.size(); ++i) {
      const Seat seat = meeting.join(rank, static_cast<int>(i));
      if (!seat) return outcomes;
      const Status status = places[i].go(seat, rank == seat->world() - 1);
      EXPECT_TRUE(seat->aborted());
      outcomes += outcome_of(status) + "\n";
    }
    return outcomes;
  });
  std::string expected;
  for (const Place& place : places)
    expected += outcome(ZERO_ERR_DESYNC,
                        text("rank ", world() - 1, " ", place.odd, ", rank 0 ", place.usual, "\n"));
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

TEST_P(Conformance, the_first_abort_stands_and_every_later_call_returns_it) {
  run([&](const Seat& seat) {
    EXPECT_FALSE(seat->aborted());
    EXPECT_EQ(seat->failure().code, ZERO_OK);
    EXPECT_OK(barrier(seat));
    Failure cause;
    cause.code = ZERO_ERR_ABORTED;
    cause.rank = 0;
    cause.step = 12;
    cause.params_consistent = false;
    cause.phase = "zero_comm_abort";
    cause.text = "the user said so";
    // A seat alone knows only of its own abort, so every rank makes the same one.
    std::thread other([&] { seat->abort(cause); });
    other.join();
    cause.text = "the second cause";
    seat->abort(cause);
    EXPECT_TRUE(seat->aborted());
    const Failure failure = seat->failure();
    EXPECT_EQ(failure.code, ZERO_ERR_ABORTED);
    EXPECT_EQ(failure.rank, 0);
    EXPECT_EQ(failure.step, 12);
    EXPECT_FALSE(failure.params_consistent);
    EXPECT_EQ(failure.phase, "zero_comm_abort");
    EXPECT_EQ(failure.text, "the user said so");
    const Result<Call> call = seat->begin(Operation::barrier);
    EXPECT_EQ(call.failure().code(), ZERO_ERR_ABORTED);
    EXPECT_EQ(call.failure().text(), "the user said so");
  });
}

TEST_P(Conformance, an_abort_inside_a_call_ends_it) {
  run([&](const Seat& seat) {
    EXPECT_OK(barrier(seat));
    seat->steps_done = 5;
    seat->publishing = true;
    Call call = begin(seat, Operation::step, 1);
    EXPECT_OK(call.vote("before", {}));  // all are inside
    const bool alone = GetParam().backend != Backend::local;
    if (alone || seat->rank() == seat->world() - 1) {
      const Status cause = call.abort(Status(ZERO_ERR_SYSTEM, "it cannot go on"), "publish");
      EXPECT_EQ(outcome_of(cause), outcome(ZERO_ERR_SYSTEM, "it cannot go on"));
    }
    const Status status = call.vote("after", {});
    EXPECT_EQ(outcome_of(status), outcome(ZERO_ERR_SYSTEM, "it cannot go on"));
    const Failure failure = seat->failure();
    EXPECT_EQ(failure.rank, alone ? seat->rank() : seat->world() - 1);
    EXPECT_EQ(failure.step, 5);
    EXPECT_FALSE(failure.params_consistent);
    EXPECT_EQ(failure.phase, "zero_step: publish");
  });
}

TEST_P(Conformance, an_exception_inside_a_call_breaks_the_comm) {
  run([&](const Seat& seat) {
    try {
      Call call = begin(seat, Operation::save, 1);
      EXPECT_OK(call.vote("vote", {}));
      throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
    EXPECT_TRUE(seat->aborted());
    EXPECT_EQ(seat->begin(Operation::save, 1).failure().code(), ZERO_ERR_MEMORY);
  });
}

TEST(AllReduce, flushed_denormals_of_one_caller_change_nothing) {
  for (const RankKind ranks : {RankKind::threads, RankKind::processes}) {
    const std::string name = text("all-reduce-", getpid(), "-", static_cast<int>(ranks));
    const auto results = run_sound_ranks(ranks, 2, [&](int rank) {
      zero_comm* comm = nullptr;
      EXPECT_EQ(zero_comm_create_local(&comm, name.c_str(), rank, 2, nullptr), ZERO_OK)
          << zero_last_error();
      std::vector<float> values(3, 1e-39f);
      std::vector<double> wide(3, 1e-309);
#if defined(__x86_64__)
      const unsigned before = _mm_getcsr();
      if (rank == 1) _mm_setcsr(before | 0x8040);
      const unsigned own = _mm_getcsr() & 0xffc0;  // without the flags of what has happened
#endif
      EXPECT_EQ(zero_comm_all_reduce(comm, values.data(), 3, ZERO_FLOAT32, ZERO_SUM), ZERO_OK);
      EXPECT_EQ(zero_comm_all_reduce(comm, wide.data(), 3, ZERO_FLOAT64, ZERO_SUM), ZERO_OK);
#if defined(__x86_64__)
      EXPECT_EQ(_mm_getcsr() & 0xffc0, own);
      _mm_setcsr(before);
#endif
      zero_comm_free(comm);
      std::string bits(reinterpret_cast<const char*>(values.data()), 12);
      bits.append(reinterpret_cast<const char*>(wide.data()), 24);
      return bits;
    });
    const std::vector<float> twice(3, 1e-39f + 1e-39f);
    const std::vector<double> twice_wide(3, 1e-309 + 1e-309);
    std::string expected(reinterpret_cast<const char*>(twice.data()), 12);
    expected.append(reinterpret_cast<const char*>(twice_wide.data()), 24);
    EXPECT_TRUE(results[0] == expected);
    EXPECT_TRUE(results[1] == expected);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all = {{Backend::solo, RankKind::threads, 1}};
  std::vector<Backend> backends = {Backend::user};
#ifndef ZERO_TEST_WITHOUT_LOCAL
  backends.push_back(Backend::local);
#endif
  for (Backend backend : backends)
    for (RankKind ranks : {RankKind::threads, RankKind::processes})
      for (int32_t world = 1; world <= 5; ++world) all.push_back({backend, ranks, world});
  all.push_back({Backend::user_sums, RankKind::threads, 3});
  return all;
}

INSTANTIATE_TEST_SUITE_P(comms, Conformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace zero::test
