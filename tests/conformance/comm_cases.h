// SPDX-License-Identifier: Apache-2.0
// Every kind of comm, for tests of what all of them promise: solo, local, user and nccl, with ranks
// as threads and as processes. A new backend needs a CommKind that a Meeting can create, and a line
// in the list of cases at the end.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "comm/comm.h"
#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {

struct Case {
  CommKind backend;
  RankKind ranks;
  int32_t world;
};

inline std::string name_of(const Case& c) {
  constexpr const char* kRanks[] = {"_threads_", "_processes_", "_launched_"};
  return text(name_of(c.backend), kRanks[static_cast<size_t>(c.ranks)], c.world);
}

// Names a failing case.
inline void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

using Seat = std::shared_ptr<Comm>;

/// Returns the comm of `rank` in group `number`. Groups with different numbers are different comms
/// of the same ranks.
inline Seat join(const Meeting& meeting, int32_t rank, int number = 0,
                 const CommOptions& options = {}) {
  Result<Seat> seat = meeting.seat(rank, number, options);
  if (!seat.ok()) ADD_FAILURE() << "rank " << rank << ": " << seat.failure().text();
  return seat.ok() ? *seat : nullptr;
}

class Conformance : public testing::TestWithParam<Case> {
 protected:
  int32_t world() const { return GetParam().world; }

  /// Runs `body` on every rank of one comm, and returns the results by rank.
  std::vector<std::string> run_all(const std::function<std::string(const Seat& seat)>& body) {
    const Meeting meeting(GetParam().backend, world());
    std::vector<std::string> results =
        run_sound_ranks(GetParam().ranks, world(), [&](int rank) -> std::string {
          const Seat seat = join(meeting, rank);
          return seat ? body(seat) : "";
        });
    EXPECT_EQ(meeting.seats_left(), 0);
    return results;
  }

  void run(const std::function<void(const Seat& seat)>& body) {
    run_all([&](const Seat& seat) {
      body(seat);
      return "";
    });
  }
};

/// Begins a call, which must succeed.
inline Call begin(const Seat& seat, Operation operation = Operation::barrier, uint32_t object = 0) {
  Result<Call> call = seat->begin(operation, object);
  EXPECT_TRUE(call.ok()) << call.failure().text();
  if (!call.ok()) std::abort();
  return std::move(call).value();
}

/// Returns arena memory, which data that travels must be in.
template <class Item>
std::span<Item> in_arena(const Seat& seat, size_t count, std::shared_ptr<Arena>& arena) {
  const size_t bytes = std::max(count * sizeof(Item), size_t{1});
  arena = begin(seat, Operation::arena_alloc).allocate(bytes, ZERO_MEMORY_PER_RANK).value();
  return {reinterpret_cast<Item*>(arena->data()), count};
}

/// Returns bytes that identify their rank and position, eight at a time.
inline std::vector<std::byte> bytes_of_rank(int32_t rank, size_t bytes) {
  std::vector<uint64_t> words(bytes / 8 + 1);
  uint64_t word = static_cast<uint64_t>(rank) + 1;
  for (uint64_t& out : words) out = word = word * 6364136223846793005u + 1442695040888963407u;
  std::vector<std::byte> out(bytes);
  if (bytes != 0) memcpy(out.data(), words.data(), bytes);
  return out;
}

inline std::vector<std::byte> bytes_of_all(int32_t world, size_t bytes) {
  std::vector<std::byte> out;
  for (int32_t r = 0; r < world; ++r) {
    const std::vector<std::byte> one = bytes_of_rank(r, bytes);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

inline std::string outcome(Code code, std::string_view sentence) {
  return text(code, " ", sentence);
}
inline std::string outcome_of(const Status& status) {
  return outcome(status.code(), status.text());
}

/// Checks that the comm works as if nothing had happened.
inline void expect_usable(const Seat& seat) {
  Call call = begin(seat);
  const Result<std::vector<int32_t>> all = call.exchange("usable", seat->rank());
  ASSERT_TRUE(all.ok()) << all.failure().text();
  for (int32_t r = 0; r < seat->world(); ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], r);
}

inline Status barrier(const Seat& seat, Operation operation = Operation::barrier,
                      uint32_t object = 0) {
  Call call = ZERO_TRY(seat->begin(operation, object));
  return call.vote("barrier", {});
}

inline std::vector<Case> cases() {
  if (launched().world > 0) return {{CommKind::mpi, RankKind::launched, launched().world}};
  std::vector<Case> all = {{CommKind::solo, RankKind::threads, 1}};
  for (const CommKind backend : {CommKind::user, CommKind::local})
    for (const RankKind ranks : {RankKind::threads, RankKind::processes})
      for (int32_t world = 1; world <= 5; ++world) all.push_back({backend, ranks, world});
  all.push_back({CommKind::user_sums, RankKind::threads, 3});
  for (const RankKind ranks : {RankKind::threads, RankKind::processes})
    for (const int32_t world : {2, 3, 4}) all.push_back({CommKind::clustered, ranks, world});
  for (const CommKind backend : {CommKind::gates, CommKind::hosts, CommKind::staged})
    for (const auto& [ranks, world] :
         {std::pair(RankKind::threads, 1), {RankKind::threads, 3}, {RankKind::processes, 3}})
      all.push_back({backend, ranks, world});
  for (const int32_t world : {1, 2, 4}) all.push_back({CommKind::nccl, RankKind::threads, world});
  return all;
}

INSTANTIATE_TEST_SUITE_P(comms, Conformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace zero::test
