// SPDX-License-Identifier: Apache-2.0
// Sockets between hosts: none of these calls waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
};
std::string to_text(const Address& address);

/// Listen at any free port of every interface.
struct Listener {
  Fd fd;
  uint16_t port = 0;
};
Result<Listener> listen_anywhere();

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
