// SPDX-License-Identifier: Apache-2.0
// Ranks that only have connections, for tests of how they meet and what they report to each other.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/rendezvous.h"
#include "support/ranks.h"
#include "support/statuses.h"

namespace zero::tcp {

using test::outcome;
using test::RankKind;
using test::run_sound_ranks;

using Seat = std::unique_ptr<TcpComm>;

/// The place where ranks meet, also for processes that are forked later.
struct KeptRoot : Root {
  explicit KeptRoot(Root root) : Root(std::move(root)), kept(listener.fd.get()) {}
  const test::KeptInChildren kept;
};

inline KeptRoot make_root() { return KeptRoot(test::made(listen())); }

inline Result<Seat> meet(const Root& root, int32_t rank, int32_t world, int64_t limit_ms = 20'000,
                         int32_t fan_out = Tree::kFanOut, int64_t timeout_ms = 400) {
  const Bounds bounds = {limit_ms, [] { return Status(); }};
  Neighbours neighbours = ZERO_TRY(rank == 0 ? seat_guests(root, world, bounds, fan_out)
                                             : visit(root.offer, rank, world, bounds, fan_out));
  return std::make_unique<TcpComm>(rank, world, CommOptions{.timeout_ms = timeout_ms}, nullptr,
                                   std::move(neighbours));
}

inline Seat sit(const Root& root, int32_t rank, int32_t world, int32_t fan_out = Tree::kFanOut,
                int64_t timeout_ms = 400) {
  Result<Seat> seat = meet(root, rank, world, 20'000, fan_out, timeout_ms);
  EXPECT_TRUE(seat.ok()) << seat.failure().text();
  return seat.ok() ? std::move(*seat) : nullptr;
}

inline Patience within(int64_t limit_ms, bool progress = false) {
  return {"zero_step", "vote", limit_ms, progress};
}

inline Status exchange(TcpComm& seat, int32_t world, const Patience& patience = within(20'000)) {
  const std::byte mine[40] = {};
  std::vector<std::byte> all(40 * static_cast<size_t>(world));
  return seat.exchange_bytes(mine, all, patience);
}

/// Returns the results of `live` on each seat, after all ranks have made an exchange.
template <class Live>
std::vector<std::string> run_seats(int32_t world, const Live& live, int32_t fan_out = Tree::kFanOut,
                                   int64_t timeout_ms = 400) {
  const KeptRoot root = make_root();
  return run_sound_ranks(RankKind::threads, world, [&](int rank) {
    Seat seat = sit(root, rank, world, fan_out, timeout_ms);
    if (seat == nullptr) return std::string();
    EXPECT_EQ(outcome(exchange(*seat, world)), "ok");
    return live(std::move(seat), rank);
  });
}

/// Exchanges until one fails.
inline std::string go_on(TcpComm& seat, int32_t world, const Patience& patience = within(20'000)) {
  for (int i = 0; i < 1000; ++i)
    if (const Status status = exchange(seat, world, patience); !status.ok()) return outcome(status);
  return "no end";
}

}  // namespace zero::tcp
