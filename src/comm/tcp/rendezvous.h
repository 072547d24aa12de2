// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks on several hosts (comm/rendezvous.h). An Offer says where a rank listens,
// and contains a key with which both sides prove their identity. It reaches the other ranks through
// a channel that nobody else can read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "comm/link.h"
#include "comm/tcp/address.h"
#include "comm/tcp/tcp.h"

namespace zero::tcp {

/// Trivially copyable, because it is sent as it lies in memory.
struct Offer {
  static constexpr size_t kAddresses = 8;
  Sha256 key{};  // never sent over the connections that it protects
  std::array<Address, kAddresses> addresses{};
  uint16_t port = 0;
  uint16_t count = 0;  // number of addresses
  int32_t rank = -1;   // of the listening rank in error messages; -1 if it is the place
};

struct Root {
  Listener listener;
  Offer offer;
};
/// Listens and creates the Offer, as the first step of rank 0.
Result<Root> listen();
/// Does the same if the place has children. Otherwise the Offer contains only the rank.
Result<Root> listen(const Tree& tree, int32_t rank);

/// Creates an Offer that every rank can compute from common knowledge, if no channel can carry one.
/// Other jobs do not know `secret`.
Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret);
/// Listens as `offer` describes. Fails with ZERO_ERR_RENDEZVOUS if its port is in use.
Result<Root> listen(const Offer& offer);

// These functions connect a rank to its neighbours in the tree. They fail with ZERO_ERR_RENDEZVOUS,
// naming the ranks that are missing. The first exchange shows whether all ranks are connected.

/// Used if every rank has the Offers of all ranks, by place.
Result<Neighbours> join(const Root& own, std::span<const Offer> offers, const Tree& tree,
                        const Bounds& bounds);
/// Used if ranks have only rank 0's Offer. Rank 0 calls seat_guests(), and the other ranks call
/// visit(). All ranks connect to rank 0, which sends each rank with another parent to that parent.
Result<Neighbours> seat_guests(const Root& root, int32_t world, const Bounds& bounds,
                               int32_t fan_out = Tree::kFanOut);
Result<Neighbours> visit(const Offer& offer, int32_t rank, int32_t world, const Bounds& bounds,
                         int32_t fan_out = Tree::kFanOut);

}  // namespace zero::tcp
