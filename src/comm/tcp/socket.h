// SPDX-License-Identifier: Apache-2.0
// Sockets between hosts: none of these calls waits.
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

namespace zero::tcp {

/// An address of a host, in words that any host understands.
struct Address {
  uint8_t version = 0;  // 4 or 6
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Address&) const = default;
  /// Reached from this host alone.
  bool is_loopback() const;
};
std::string to_text(const Address& address);
/// The address that `words` are; nothing if they are none.
std::optional<Address> to_address(const std::string& words);
/// The address in a socket's; nothing if it is of another kind, or means something on one link
/// only.
std::optional<Address> to_address(const sockaddr* from);

/// A socket that ranks can come to.
struct Listener {
  Fd fd;
  uint16_t port = 0;
};
/// Listen at `port` of every interface; 0 is any free one.
Result<Listener> listen_anywhere(uint16_t port = 0);
/// Listen at `port` of the first of `addresses` that is one of this host, else of every interface.
/// ZERO_ERR_RENDEZVOUS if that port is in use.
Result<Listener> listen_at(std::span<const Address> addresses, uint16_t port);

/// This host's addresses that others may reach, the loopback last; at most `most`.
Result<std::vector<Address>> own_addresses(size_t most);

/// A connection under way: writable once it stands or has failed, which connect_error() tells.
Result<Fd> start_connect(const Address& address, uint16_t port);
int connect_error(int fd);

/// The next guest of a listener; -1 with errno EAGAIN if there is none.
Fd accept_guest(int listener);

/// What is sent goes at once, and a host that has vanished is noticed in 15 s.
void tune(int fd);

/// How many bytes went; 0 if none can now. -1: the connection is over.
ssize_t send_some(int fd, std::span<const std::byte> bytes);
/// How many bytes came; 0 if none is there. -1: the connection is over.
ssize_t receive_some(int fd, std::span<std::byte> bytes);

}  // namespace zero::tcp
