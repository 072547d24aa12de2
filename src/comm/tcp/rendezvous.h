// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks on several hosts (comm/rendezvous.h): an Offer says where a rank listens,
// and has a key by which both sides prove who they are. It reaches the other ranks by a way that
// nobody else can read.
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

/// Trivially copyable: it travels as it lies in memory.
struct Offer {
  static constexpr size_t kAddresses = 8;
  Sha256 key{};  // never travels over the connections that it is for
  std::array<Address, kAddresses> addresses{};
  uint16_t port = 0;
  uint16_t count = 0;  // of addresses
  int32_t rank = -1;   // as errors call who listens; -1: by its place
};

struct Root {
  Listener listener;
  Offer offer;
};
/// Listens, and makes the Offer: rank 0's first step.
Result<Root> listen();
/// Does the same if the place has children; if not, the Offer says only who it is.
Result<Root> listen(const Tree& tree, int32_t rank);

/// Makes an Offer if there is no way to send one: every rank makes the same from what all know.
/// Other jobs do not know `secret`.
Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret);
/// Listens as `offer` says. Fails with ZERO_ERR_RENDEZVOUS if its port is in use.
Result<Root> listen(const Offer& offer);

// These connect a rank with its neighbours in the tree. They fail with ZERO_ERR_RENDEZVOUS, which
// names who is missing. The first exchange tells whether all are connected.

/// Does it where every rank has the Offers of all, by place.
Result<Neighbours> join(const Root& own, std::span<const Offer> offers, const Tree& tree,
                        const Bounds& bounds);
/// Do it where ranks know rank 0's Offer only: seat_guests() is rank 0's side, visit() that of the
/// others. All come to rank 0, which tells each whose parent is another rank where that listens.
Result<Neighbours> seat_guests(const Root& root, int32_t world, const Bounds& bounds,
                               int32_t fan_out = Tree::kFanOut);
Result<Neighbours> visit(const Offer& offer, int32_t rank, int32_t world, const Bounds& bounds,
                         int32_t fan_out = Tree::kFanOut);

}  // namespace zero::tcp
