// SPDX-License-Identifier: Apache-2.0
// What every comm promises: exchanges, votes and bulk data.
#include <algorithm>
#include <array>
#include <random>

#include "comm_cases.h"
#include "plan/buckets.h"
#include "support/float_control.h"

namespace zero::test {
namespace {

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

/// A set of ranks, and how many were added.
struct Ranks {
  uint64_t set = 0, count = 0;
  void add(const Ranks& other) {
    set |= other.set;
    count += other.count;
  }
  static Ranks of(int32_t rank, uint64_t some = 1) { return {uint64_t{1} << rank, some}; }
};

TEST_P(Conformance, any_number_of_records_combines_each_with_those_in_its_place) {
  run([&](const Seat& seat) {
    const auto world = static_cast<uint64_t>(seat->world());
    for (size_t count : {0, 1, 40, 60, 2'000}) {
      Call call = begin(seat);
      std::vector<Ranks> records;
      for (size_t i = 0; i < count; ++i) records.push_back(Ranks::of(seat->rank(), i));
      EXPECT_OK(call.combine_each("records", std::span(records)));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(records[i].set, (uint64_t{1} << world) - 1) << i;
        EXPECT_EQ(records[i].count, i * world);
      }
    }
  });
}

// Trees with two and three levels.
TEST(Tree, every_rank_counts_once_on_any_level) {
  for (const int world : {17, 273}) {
    const Meeting meeting(CommKind::local, world);
    run_sound_ranks(RankKind::threads, world, [&](int rank) {
      const Seat seat = join(meeting, rank);
      for (int i = 0; i < 3; ++i) {
        Call call = begin(seat);
        const auto count = static_cast<uint64_t>(rank);
        EXPECT_EQ(call.combine("ranks", Sum{count})->value,
                  static_cast<uint64_t>(world) * static_cast<uint64_t>(world - 1) / 2);
        const std::vector<int> all = *call.exchange("all", rank);
        for (int r = 0; r < world; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], r);
        const bool fails = rank >= world - 2;
        const Status voted =
            call.vote("vote", fails ? Status(ZERO_ERR_MEMORY, text("of rank ", rank)) : Status());
        EXPECT_EQ(voted.code(), fails ? ZERO_ERR_MEMORY : ZERO_ERR_PEER);
        if (fails) continue;
        EXPECT_TRUE(voted.text().starts_with(text("rank ", world - 2, " in "))) << voted.text();
      }
      return std::string();
    });
  }
}

TEST(Tree, ranks_that_call_something_else_are_named_from_any_level) {
  constexpr int kWorld = 273, kOdd = 250;
  const Meeting meeting(CommKind::local, kWorld);
  for (const std::string& said : run_sound_ranks(RankKind::threads, kWorld, [&](int rank) {
         const Seat seat = join(meeting, rank);
         Call call = begin(seat, rank >= kOdd ? Operation::barrier : Operation::step);
         return call.vote("vote", {}).text();
       }))
    EXPECT_EQ(said, "rank 250 called zero_comm_barrier, rank 0 called zero_step");
}

TEST_P(Conformance, a_vote_without_failures_combines_the_records) {
  run([&](const Seat& seat) {
    Call call = begin(seat);
    const Ranks all = *call.vote("vote", {}, Ranks::of(seat->rank()));
    EXPECT_EQ(all.count, static_cast<uint64_t>(seat->world()));
    EXPECT_EQ(all.set, (uint64_t{1} << seat->world()) - 1);
  });
}

TEST_P(Conformance, what_differs_on_one_rank_differs_on_all) {
  run([&](const Seat& seat) {
    for (int32_t odd = -1; odd < seat->world(); ++odd) {
      Call call = begin(seat);
      const auto value = static_cast<uint64_t>(seat->rank() == odd ? 3 : 7);
      const Same<uint64_t> all = *call.combine("same", Same(value));
      EXPECT_EQ(all.differs, seat->world() > 1 && odd >= 0 ? 1u : 0u);
      EXPECT_EQ(all.value, odd >= 0 ? 3u : 7u);
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
    // Neither of two ranks is a majority, so rank 0 counts as right.
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
    // Comms with shared memory do not need it, and neither do those on devices.
    if (seat->direct() || seat->device() != nullptr) return;
    const size_t n = static_cast<size_t>(seat->world());
    const size_t own = static_cast<size_t>(seat->rank());
    for (size_t bytes : {size_t{0}, size_t{4}, size_t{4100}, size_t{1'500'003}}) {
      std::shared_ptr<Arena> arena;
      const std::span<std::byte> all = in_arena<std::byte>(seat, n * bytes, arena);
      const std::vector<std::byte> mine = bytes_of_rank(seat->rank(), bytes);
      const std::vector<std::byte> expected = bytes_of_all(seat->world(), bytes);
      Call call = begin(seat, Operation::step, 1);
      EXPECT_OK(seat->all_gather(call, mine.data(), all.data(), bytes));
      EXPECT_TRUE(std::ranges::equal(all, expected)) << bytes;
      EXPECT_OK(call.vote("compared", {}));
      std::fill(all.begin(), all.end(), std::byte{0});
      std::copy(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(own * bytes));
      EXPECT_OK(seat->all_gather(call, all.data() + own * bytes, all.data(), bytes));
      EXPECT_TRUE(std::ranges::equal(all, expected)) << "in place " << bytes;
      EXPECT_OK(call.vote("compared", {}));
    }
  });
}

TEST_P(Conformance, gather_among_gives_the_bytes_of_these_ranks_and_no_others) {
  run([&](const Seat& seat) {
    if (seat->direct() || seat->device() != nullptr) return;
    const int32_t world = seat->world(), rank = seat->rank();
    std::shared_ptr<Arena> arenas[2];
    const std::span<std::byte> scratch =
        in_arena<std::byte>(seat, Comm::kGatherBytes * static_cast<size_t>(world), arenas[0]);
    const std::span<std::byte> room =
        in_arena<std::byte>(seat, 100'003 * static_cast<size_t>(world), arenas[1]);
    for (int32_t near = 1; near <= world; ++near) {
      if (world % near != 0) continue;
      for (const zero::Ranks& among : {zero::Ranks{rank / near * near, 1, near},
                                       zero::Ranks{rank % near, near, world / near}}) {
        for (const size_t bytes : {size_t{0}, size_t{4}, size_t{4100}, size_t{100'003}}) {
          std::vector<std::byte> expected;
          const auto all = room.first(static_cast<size_t>(among.count) * bytes);
          for (int32_t i = 0; i < among.count; ++i) {
            const auto of = bytes_of_rank(among.first + i * among.stride, bytes);
            expected.insert(expected.end(), of.begin(), of.end());
          }
          const auto own = static_cast<size_t>((rank - among.first) / among.stride) * bytes;
          Call call = begin(seat, Operation::step, 1);
          const std::vector<std::byte> mine = bytes_of_rank(rank, bytes);
          const Gathered apart{mine.data(), all.data(), bytes};
          EXPECT_OK(seat->gather_among(call, among, {&apart, 1}, scratch));
          EXPECT_TRUE(std::ranges::equal(all, expected)) << bytes << " of " << among.count;
          EXPECT_OK(call.vote("compared", {}));
          std::fill(all.begin(), all.end(), std::byte{0});
          std::copy(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(own));
          const Gathered inside{all.data() + own, all.data(), bytes};
          EXPECT_OK(seat->gather_among(call, among, {&inside, 1}, scratch));
          EXPECT_TRUE(std::ranges::equal(all, expected))
              << "in place " << bytes << " of " << among.count;
          EXPECT_OK(call.vote("compared", {}));
        }
      }
    }
  });
}

TEST_P(Conformance, reduce_scatter_sums_in_rank_order_on_each_host_and_then_over_hosts) {
  const bool own_order = GetParam().backend == CommKind::user_sums;
  run([&](const Seat& seat) {
    if (seat->direct() || seat->device() != nullptr) return;
    const size_t n = static_cast<size_t>(seat->world());
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{300'001}}) {
      std::vector<std::vector<float>> send(n, std::vector<float>(n * count));
      for (size_t r = 0; r < n; ++r) {
        std::mt19937 random(static_cast<uint32_t>(100 + r));
        for (float& x : send[r]) {
          // Small integers sum exactly in any order. The other numbers do not.
          const auto bits = random();
          x = own_order
                  ? static_cast<float>(bits % 1000)
                  : std::ldexp(static_cast<float>(bits) - 2e9f, static_cast<int>(bits % 40) - 20);
        }
      }
      const size_t own = static_cast<size_t>(seat->rank());
      std::vector<float> sum(count), scratch(n * count), expected(count);
      const std::vector<int> hosts = GetParam().backend == CommKind::clustered
                                         ? hosts_of(seat->world())
                                     : launched().several_hosts() ? launched().hosts
                                                                  : std::vector<int>(n);
      for (size_t i = 0; i < count; ++i) {
        for (int host = 0; host <= *std::ranges::max_element(hosts); ++host) {
          float of_host = -0.0f;
          for (size_t r = 0; r < n; ++r)
            if (hosts[r] == host) of_host += send[r][own * count + i];
          expected[i] = host == 0 ? of_host : expected[i] + of_host;
        }
      }
      std::shared_ptr<Arena> arena;
      const std::span<float> from = in_arena<float>(seat, n * count, arena);
      std::ranges::copy(send[own], from.begin());
      Call call = begin(seat, Operation::step, 1);
      const Scattered one{{}, from.data(), sum.data(), count};
      EXPECT_OK(seat->reduce_scatter(call, {&one, 1}, scratch.data()));
      EXPECT_OK(call.vote("done", {}));  // others may still wait for data from this rank
      EXPECT_TRUE(count == 0 || memcmp(sum.data(), expected.data(), count * sizeof(float)) == 0)
          << count;
    }
  });
}

TEST_P(Conformance, transfers_given_together_are_those_given_one_by_one) {
  run([&](const Seat& seat) {
    if (seat->direct() || seat->device() != nullptr) return;
    const auto n = static_cast<size_t>(seat->world()), own = static_cast<size_t>(seat->rank());
    std::vector<size_t> counts;  // small ones, empty ones, and some that need many parts
    size_t together = 0;
    for (size_t i = 0; i < 70; ++i)
      together += counts.emplace_back(i % 24 == 5 ? 200'000 + i : i * i % 97);
    std::array<std::shared_ptr<Arena>, 2> arenas;
    const auto given = in_arena<float>(seat, n * together, arenas[0]);
    const auto gathered = in_arena<float>(seat, n * together, arenas[1]);
    for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(i % 1009 + own);
    std::vector<float> sums(together), scratch(n * 300'000);
    std::vector<Scattered> scattered;
    std::vector<Gathered> back;
    for (size_t at = 0; const size_t count : counts) {
      scattered.push_back({{}, &given[n * at], &sums[at], count});
      back.push_back({&sums[at], &gathered[n * at], count * sizeof(float)});
      at += count;
    }
    Call call = begin(seat, Operation::step, 1);
    EXPECT_OK(seat->reduce_scatter(call, scattered, scratch.data()));
    EXPECT_OK(seat->all_gather(call, back));
    EXPECT_OK(call.vote("done", {}));  // others may still wait for data from this rank
    size_t wrong = 0;
    for (size_t i = 0; i < given.size(); ++i)
      wrong += gathered[i] != static_cast<float>(n * (i % 1009) + n * (n - 1) / 2) ? 1u : 0u;
    EXPECT_EQ(wrong, 0u);
  });
}

/// Sums and gathers a block of each owner, and returns how many elements are wrong. If padding does
/// not travel, the buffers have no room for it, and the sums of ranks that are not owners stay
/// unchanged.
size_t wrong_of_owners(const Seat& seat, int32_t owners) {
  const auto n = static_cast<size_t>(seat->world()), own = static_cast<size_t>(seat->rank());
  constexpr size_t kCount = kBlock;  // as in a plan
  const auto rows = static_cast<size_t>(seat->carries_padding() ? seat->world() : owners);
  std::array<std::shared_ptr<Arena>, 2> arenas;
  const auto given = in_arena<float>(seat, rows * kCount, arenas[0]);
  const auto gathered = in_arena<float>(seat, rows * kCount, arenas[1]);
  for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(i % 1009 + own);
  std::vector<float> sums(kCount, -7), scratch(n * kCount);
  Call call = begin(seat, Operation::step, 1);
  const Scattered scattered{{}, given.data(), sums.data(), kCount, owners};
  EXPECT_OK(seat->reduce_scatter(call, {&scattered, 1}, scratch.data()));
  EXPECT_OK(call.vote("summed", {}));
  const auto sum = [&](size_t i) { return static_cast<float>(n * (i % 1009) + n * (n - 1) / 2); };
  const bool owns = seat->rank() < owners;
  size_t wrong = 0;
  for (size_t i = 0; i < kCount && (owns || !seat->carries_padding()); ++i)
    wrong += sums[i] != (owns ? sum(own * kCount + i) : -7) ? 1u : 0u;
  const Gathered back{sums.data(), gathered.data(), kCount * sizeof(float), owners};
  EXPECT_OK(seat->all_gather(call, {&back, 1}));
  EXPECT_OK(call.vote("gathered", {}));
  for (size_t i = 0; i < kCount * static_cast<size_t>(owners); ++i)
    wrong += gathered[i] != sum(i) ? 1u : 0u;
  return wrong;
}

/// Does the same for a gather among some ranks.
size_t wrong_of_owners(const Seat& seat, int32_t owners, const zero::Ranks& among) {
  const int32_t sending = std::min(owners, among.count);
  const int32_t rows = seat->carries_padding() ? among.count : sending;
  std::array<std::shared_ptr<Arena>, 2> arenas;
  const auto scratch =
      in_arena<std::byte>(seat, Comm::kGatherBytes * static_cast<size_t>(seat->world()), arenas[0]);
  const auto all = in_arena<float>(seat, static_cast<size_t>(rows * kBlock), arenas[1]);
  const std::vector<float> mine(kBlock, static_cast<float>(seat->rank()));
  Call call = begin(seat, Operation::step, 1);
  const Gathered one{mine.data(), all.data(), kBlock * sizeof(float), owners};
  EXPECT_OK(seat->gather_among(call, among, {&one, 1}, scratch));
  EXPECT_OK(call.vote("gathered", {}));
  size_t wrong = 0;
  for (int64_t i = 0; i < sending * kBlock; ++i) {
    const auto rank = static_cast<float>(among.first + i / kBlock * among.stride);
    wrong += all[static_cast<size_t>(i)] != rank ? 1u : 0u;
  }
  return wrong;
}

TEST_P(Conformance, padding_of_ranks_that_are_no_owners_need_not_travel) {
  run([&](const Seat& seat) {
    if (seat->direct() || seat->device() != nullptr) return;
    for (int32_t owners = 1; owners <= seat->world(); ++owners) {
      EXPECT_EQ(wrong_of_owners(seat, owners), 0u) << owners << " owners";
      for (int32_t near = 1; near < seat->world(); ++near) {
        if (seat->world() % near != 0) continue;
        const zero::Ranks among{seat->rank() / near * near, 1, near};
        EXPECT_EQ(wrong_of_owners(seat, owners, among), 0u) << owners << " owners of " << near;
      }
    }
  });
}

// ---- Sums over ranks, through the public header.

TEST(AllReduce, flushed_denormals_of_one_caller_change_nothing) {
  for (const RankKind ranks : {RankKind::threads, RankKind::processes}) {
    const Meeting meeting(CommKind::local, 2);
    const auto results = run_sound_ranks(ranks, 2, [&](int rank) {
      zero_comm* const comm = meeting.join(rank);
      std::vector<float> values(3, 1e-39f);
      std::vector<double> wide(3, 1e-309);
      const uint64_t before = float_control();
      if (rank == 1) set_float_control(before | kFlushed);
      const uint64_t own = float_control() & ~kWhatHappened;
      EXPECT_OK(zero_comm_all_reduce(comm, values.data(), 3, ZERO_FLOAT32, ZERO_SUM));
      EXPECT_OK(zero_comm_all_reduce(comm, wide.data(), 3, ZERO_FLOAT64, ZERO_SUM));
      EXPECT_EQ(float_control() & ~kWhatHappened, own);
      set_float_control(before);
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

}  // namespace
}  // namespace zero::test
