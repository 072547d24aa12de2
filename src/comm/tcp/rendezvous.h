// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks on several hosts (comm/rendezvous.h): an Offer says where rank 0 listens,
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
};

struct Root {
  Listener listener;
  Offer offer;
};
/// Listens, and makes the Offer: rank 0's first step.
Result<Root> listen();

/// Makes an Offer if there is no way to send one: every rank makes the same from what all know.
/// Other jobs do not know `secret`.
Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret);
/// Listens as `offer` says. Fails with ZERO_ERR_RENDEZVOUS if its port is in use.
Result<Root> listen(const Offer& offer);

/// seat_guests() returns all others to rank 0, once every rank has come and confirmed; visit()
/// returns rank 0 to another rank, once it has answered. They fail with ZERO_ERR_RENDEZVOUS, which
/// names who is missing. The first exchange tells whether all are seated.
Result<std::vector<Peer>> seat_guests(const Root& root, int32_t world, const Bounds& bounds);
Result<std::vector<Peer>> visit(const Offer& offer, int32_t rank, int32_t world,
                                const Bounds& bounds);

}  // namespace zero::tcp
