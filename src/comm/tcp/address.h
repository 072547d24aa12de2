// SPDX-License-Identifier: Apache-2.0
// Addresses of hosts, and sockets that listen there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/status.h"
#include "comm/socket.h"

namespace zero::tcp {

/// An address of a host, in words that any host understands.
struct Address {
  uint8_t version = 0;  // 4 or 6
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Address&) const = default;
  /// True if only this host can reach it.
  bool is_loopback() const;
};
std::string to_text(const Address& address);
Place place_of(const Address& address, uint16_t port);
/// Returns the address in `words`, or nothing if they are none.
std::optional<Address> to_address(const std::string& words);
/// Returns the address in a socket's, or nothing if it is of another kind, or means something on
/// one link only.
std::optional<Address> to_address(const sockaddr* from);

/// Returns this host's addresses that others may reach, the loopback last; at most `most`.
Result<std::vector<Address>> own_addresses(size_t most);

/// Returns the addresses of a host by its name, at least one. Asks again for a name that nobody
/// knows, because its host may come up later. Fails with ZERO_ERR_RENDEZVOUS after `limit_ms`, with
/// the resolver's words.
Result<std::vector<Address>> resolve(const std::string& host, int64_t limit_ms);

/// A socket that ranks can come to.
struct Listener {
  Fd fd;
  uint16_t port = 0;
};
/// Listens at `port` of every interface; 0 is any free one.
Result<Listener> listen_anywhere(uint16_t port = 0);
/// Listens at `port` of the first of `addresses` that is one of this host or, if none is, of every
/// interface. Fails with ZERO_ERR_RENDEZVOUS if that port is in use.
Result<Listener> listen_at(std::span<const Address> addresses, uint16_t port);

}  // namespace zero::tcp
