// SPDX-License-Identifier: Apache-2.0
// Addresses of hosts, and sockets that listen at them.
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

/// An IP address in a form that is the same on all hosts.
struct Address {
  uint8_t version = 0;  // 4 or 6
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Address&) const = default;
  /// Returns true if only this host can reach the address.
  bool is_loopback() const;
};
std::string to_text(const Address& address);
Place place_of(const Address& address, uint16_t port);
/// Returns the address written in `words`, or nothing if it is not an address.
std::optional<Address> to_address(const std::string& words);
/// Returns the address of a socket address, or nothing if it is not an IP address or is valid only
/// on one link.
std::optional<Address> to_address(const sockaddr* from);

/// Returns up to `most` addresses at which others may reach this host, followed by loopback ones.
Result<std::vector<Address>> own_addresses(size_t most);

/// Returns the addresses of a host name, at least one. Retries unknown names, because their hosts
/// may come up later. Fails with ZERO_ERR_RENDEZVOUS and the resolver's message after `limit_ms`.
Result<std::vector<Address>> resolve(const std::string& host, int64_t limit_ms);

/// A socket to which ranks can connect.
struct Listener {
  Fd fd;
  uint16_t port = 0;
};
/// Listens at `port` on all interfaces. 0 selects any free port.
Result<Listener> listen_anywhere(uint16_t port = 0);
/// Listens at `port` of the first of `addresses` that belongs to this host, or on all interfaces if
/// none does. Fails with ZERO_ERR_RENDEZVOUS if the port is in use.
Result<Listener> listen_at(std::span<const Address> addresses, uint16_t port);

}  // namespace zero::tcp
