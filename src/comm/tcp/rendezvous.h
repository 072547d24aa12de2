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
/// What rank 0 does first.
Result<Root> listen();

/// The same where no way carries an Offer: every rank makes it from what all know, and `secret` is
/// what other jobs do not.
Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret);
/// ZERO_ERR_RENDEZVOUS where the port of `offer` is in use.
Result<Root> listen(const Offer& offer);

/// Of rank 0 all others, once every rank has come and confirmed; of another rank rank 0, once that
/// has answered.
/// ZERO_ERR_RENDEZVOUS names who is missing. The first exchange tells whether all are seated.
Result<std::vector<Peer>> seat_guests(const Root& root, int32_t world, const Bounds& bounds);
Result<std::vector<Peer>> visit(const Offer& offer, int32_t rank, int32_t world,
                                const Bounds& bounds);

}  // namespace zero::tcp
