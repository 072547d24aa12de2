// SPDX-License-Identifier: Apache-2.0
// Sockets at which ranks find each other, by a name on one host or by an address between hosts:
// none of these calls waits.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "base/os.h"
#include "base/status.h"

namespace zero {

/// Where a socket listens or connects to.
struct Place {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// A name that is in no file system: it goes with the last descriptor of who listens there, kill -9
/// or not.
Place place_of(std::string_view name);

/// Listen at `place`. 0, or the errno.
int listen_at(const Place& place, Fd* listener);

/// A connection under way: writable once it stands or has failed, which connect_error() tells. 0,
/// or the errno.
int start_connect(const Place& place, Fd* connection);
int connect_error(int fd);

/// The next guest of a listener; invalid, with the errno, if there is none.
Fd accept_guest(int listener);

/// Who made the other end of a connection between processes of one host, as the kernel vouches for
/// it.
struct Identity {
  pid_t pid;
  uid_t uid;
};
Result<Identity> identity_of(int connection);

}  // namespace zero
